//! Descriptions of tensors, which callers hold as plain structs.

use std::ffi::c_int;
use std::mem::MaybeUninit;

use sterna::{Layout as CoreLayout, MAX_RANK};

use crate::data_type::{self, DataType};
use crate::ffi::{Fault, array, ffi_guard, require};
use crate::status::Status;

/// How the elements of a tensor lie in memory: one of the `STERNA_LAYOUT_TYPE_*` numbers, which are those of
/// `dnnl_graph_layout_type_t`.
pub type LayoutType = c_int;

/// Every layout with its name.
pub const LAYOUT_TYPES: &[(LayoutType, &str)] =
    &[(UNDEF, "undef"), (ANY, "any"), (STRIDED, "strided"), (OPAQUE, "opaque")];

const UNDEF: LayoutType = 0;
const ANY: LayoutType = 1;
const STRIDED: LayoutType = 2;
const OPAQUE: LayoutType = 3;

/// The life of a tensor's contents between executions: one of the `STERNA_TENSOR_PROPERTY_*` numbers, which
/// are those of `dnnl_graph_tensor_property_t`.
pub type TensorProperty = c_int;

/// An unknown dim or stride.
const UNKNOWN_DIM: i64 = i64::MIN;

/// An unknown rank.
const UNKNOWN_RANK: c_int = -1;

/// The layout of the elements of a tensor; its layout type tells the field.
#[derive(Clone, Copy)]
#[repr(C)]
pub union Layout {
    /// Strided layout: elements from one index to the next along each dim.
    pub strides: [i64; 12],
    /// Opaque layout: its name.
    pub layout_id: usize,
}

const _: () = assert!(MAX_RANK == 12);

/// The description of a tensor: id, type, shape and layout, without memory. The layout is that of
/// `dnnl_graph_logical_tensor_t`.
///
/// It is a plain struct without hidden parts: it may be copied, and needs no destruction.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct LogicalTensor {
    /// The id by which ops are linked.
    pub id: usize,
    /// The number of dims; -1 if it is unknown.
    pub ndims: c_int,
    /// The dims; `STERNA_UNKNOWN_DIM` stands for one that is unknown.
    pub dims: [i64; 12],
    /// The type of the elements.
    pub data_type: DataType,
    /// The life of its contents between executions.
    pub property: TensorProperty,
    /// How the elements lie in memory.
    pub layout_type: LayoutType,
    /// Strides, or the name of an opaque layout.
    pub layout: Layout,
}

impl LogicalTensor {
    /// The description for C.
    pub fn from_core(core: &sterna::LogicalTensor) -> Self {
        let mut strides = [UNKNOWN_DIM; MAX_RANK];
        match (core.layout(), core.rank()) {
            (_, Some(0)) => strides = [0; MAX_RANK],
            (CoreLayout::Strided(given), Some(_)) if given.iter().any(|stride| stride.is_some()) => {
                strides = [0; MAX_RANK];
                strides.iter_mut().zip(given.iter()).for_each(|(to, from)| *to = from.unwrap_or(UNKNOWN_DIM));
            }
            _ => {}
        }
        let mut layout = Layout { strides };
        if let CoreLayout::Opaque(id) = core.layout() {
            layout.layout_id = *id;
        }
        let mut dims = [UNKNOWN_DIM; MAX_RANK];
        if let Some(given) = core.partial_dims() {
            dims = [0; MAX_RANK];
            dims.iter_mut().zip(given).for_each(|(to, from)| *to = from.unwrap_or(UNKNOWN_DIM));
        }
        Self {
            id: core.id().get(),
            ndims: core.rank().map_or(UNKNOWN_RANK, |rank| rank as c_int),
            dims,
            data_type: core.data_type().code() as DataType,
            property: core.property().code() as TensorProperty,
            layout_type: core.layout().code() as LayoutType,
            layout,
        }
    }

    /// The description for the library, checked.
    pub fn to_core(&self) -> Result<sterna::LogicalTensor, Fault> {
        let rank = match self.ndims {
            UNKNOWN_RANK => None,
            ndims => Some(rank(ndims)?),
        };
        // SAFETY: any bits are a number.
        let (strides, layout_id) = unsafe { (&self.layout.strides, self.layout.layout_id) };
        let layout = match self.layout_type {
            UNDEF => CoreLayout::Undef,
            ANY => CoreLayout::Any,
            STRIDED => CoreLayout::Strided(strides[..rank.unwrap_or(0)].iter().map(known).collect()),
            OPAQUE => CoreLayout::Opaque(layout_id),
            other => return Err(Fault::unknown("layout type", other)),
        };
        let dims: Option<Vec<_>> = rank.map(|rank| self.dims[..rank].iter().map(known).collect());
        let data_type = data_type::from_code(self.data_type)?;
        let property = u32::try_from(self.property).ok().and_then(sterna::Property::from_code);
        let property = property.ok_or_else(|| Fault::unknown("tensor property", self.property))?;
        let core = sterna::LogicalTensor::with_layout(self.id, data_type, dims.as_deref(), layout)?;
        Ok(core.with_property(property)?)
    }
}

/// A dim or stride of the caller; `None` if it is unknown.
pub fn known(number: &i64) -> Option<i64> {
    Some(*number).filter(|&number| number != UNKNOWN_DIM)
}

