//! Data types: codes, sizes, and their Rust types.
#![allow(unsafe_code, reason = "`Element` promises facts about memory that the compiler cannot check")]

use std::slice;

use super::codes::coded_enum;

coded_enum! {
    /// The type of a tensor's elements.
    ///
    /// Codes below `0x100` are those of oneDNN's `dnnl_data_type_t`; the others are Sterna's own.
    ///
    /// ```
    /// use sterna::DataType;
    /// assert_eq!(DataType::Bf16.name(), "bf16");
    /// assert_eq!("bf16".parse(), Ok(DataType::Bf16));
    /// assert_eq!(DataType::from_code(2), Some(DataType::Bf16));
    /// assert!(DataType::S4.bits() == 4 && !DataType::S4.is_whole());
    /// ```
    pub enum DataType: "data type" {
        /// No type: one that inference fills in.
        Undef = 0 => "undef",
        /// IEEE 754 half precision: 5 bits of exponent, 10 of fraction; [`half::f16`] in Rust.
        #[doc(alias("half", "float16", "fp16"))]
        F16 = 1 => "f16",
        /// The upper half of an f32: 8 bits of exponent, 7 of fraction; [`half::bf16`] in Rust.
        #[doc(alias("bfloat16"))]
        Bf16 = 2 => "bf16",
        /// IEEE 754 single precision.
        #[doc(alias("float", "float32", "fp32"))]
        F32 = 3 => "f32",
        /// A signed integer of 32 bits.
        #[doc(alias("int32", "i32", "int"))]
        S32 = 4 => "s32",
        /// A signed integer of 8 bits.
        #[doc(alias("int8", "i8"))]
        S8 = 5 => "s8",
        /// An unsigned integer of 8 bits.
        #[doc(alias("uint8", "byte"))]
        U8 = 6 => "u8",
        /// IEEE 754 double precision.
        #[doc(alias("double", "float64"))]
        F64 = 7 => "f64",
        /// One byte an element, true if it is not zero.
        #[doc(alias("bool", "mask"))]
        Boolean = 8 => "boolean",
        /// Floating point of 8 bits, 5 of exponent and 2 of fraction, with infinities; [`F8E5m2`] in Rust.
        #[doc(alias("float8_e5m2", "fp8"))]
        F8E5m2 = 9 => "f8_e5m2",
        /// Floating point of 8 bits, 4 of exponent and 3 of fraction, without infinities; [`F8E4m3`] in Rust.
        #[doc(alias("float8_e4m3fn", "fp8"))]
        F8E4m3 = 10 => "f8_e4m3",
        /// Two elements a byte, the first in its low half. `DynamicDequantize` takes it, and `PagedLoad` and
        /// `CacheStore` move it.
        #[doc(alias("int4"))]
        S4 = 11 => "s4",
        /// Two elements a byte, the first in its low half. `DynamicDequantize` takes it, and `PagedLoad` and
        /// `CacheStore` move it.
        #[doc(alias("uint4"))]
        U4 = 12 => "u4",
        /// Known by name; no op runs on it.
        #[doc(alias("mxfp8", "scale"))]
        E8m0 = 13 => "e8m0",
        /// Known by name; no op runs on it.
        F4E2m1 = 14 => "f4_e2m1",
        /// Known by name; no op runs on it.
        F4E3m0 = 15 => "f4_e3m0",
        /// A signed integer of 64 bits.
        #[doc(alias("int64", "i64", "long"))]
        S64 = 16 => "s64",
        /// A signed integer of 16 bits, which oneDNN lacks.
        #[doc(alias("int16", "i16"))]
        S16 = 0x101 => "s16",
        /// An unsigned integer of 16 bits, which oneDNN lacks.
        #[doc(alias("uint16"))]
        U16 = 0x102 => "u16",
        /// An unsigned integer of 32 bits, which oneDNN lacks.
        #[doc(alias("uint32"))]
        U32 = 0x103 => "u32",
        /// An unsigned integer of 64 bits, which oneDNN lacks.
        #[doc(alias("uint64"))]
        U64 = 0x104 => "u64",
    }
}

impl DataType {
    /// Every type whose elements are whole bytes: all but `undef`, the 4-bit and the scale types. `Select`
    /// moves these types.
    pub const WHOLE: &'static [DataType] = &[
        Self::F16,
        Self::Bf16,
        Self::F32,
        Self::S32,
        Self::S8,
        Self::U8,
        Self::F64,
        Self::Boolean,
        Self::F8E5m2,
        Self::F8E4m3,
        Self::S64,
        Self::S16,
        Self::U16,
        Self::U32,
        Self::U64,
    ];

    /// The types that ops compare, convert and fill with: integers of whole bytes, and floating-point types
    /// of 16 bits or more.
    pub const NUMERIC: &'static [DataType] = &[
        Self::F32,
        Self::Bf16,
        Self::F16,
        Self::F64,
        Self::S32,
        Self::S64,
        Self::S8,
        Self::S16,
        Self::U8,
        Self::U16,
        Self::U32,
        Self::U64,
    ];

    /// Bits of one element; 0 for `undef`.
    #[must_use]
    pub const fn bits(self) -> usize {
        match self {
            Self::Undef => 0,
            Self::S4 | Self::U4 | Self::F4E2m1 | Self::F4E3m0 => 4,
            Self::S8 | Self::U8 | Self::Boolean | Self::F8E5m2 | Self::F8E4m3 | Self::E8m0 => 8,
            Self::F16 | Self::Bf16 | Self::S16 | Self::U16 => 16,
            Self::F32 | Self::S32 | Self::U32 => 32,
            Self::F64 | Self::S64 | Self::U64 => 64,
        }
    }

    /// Bytes of one element; `None` for `undef` and the 4-bit types.
    ///
    /// ```
    /// use sterna::DataType;
    /// assert_eq!(DataType::Bf16.size(), Some(2));
    /// assert_eq!(DataType::S4.size(), None);
    /// ```
    #[must_use]
    pub const fn size(self) -> Option<usize> {
        match self.bits() {
            0 | 4 => None,
            bits => Some(bits / 8),
        }
    }

    /// True if the type is in [`DataType::WHOLE`].
    #[must_use]
    pub fn is_whole(self) -> bool {
        Self::WHOLE.contains(&self)
    }
}

