//! Constants of a model: elements of their own, or those that the file holds.

use bytes::Bytes;
use sterna::reference::Value;
use sterna::{DataType, Dims, Element, InputElement, TensorFault};

use crate::mapped_file::MappedFile;
use crate::sizes::{room, stored_bytes};

/// A constant of a model: its elements dense, in row-major order, in the byte order of the machine.
///
/// The elements are those of the file, as it lies in memory, or of the constant itself:
///
/// | constant | whose elements |
/// |---|---|
/// | of a mapped file, whose elements have whole bytes | the mapping's |
/// | of bytes in memory, or of a file that is read | its own, or shared with the model |
/// | computed when the model is read | its own |
///
/// Those of a file may stand at any address, at no multiple of their size as well.
///
/// A mapping lives as long as the last constant that needs it. A clone shares the elements, and so does a
/// constant of the same elements in another shape. Constants are equal where type, dims and all bits are.
///
/// ```
/// use sterna_import::Constant;
/// use sterna::reference::Value;
/// let constant = Constant::from(Value::from_slice(&[2], &[1.0f32, 2.0])?);
/// assert_eq!((constant.dims(), constant.is_mapped()), (&[2][..], false));
/// assert_eq!(constant.elements::<f32>(), Some(vec![1.0, 2.0]));
/// # Ok::<(), sterna::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Constant {
    data_type: DataType,
    dims: Dims,
    elements: Elements,
}

#[derive(Debug, Clone)]
enum Elements {
    Own(Value),
    /// Part of a file in memory, with the mapping if it is mapped.
    Part(Bytes, Option<MappedFile>),
}

/// The bytes of its elements, which a session takes without a copy.
impl AsRef<[u8]> for Constant {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}

impl Constant {
    /// A constant of the bytes of its elements.
    pub(crate) fn new(data_type: DataType, dims: &[i64], bytes: Vec<u8>) -> Result<Self, sterna::Error> {
        Value::new(data_type, dims, bytes).map(Self::from)
    }

    /// A constant of elements in row-major order.
    pub(crate) fn from_slice<T: InputElement>(dims: &[i64], elements: &[T]) -> Result<Self, sterna::Error> {
        Value::from_slice(dims, elements).map(Self::from)
    }

    /// A constant whose elements stay where a file holds them in little-endian order. The caller has found
    /// that they are as many bytes as type and dims ask for. `None` where they cannot stay, because a
    /// constant has them in another form.
    pub(crate) fn part(
        data_type: DataType,
        dims: &[i64],
        bytes: &Bytes,
        mapping: Option<&MappedFile>,
    ) -> Option<Self> {
        let size = data_type.size()?;
        let is_native = cfg!(target_endian = "little") || size == 1;
        let is_part = is_native && !bytes.is_empty();
        is_part.then(|| Self {
            data_type,
            dims: dims.into(),
            elements: Elements::Part(bytes.clone(), mapping.cloned()),
        })
    }

    /// The type of the elements.
    ///
    /// ```
    /// # use sterna_import::Constant;
    /// # use sterna::reference::Value;
    /// let constant = Constant::from(Value::from_slice(&[2], &[1i32, 2])?);
    /// assert_eq!(constant.data_type(), sterna::DataType::S32);
    /// # Ok::<(), sterna::Error>(())
    /// ```
    #[must_use]
    pub fn data_type(&self) -> DataType {
        self.data_type
    }

    /// The dims.
    ///
    /// ```
    /// # use sterna_import::Constant;
    /// # use sterna::reference::Value;
    /// let constant = Constant::from(Value::from_slice(&[2], &[1i32, 2])?);
    /// assert_eq!(constant.dims(), [2]);
    /// # Ok::<(), sterna::Error>(())
    /// ```
    #[must_use]
    pub fn dims(&self) -> &[i64] {
        &self.dims
    }

