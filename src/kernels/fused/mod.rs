//! Register fusion: several pointwise steps run as one kernel, block by block, and hand values on in
//! registers.
//!
//! A [`FusedProgram`] is a list of stages. A stage is a function that takes the state (a block of elements
//! and a mask with a bit for each) in vector registers, does one thing to it, and calls the next stage last,
//! which the compiler turns into a jump. Skia's raster pipeline is built the same way. A stage costs less
//! than a step over a tile, and beyond the caches the arithmetic of all stages overlaps with waiting for
//! memory (decision: stage-cost).
//!
//! Eight vector registers hold one block, and two general ones the masks for it. A block has 64 elements, of
//! up to 8 bytes at level Avx512 and up to 4 bytes at level Avx2; at level Neon it has 32, of up to 4 bytes.
//! Other values that are needed again are spilled to the thread's scratch, block by block. Level Portable has
//! no vectors to pass, so it has no register fusion.

mod program;
mod shells;
mod stage;
mod stages;

pub(crate) use program::{FusedProgram, Location, ProgramOperand, StageUse};
pub(crate) use shells::block_len;
pub(crate) use stage::{Stage, Stages, StoreKind};
pub(crate) use stages::{
    canonicalise, load, load_mask, logic_masks, prefetch, save_mask, select, spill, spill_mask, swap_masks,
};
pub(in crate::kernels) use stages::{logic, map1, map2, narrowing1, not, predicate1, predicate2};
