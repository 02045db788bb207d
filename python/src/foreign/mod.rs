//! Arrays of others as operands: NumPy's at their address, anything with DLPack by its capsule, and all else
//! as NumPy makes it an array. The only code here that is not safe.

mod calls;
mod dlpack;
mod numpy;
mod operand;
mod read;
mod scalar;

pub(crate) use self::calls::{copied, execute, execute_at, mask_tiles, sampled, write_all, write_to};
pub(crate) use self::numpy::{class_of, new_array, owned_array, type_of_numpy};
pub(crate) use self::operand::{Access, Operand};
pub(crate) use self::scalar::Number;
