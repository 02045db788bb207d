//! Pointwise kernels: the functions of [`types::function`](crate::types::function) and the conversions
//! between types, over a tile.

mod binary;
mod compare;
pub(in crate::kernels) mod conversion;
mod convert;
pub(in crate::kernels) mod doubles;
mod driver;
pub(in crate::kernels) mod half;
mod indices;
mod is_kept;
mod modulo;
mod nibbles;
mod sign;
pub(in crate::kernels) mod small;
#[cfg(test)]
mod tests;
mod two;
mod unary;

pub(crate) use binary::binary;
pub(crate) use compare::{classify, compare, logic, not};
pub(crate) use convert::{convert, round_to};
pub(crate) use driver::{Impls, Kernel1};
pub(crate) use indices::{Ramp, indices};
pub(crate) use is_kept::{IsKept, KeepParameters, LinearIndex, is_kept};
pub(crate) use nibbles::{Nibbles, nibbles};
pub(crate) use sign::sign;
pub(crate) use two::Kernel2;
pub(crate) use unary::unary;

pub(crate) use crate::types::function::Params;