/// A Rust type whose values are the elements of a tensor of one [`DataType`].
///
/// # Safety
///
/// Every bit pattern of the type is a valid value, it has no padding, and its size is that of `DATA_TYPE`.
///
/// ```
/// use sterna::{DataType, Element, F8E4m3};
/// fn type_of<T: Element>(_: &[T]) -> DataType {
///     T::DATA_TYPE
/// }
/// assert_eq!(type_of(&[1i64]), DataType::S64);
/// assert_eq!(type_of(&[F8E4m3(0x38)]), DataType::F8E4m3);
/// ```
pub unsafe trait Element: Copy + Send + Sync + 'static {
    /// The data type of this Rust type.
    const DATA_TYPE: DataType;
}

/// A Rust type that can be read as the elements of a tensor: every [`Element`], and `bool`.
///
/// `bool` is not an [`Element`], because a kernel may write any byte to a boolean; outputs of type `boolean`
/// are [`Bool8`].
///
/// # Safety
///
/// The type has no padding and its size is that of `DATA_TYPE`.
///
/// ```
/// use sterna::{DataType, InputElement};
/// assert_eq!(<bool as InputElement>::DATA_TYPE, DataType::Boolean);
/// ```
pub unsafe trait InputElement: Copy + Send + Sync + 'static {
    /// The data type of this Rust type.
    const DATA_TYPE: DataType;
}

/// The bytes of elements.
pub(crate) fn bytes_of<T: InputElement>(elements: &[T]) -> &[u8] {
    // SAFETY: elements have no padding, so each of their bytes can be read.
    unsafe { slice::from_raw_parts(elements.as_ptr().cast(), size_of_val(elements)) }
}

/// The element with these bytes; `None` if their number is not its size.
pub(crate) fn element_of<T: Element>(bytes: &[u8]) -> Option<T> {
    // SAFETY: this many bytes can be read, and every bit pattern is an element.
    (bytes.len() == size_of::<T>()).then(|| unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}

// SAFETY: the requirements of `Element` include those of `InputElement`.
unsafe impl<T: Element> InputElement for T {
    const DATA_TYPE: DataType = T::DATA_TYPE;
}

// SAFETY: a `bool` is one byte, 0 or 1, without padding.
unsafe impl InputElement for bool {
    const DATA_TYPE: DataType = DataType::Boolean;
}

/// An element of a boolean tensor: any byte, true if it is not zero.
///
/// ```
/// use sterna::Bool8;
/// assert!(Bool8(7).get() && !Bool8::from(false).get());
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Bool8(pub u8);

impl Bool8 {
    /// The truth value of the byte: true unless it is 0.
    #[must_use]
    pub const fn get(self) -> bool {
        self.0 != 0
    }
}

impl From<bool> for Bool8 {
    fn from(value: bool) -> Self {
        Self(u8::from(value))
    }
}

/// An 8-bit float with five exponent bits, as its bits.
///
/// ```
/// use sterna::F8E5m2;
/// let one = F8E5m2(0x3c);
/// assert_eq!(one.0, 15 << 2); // an exponent of 15 less the bias of 15, and no mantissa
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct F8E5m2(pub u8);

/// An 8-bit float with four exponent bits, as its bits.
///
/// ```
/// use sterna::F8E4m3;
/// let one = F8E4m3(0x38);
/// assert_eq!(one.0, 7 << 3); // an exponent of 7 less the bias of 7, and no mantissa
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct F8E4m3(pub u8);

macro_rules! elements {
    ($( $Type:ty => $Variant:ident, )*) => {
        $(
            // SAFETY: a plain number, or a transparent wrapper of one: all bit patterns are valid, there is
            // no padding, and the assertion below compares the sizes.
            unsafe impl Element for $Type {
                const DATA_TYPE: DataType = DataType::$Variant;
            }
            const _: () = assert!(8 * size_of::<$Type>() == DataType::$Variant.bits());
        )*
    };
}

elements! {
    half::f16 => F16,
    half::bf16 => Bf16,
    f32 => F32,
    f64 => F64,
    i8 => S8,
    i16 => S16,
    i32 => S32,
    i64 => S64,
    u8 => U8,
    u16 => U16,
    u32 => U32,
    u64 => U64,
    Bool8 => Boolean,
    F8E5m2 => F8E5m2,
    F8E4m3 => F8E4m3,
}