    /// The bytes of the elements in row-major order, at any address. Those of a file that is mapped are read
    /// from it at their first use.
    ///
    /// ```
    /// # use sterna_import::Constant;
    /// # use sterna::reference::Value;
    /// let constant = Constant::from(Value::from_slice(&[2], &[1i32, 2])?);
    /// assert_eq!(constant.bytes().len(), 8);
    /// # Ok::<(), sterna::Error>(())
    /// ```
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match &self.elements {
            Elements::Own(value) => value.bytes(),
            Elements::Part(bytes, _) => bytes,
        }
    }

    /// The elements in row-major order; `None` where `T` stands for another type.
    ///
    /// ```
    /// # use sterna_import::Constant;
    /// # use sterna::reference::Value;
    /// let constant = Constant::from(Value::from_slice(&[2], &[1i32, 2])?);
    /// assert_eq!((constant.elements(), constant.elements::<f32>()), (Some(vec![1i32, 2]), None));
    /// # Ok::<(), sterna::Error>(())
    /// ```
    #[must_use]
    pub fn elements<T: Element>(&self) -> Option<Vec<T>> {
        match &self.elements {
            Elements::Own(value) if value.data_type() == self.data_type => value.elements(),
            _ => self.to_value().ok()?.elements(),
        }
    }

    /// True if the elements are those of a file that is mapped, which must stay as it is.
    ///
    /// ```
    /// # use sterna_import::Constant;
    /// # use sterna::reference::Value;
    /// let constant = Constant::from(Value::from_slice(&[2], &[1i32, 2])?);
    /// assert!(!constant.is_mapped());
    /// # Ok::<(), sterna::Error>(())
    /// ```
    #[must_use]
    pub fn is_mapped(&self) -> bool {
        matches!(self.elements, Elements::Part(_, Some(_)))
    }

    /// Lets the system have the memory of elements of a mapped file, which it reads again if they are looked
    /// at.
    pub(crate) fn release(&self) {
        if let Elements::Part(bytes, Some(mapping)) = &self.elements {
            mapping.release(bytes);
        }
    }

    /// The constant as a value of the interpreter, which shares elements that are the constant's own and have
    /// this shape, and copies all others.
    ///
    /// # Errors
    ///
    /// [`sterna::Error::OutOfMemory`].
    ///
    /// ```
    /// # use sterna_import::Constant;
    /// # use sterna::reference::Value;
    /// let constant = Constant::from(Value::from_slice(&[2], &[1i32, 2])?);
    /// assert_eq!(constant.to_value()?.dims(), [2]);
    /// # Ok::<(), sterna::Error>(())
    /// ```
    pub fn to_value(&self) -> Result<Value, sterna::Error> {
        match &self.elements {
            Elements::Own(value) if (value.data_type(), value.dims()) == (self.data_type, self.dims()) => {
                Ok(value.clone())
            }
            _ => {
                let mut bytes = room(self.bytes().len())?;
                bytes.extend_from_slice(self.bytes());
                Value::new(self.data_type, &self.dims, bytes)
            }
        }
    }

    /// The same elements in another shape of as many.
    pub(crate) fn reshaped(&self, dims: &[i64]) -> Result<Self, sterna::Error> {
        self.retyped(self.data_type, dims)
    }

    /// The places from a start to an end of the first dim, of elements of whole bytes. Those that are not the
    /// constant's own stay where they are.
    pub(crate) fn rows(&self, [start, end]: [i64; 2]) -> Result<Self, sterna::Error> {
        let mut dims = self.dims.clone();
        let row = self.bytes().len() / dims[0].max(1) as usize;
        dims[0] = end - start;
        let range = start as usize * row..end as usize * row;
        let elements = match &self.elements {
            Elements::Part(bytes, mapping) if !range.is_empty() => {
                Elements::Part(bytes.slice(range), mapping.clone())
            }
            _ => {
                let mut own = room(range.len())?;
                own.extend_from_slice(&self.bytes()[range]);
                return Self::new(self.data_type, &dims, own);
            }
        };
        Ok(Self { data_type: self.data_type, dims, elements })
    }

    /// The same bytes as elements of another type, which takes no larger ones.
    pub(crate) fn retyped(&self, data_type: DataType, dims: &[i64]) -> Result<Self, sterna::Error> {
        let (needed, given) = (stored_bytes(data_type, dims)?, self.bytes().len());
        if needed != given {
            return Err(sterna::Error::Value(TensorFault::ByteCount { needed, given }));
        }
        Ok(Self { data_type, dims: dims.into(), elements: self.elements.clone() })
    }
}

impl From<Value> for Constant {
    fn from(value: Value) -> Self {
        let (data_type, dims) = (value.data_type(), value.dims().into());
        Self { data_type, dims, elements: Elements::Own(value) }
    }
}

impl PartialEq for Constant {
    fn eq(&self, other: &Self) -> bool {
        (self.data_type, self.dims(), self.bytes()) == (other.data_type, other.dims(), other.bytes())
    }
}

impl PartialEq<Value> for Constant {
    fn eq(&self, other: &Value) -> bool {
        (self.data_type, self.dims(), self.bytes()) == (other.data_type(), other.dims(), other.bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_stay_where_they_are_at_any_address() {
        let numbers = [2.0f32, 3.0];
        for first in 0..8 {
            let before = vec![0; first];
            let bytes = Bytes::from([before, numbers.map(f32::to_le_bytes).concat()].concat());
            let part = bytes.slice(first..);
            let constant = Constant::part(DataType::F32, &[2], &part, None);
            let constant = constant.filter(|_| cfg!(target_endian = "little"));
            if let Some(constant) = constant {
                assert_eq!(constant.bytes().as_ptr(), part.as_ptr());
                constant.release();
                assert_eq!(constant.elements(), Some(numbers.to_vec()), "{first} bytes behind");
            }
        }
        // Half a byte has no address.
        assert!(Constant::part(DataType::U4, &[16], &Bytes::from_static(&[0; 8]), None).is_none());
    }

    #[test]
    fn other_shapes_share_the_elements() {
        let constant = Constant::from_slice(&[2, 3], &[1u8, 2, 3, 4, 5, 6]).unwrap();
        let other = constant.reshaped(&[3, 2]).unwrap();
        assert!(constant.reshaped(&[4, 2]).is_err());
        assert_eq!(other.bytes().as_ptr(), constant.bytes().as_ptr());
        assert_eq!((other.dims(), other.to_value().unwrap().dims()), (&[3, 2][..], &[3, 2][..]));
        let bits = constant.retyped(DataType::U4, &[4, 3]).unwrap();
        assert_eq!(
            (bits.bytes().as_ptr(), bits.to_value().unwrap().data_type()),
            (constant.bytes().as_ptr(), DataType::U4)
        );
        assert_eq!(bits.elements::<u8>(), None);
        assert!(other != constant && other == Value::from_slice(&[3, 2], &[1u8, 2, 3, 4, 5, 6]).unwrap());
    }
}
