//! The constants of a model, whose elements stand in a file of their own.

use sterna::{DataType, Direction};

use super::ports::{one_output, only, pattern};
use super::types;
use super::xml::Layer;
use crate::constant::Constant;
use crate::error::{Fault, PortRef};
use crate::mapping::Stored;
use crate::weights;

/// The bytes of the constants of a model.
#[derive(Debug, Clone, Copy)]
pub(super) enum Weights<'a> {
    /// Bytes that constants copy.
    Bytes(&'a [u8]),
    /// Bytes that they share.
    Stored(&'a Stored),
}

impl Weights<'_> {
    pub(super) fn constant(self, place: &ConstantPlace) -> Result<Constant, Fault> {
        let &ConstantPlace { data_type, ref dims, offset, size } = place;
        match self {
            Self::Stored(stored) => stored.constant(data_type, dims, (offset, size)),
            Self::Bytes(bytes) => {
                let available = bytes.len() as u64;
                let end = offset.checked_add(size).filter(|&end| end <= available);
                let end = end.ok_or(Fault::Weights { offset, size, available })?;
                // Both are at most the length.
                let part = &bytes[offset as usize..end as usize];
                let mut own = weights::room(part.len())?;
                own.extend_from_slice(part);
                Ok(weights::of_little_endian(data_type, dims, own)?)
            }
        }
    }
}

/// Where the elements of a constant stand, and what they are.
pub(super) struct ConstantPlace {
    data_type: DataType,
    dims: Vec<i64>,
    offset: u64,
    /// In bytes.
    pub(super) size: u64,
}

impl ConstantPlace {
    pub(super) fn of(layer: &Layer) -> Result<Self, Fault> {
        only(layer, &["element_type", "shape", "offset", "size"])?;
        let port = one_output(layer)?;
        let text = |name: &'static str| layer.attr(name).ok_or(Fault::MissingAttribute { attribute: name });
        let number = |name: &'static str| {
            text(name)?.trim().parse::<u64>().map_err(|_| Fault::of_attribute(name, "a whole number"))
        };
        let at = PortRef { direction: Direction::Output, id: port.id, name: "" };
        let data_type = types::named(text("element_type")?).map_err(|refused| refused.at(at))?;
        let extents =
            pattern(text("shape")?)?.filter(|extents| extents.iter().all(|extent| extent.is_fixed()));
        let extents = extents.ok_or_else(|| Fault::of_attribute("shape", "known dims"))?;
        let dims: Vec<i64> = extents.iter().map(|extent| extent.dim()).collect();
        let (offset, given) = (number("offset")?, number("size")?);
        let size = weights::byte_count(data_type, &dims)?.unwrap_or(0) as u64;
        // OpenVINO stores a byte for a constant without elements.
        if given != size && (given, size) != (1, 0) {
            return Err(Fault::Size { given, needed: size });
        }
        Ok(Self { data_type, dims, offset, size })
    }
}