/// The number of dims of a caller.
pub(crate) fn rank(ndims: i32) -> Result<usize, Fault> {
    let rank = usize::try_from(ndims).ok().filter(|&rank| rank <= MAX_RANK);
    rank.ok_or_else(|| Fault::invalid_arguments(format!("{ndims} is no rank: it is 0 to {MAX_RANK}")))
}

/// Writes a description if it is valid.
///
/// # Safety
///
/// Unless it is null, a description can be written at the address.
unsafe fn write(at: *mut LogicalTensor, value: LogicalTensor) -> Result<(), Fault> {
    let at = require(std::ptr::NonNull::new(at), "logical_tensor")?;
    value.to_core()?;
    // SAFETY: the address is not null, and the caller promises that it can be written.
    unsafe { at.write(value) };
    Ok(())
}

/// Describes a tensor whose dims are unknown; with `ndims` -1 the rank is unknown too. Rank 0 is a scalar.
/// Dims and strides are all set to `STERNA_UNKNOWN_DIM`, those of a scalar to 0.
///
/// A host scalar has rank 0 and the type s32, s64 or f32.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_logical_tensor_init(
    logical_tensor: *mut LogicalTensor,
    id: usize,
    data_type: DataType,
    ndims: i32,
    layout_type: LayoutType,
    property: TensorProperty,
) -> Status {
    ffi_guard(|| {
        let fill = if ndims == 0 { 0 } else { UNKNOWN_DIM };
        let (dims, layout) = ([fill; MAX_RANK], Layout { strides: [fill; MAX_RANK] });
        let value = LogicalTensor { id, ndims, dims, data_type, property, layout_type, layout };
        // SAFETY: the caller promises that it can be written.
        unsafe { write(logical_tensor, value) }
    })
}

/// Describes a tensor of given dims; a dim may be `STERNA_UNKNOWN_DIM`. If all dims are known and the layout
/// is strided, the tensor is dense and row-major; otherwise all strides are `STERNA_UNKNOWN_DIM`. For rank 0,
/// `dims` may be null. Dims behind the last one are 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_logical_tensor_init_with_dims(
    logical_tensor: *mut LogicalTensor,
    id: usize,
    data_type: DataType,
    ndims: i32,
    dims: *const i64,
    layout_type: LayoutType,
    property: TensorProperty,
) -> Status {
    ffi_guard(|| {
        // SAFETY: the caller promises that there are so many dims.
        let given = unsafe { array(dims, rank(ndims)?, "dims") }?;
        let mut strides = [UNKNOWN_DIM; MAX_RANK];
        if given.is_empty() {
            strides = [0; MAX_RANK];
        } else if layout_type == STRIDED && !given.contains(&UNKNOWN_DIM) {
            // The strides do not depend on the type, which may be invalid here.
            let dense = sterna::LogicalTensor::strided(id, sterna::DataType::Undef, given)?;
            strides = [0; MAX_RANK];
            strides[..given.len()].copy_from_slice(dense.strides().unwrap_or_default());
        }
        let mut dims = [0; MAX_RANK];
        dims[..given.len()].copy_from_slice(given);
        let layout = Layout { strides };
        let value = LogicalTensor { id, ndims, dims, data_type, property, layout_type, layout };
        // SAFETY: the caller promises that it can be written.
        unsafe { write(logical_tensor, value) }
    })
}

/// Describes a strided tensor of given dims and strides, which count elements and are not negative. For rank
/// 0 both may be null. Dims and strides behind the last one are 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_logical_tensor_init_with_strides(
    logical_tensor: *mut LogicalTensor,
    id: usize,
    data_type: DataType,
    ndims: i32,
    dims: *const i64,
    strides: *const i64,
    property: TensorProperty,
) -> Status {
    ffi_guard(|| {
        let rank = rank(ndims)?;
        // SAFETY: the caller promises that there are so many dims and strides.
        let (given_dims, given_strides) =
            unsafe { (array(dims, rank, "dims")?, array(strides, rank, "strides")?) };
        let (mut dims, mut strides) = ([0; MAX_RANK], [0; MAX_RANK]);
        dims[..rank].copy_from_slice(given_dims);
        strides[..rank].copy_from_slice(given_strides);
        let (layout_type, layout) = (STRIDED, Layout { strides });
        let value = LogicalTensor { id, ndims, dims, data_type, property, layout_type, layout };
        // SAFETY: the caller promises that it can be written.
        unsafe { write(logical_tensor, value) }
    })
}

/// Reads the bytes of memory that a tensor needs: the largest dim * stride, at least one element; 0 if any
/// dim is 0. It is SIZE_MAX if the layout is not strided or something is unknown, and 0 for a strided tensor
/// of unknown rank.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_logical_tensor_get_mem_size(
    logical_tensor: Option<&LogicalTensor>,
    size: Option<&mut MaybeUninit<usize>>,
) -> Status {
    ffi_guard(|| {
        let (logical_tensor, size) = (require(logical_tensor, "logical_tensor")?, require(size, "size")?);
        size.write(logical_tensor.to_core()?.memory_size());
        Ok(())
    })
}

/// Tells whether two descriptions are equal in id, type, rank, dims, layout, strides and property: 1 or 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_logical_tensor_is_equal(
    left: Option<&LogicalTensor>,
    right: Option<&LogicalTensor>,
    is_equal: Option<&mut MaybeUninit<u8>>,
) -> Status {
    ffi_guard(|| {
        let (left, right) = (require(left, "left")?.to_core()?, require(right, "right")?.to_core()?);
        require(is_equal, "is_equal")?.write(u8::from(left == right));
        Ok(())
    })
}
