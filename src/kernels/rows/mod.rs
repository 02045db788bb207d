//! Kernels over rows: sums and extrema of rows, and ops whose results depend on a whole row.
//!
//! A row lies contiguous in memory, in f32, bf16 or f16; the caller packs rows that do not. Each kernel reads
//! and writes these types itself, and computes in f32 or f64. The order of additions depends on the length of
//! the row alone: not on the type in memory, on other rows, or on whether rows or columns of a tile are
//! summed. Groups of channels that lie beside each other are the exception: [`channels()`].

mod apart;
mod backward;
mod channels;
mod fold;
mod join_terms;
mod norm;
mod pass;
mod pool;
mod pool_backward;
mod pool_planes;
mod repeat;
mod scan;
mod short;
mod softmax;
mod steps;

pub(crate) use backward::{
    NormBackward, NormProducts, PreluBackward, PreluProducts, RowKernel, SoftMaxBackward, join_sums,
    log_softmax_backward, norm_backward, norm_products, prelu_backward, prelu_products, softmax_backward,
};
pub(crate) use channels::{ChannelKernels, ChannelMoments, ChannelNorm, channels, room_of_channels};
pub(crate) use fold::{COLUMNS, Fold, FoldKernels, LANES_OF_FOLD, fold};
pub(crate) use norm::{Norm, NormRows, join_moments, norm};
pub(crate) use pass::RowPass;
pub(crate) use pool::{FinishedRow, PoolKernels, RowAcross, RowsDown, TapsAcross, maxima, sums};
pub(crate) use pool_backward::{
    JoinedRow, LargestAcross, LargestDown, LargestKernels, NOWHERE, ScatteredRow, WindowsAcross, largest,
};
pub(crate) use pool_planes::{PooledPlanes, Strip, WindowsAlong, pool_planes};
pub(crate) use repeat::{RepeatRows, RepeatedRows, Repeats, repeat};
pub(crate) use scan::{Scan, ScanOrder, SumKernels, scan};
pub(crate) use softmax::{SoftMax, SoftMaxRows, join_exponentials, softmax};
