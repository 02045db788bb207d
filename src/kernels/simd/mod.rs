//! Vectors beyond plain Rust: operations on lanes, on blocks with their masks, on the ends of rows, and
//! non-temporal stores.
#![cfg_attr(
    not(any(target_arch = "x86_64", target_arch = "aarch64")),
    allow(dead_code, unused_imports, reason = "other machines have level Portable alone")
)]

mod blocks;
mod stores;
mod vector512;
mod vectors;

#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
pub(in crate::kernels) use blocks::write_part;
pub(in crate::kernels) use blocks::{BlockBuffer, Pod, read_part};
pub(in crate::kernels) use stores::CacheLine;
pub(crate) use stores::StoreFence;
pub(in crate::kernels) use vector512::LaneBits;
#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
pub(in crate::kernels) use vector512::{Vector512, mask_of_first};
pub(in crate::kernels) use vectors::Vectors;
