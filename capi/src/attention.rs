//! Masked attention as ordinary ops of a graph.

use std::ffi::c_int;
use std::mem::{MaybeUninit, offset_of};

use sterna::{Attention, AttentionBackward, AttentionIds, Causal as CoreCausal, MaskTrue as CoreMaskTrue};

use crate::data_type::{self, DataType};
use crate::ffi::{Fault, ffi_guard, require};
use crate::graph::Graph;
use crate::logical_tensor::LogicalTensor;
use crate::options::{Options, aligned};
use crate::status::Status;

/// Where the diagonal of a causal mask lies: one of the `STERNA_CAUSAL_*` numbers.
///
/// A query i sees key j if j <= i + offset. At the top left the offset is 0; at the bottom right it is the
/// number of keys less the number of queries, as the graph describes them, which differ by at most 2^24; or
/// it is a tensor.
pub type Causal = c_int;

/// Every place of the diagonal with its name.
pub const CAUSALS: &[(Causal, &str)] =
    &[(NONE, "none"), (TOP_LEFT, "top_left"), (BOTTOM_RIGHT, "bottom_right"), (OFFSET, "offset")];

const NONE: Causal = 0;
const TOP_LEFT: Causal = 1;
const BOTTOM_RIGHT: Causal = 2;
const OFFSET: Causal = 3;

/// The meaning of true in a boolean mask for its pair of a query and a key: one of the `STERNA_MASK_TRUE_*`
/// numbers.
pub type MaskTrue = c_int;

/// Every meaning of true with its name.
pub const MASK_TRUES: &[(MaskTrue, &str)] = &[(KEEPS, "keeps"), (MASKS, "masks")];

const KEEPS: MaskTrue = 0;
const MASKS: MaskTrue = 1;

/// The options of `sterna_graph_add_attention`.
///
/// Set all bytes to 0, then `struct_size` to the size of the struct, then what is wanted: 0 and null are the
/// defaults. Later versions of the library may add fields at the end; `struct_size` tells how many the caller
/// knows.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct AttentionOptions {
    /// The size of this struct where the caller was compiled.
    pub struct_size: usize,
    /// The queries: dims [.., queries, d].
    pub q: *const LogicalTensor,
    /// The keys: dims [.., keys, d].
    pub k: *const LogicalTensor,
    /// The values: dims [.., keys, d_v].
    pub v: *const LogicalTensor,
    /// The result: dims [.., queries, d_v].
    pub dst: *const LogicalTensor,
    /// The id of the first op; the others follow it.
    pub first_op_id: usize,
    /// The id of the first tensor between the ops; the others follow it.
    pub first_tensor_id: usize,
    /// Numbers that are added to the scaled and capped scores; null for none.
    pub bias: *const LogicalTensor,
    /// Booleans that broadcast to the scores; null for none.
    pub mask: *const LogicalTensor,
    /// The offset of a causal mask, of type s32; null unless `causal` needs an offset.
    pub offset: *const LogicalTensor,
    /// Where maximum + ln(sum) of each query's scores goes, f32; null for nowhere.
    pub stats: *const LogicalTensor,
    /// The factor of the scores, a finite number; null for 1 / sqrt(d).
    pub scale: *const f32,
    /// Where the diagonal of a causal mask lies.
    pub causal: Causal,
    /// The meaning of true in `mask`.
    pub mask_true: MaskTrue,
    /// The number of positions, its own included, that a query sees back, and ahead unless it is causal: from
    /// 1 to 2^24; 0 for no window.
    pub window: i64,
    /// The number of query heads that share a head of keys and values, from 1 on; 0 for 1.
    pub groups: i64,
    /// The cap of the scaled scores, which become softcap * tanh(score / softcap): a finite
    /// number above 0; 0 for none.
    pub softcap: f32,
    /// Unless 0, `k` has dims [.., d, keys].
    pub k_transposed: c_int,
    /// Unless 0, a query all of whose keys are left out gets NaN instead of 0. One that has no keys to leave
    /// out gets 0 either way.
    pub nan_without_keys: c_int,
    /// The type of the scores, f32 or that of `q`; 0 for f32.
    pub score_type: DataType,
    /// A score without a key for each query, which takes a share of the weights: f32, bf16 or f16, of dims
    /// that broadcast to [.., queries, 1]; null for none.
    pub sinks: *const LogicalTensor,
    /// Of sequences that follow each other along the queries: the number of queries in front of each
    /// sequence, and of all, of type s32 and dims [sequences + 1]; null, as `cu_seqlens_kv`, if there is one
    /// sequence. A query sees keys of its own sequence alone; `causal`, which cannot be an offset, and
    /// `window` count from its start, or from its end.
    pub cu_seqlens_q: *const LogicalTensor,
    /// The same along the keys; null if they lie in pages.
    pub cu_seqlens_kv: *const LogicalTensor,
    /// The slopes of ALiBi, which times the distance of its key are taken off each score: f32, of dims that
    /// broadcast to the scores; null for none.
    pub alibi: *const LogicalTensor,
    /// The pages of each sequence in order, s32 or s64 of dims [batch, pages of each sequence]; null, as
    /// `lengths`, if keys and values lie in no pages. `k` and `v` then are a whole cache, of dims [pages,
    /// heads, rows of a page, d], and no partition copies what it reads of the cache.
    pub block_table: *const LogicalTensor,
    /// The number of keys of each sequence, s32 of one dim; at the bottom right, its last query sees the
    /// last of them.
    pub lengths: *const LogicalTensor,
    /// The scales of keys that are s8, u8, s4 or u4, f32 or of the type of `q`: dims are those of `k`, with a
    /// number of groups in place of d, each of which has a scale. Null if keys have the type of `q`. Beside
    /// `block_table` scales and zero points lie in pages of their own.
    pub k_scales: *const LogicalTensor,
    /// Their zero points, s8, u8, s4, u4 or s32 of the dims of the scales; null for 0.
    pub k_zero_points: *const LogicalTensor,
    /// The same of values.
    pub v_scales: *const LogicalTensor,
    /// Their zero points; null for 0.
    pub v_zero_points: *const LogicalTensor,
}

/// The options of `sterna_graph_add_attention_backward`.
///
/// Set all bytes to 0, then `struct_size` to the size of the struct, then what is wanted; later versions of
/// the library may add fields at the end.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct AttentionBackwardOptions {
    /// The size of this struct where the caller was compiled.
    pub struct_size: usize,
    /// The forward computation. With `stats`, its result and statistics are inputs of the gradients;
    /// otherwise the SoftMax is computed again. The ids of ops and tensors start where these options say.
    pub forward: *const AttentionOptions,
    /// The gradient of the result, of the type of `q`.
    pub d_dst: *const LogicalTensor,
    /// The gradient of the queries; null if it is not wanted.
    pub d_q: *const LogicalTensor,
    /// The gradient of the keys; null if it is not wanted.
    pub d_k: *const LogicalTensor,
    /// The gradient of the values; null if it is not wanted.
    pub d_v: *const LogicalTensor,
}

// SAFETY: the struct is `repr(C)`, begins with its size, and is of integers, floats and raw pointers.
unsafe impl Options for AttentionOptions {
    const MIN_SIZE: usize = offset_of!(Self, bias);
}

// SAFETY: as above.
unsafe impl Options for AttentionBackwardOptions {
    const MIN_SIZE: usize = offset_of!(Self, d_q);
}

/// The description at an address, if that is not null.
///
/// # Safety
///
/// Unless the address is null or not aligned, a description can be read there.
unsafe fn optional(
    at: *const LogicalTensor,
    name: &'static str,
) -> Result<Option<sterna::LogicalTensor>, Fault> {
    // SAFETY: as the caller promises.
    unsafe { aligned(at, name) }?.map(LogicalTensor::to_core).transpose()
}

impl AttentionBackwardOptions {
    /// The options for the library.
    ///
    /// # Safety
    ///
    /// Each pointer is null, or what its type says can be read there.
    unsafe fn to_core(self) -> Result<AttentionBackward, Fault> {
        // SAFETY: as the caller promises.
        unsafe {
            let forward = AttentionOptions::read(self.forward, "forward")?.to_core()?;
            let d_dst = require(optional(self.d_dst, "d_dst")?, "d_dst")?;
            let core = AttentionBackward::new(forward, d_dst).d_q(optional(self.d_q, "d_q")?);
            Ok(core.d_k(optional(self.d_k, "d_k")?).d_v(optional(self.d_v, "d_v")?))
        }
    }
}

impl AttentionOptions {
    /// The options for the library.
    ///
    /// # Safety
    ///
    /// Each pointer is null, or what its type says can be read there.
    unsafe fn to_core(self) -> Result<Attention, Fault> {
        // SAFETY: as the caller promises.
        let ([q, k, v], dst, set) =
            unsafe { (self.operands()?, require(optional(self.dst, "dst")?, "dst")?, self.setters()?) };
        Ok(set(Attention::new(q, k, v, dst)).ids_from(self.first_op_id, self.first_tensor_id))
    }

    /// The queries, the keys and the values.
    ///
    /// # Safety
    ///
    /// Each pointer is null, or what its type says can be read there.
    pub(crate) unsafe fn operands(&self) -> Result<[sterna::LogicalTensor; 3], Fault> {
        // SAFETY: as the caller promises.
        let required = |at, name| unsafe { optional(at, name) }.and_then(|tensor| require(tensor, name));
        Ok([required(self.q, "q")?, required(self.k, "k")?, required(self.v, "v")?])
    }

    /// Sets all options but the operands, the result and the first ids.
    ///
    /// # Safety
    ///
    /// Each pointer is null, or what its type says can be read there.
    pub(crate) unsafe fn setters(self) -> Result<impl FnOnce(Attention) -> Attention, Fault> {
        // SAFETY: as the caller promises.
        let optional = |at, name| unsafe { optional(at, name) };
        let says = match self.mask_true {
            KEEPS => CoreMaskTrue::Keeps,
            MASKS => CoreMaskTrue::Masks,
            other => return Err(Fault::unknown("meaning of true in a mask", other)),
        };
        let mask = optional(self.mask, "mask")?;
        if mask.is_none() && self.mask_true != KEEPS {
            return Err(Fault::invalid_arguments("`mask_true` is masks, but `mask` is null"));
        }
        let causal = self.diagonal(optional(self.offset, "offset")?)?;
        // SAFETY: as the caller promises.
        let scale = unsafe { aligned(self.scale, "scale") }?.copied();
        let (bias, sinks) = (optional(self.bias, "bias")?, optional(self.sinks, "sinks")?);
        let (stats, alibi) = (optional(self.stats, "stats")?, optional(self.alibi, "alibi")?);
        let sequences = [(self.cu_seqlens_q, "cu_seqlens_q"), (self.cu_seqlens_kv, "cu_seqlens_kv")];
        let [of_queries, of_keys] = sequences.map(|(at, name)| optional(at, name));
        let packed = match (of_queries?, of_keys?) {
            (None, None) => None,
            (Some(q), kv) if kv.is_some() || !self.block_table.is_null() => Some((q, kv)),
            _ => {
                let why = "one of `cu_seqlens_q` and `cu_seqlens_kv` is null, but the other is not";
                return Err(Fault::invalid_arguments(why));
            }
        };
        let paged = match (optional(self.block_table, "block_table")?, optional(self.lengths, "lengths")?) {
            (None, None) => None,
            (Some(table), Some(lengths)) => Some((table, lengths)),
            _ => {
                let why = "one of `block_table` and `lengths` is null, but the other is not";
                return Err(Fault::invalid_arguments(why));
            }
        };
        // SAFETY: as the caller promises.
        let scaled = unsafe { self.scaled() }?;
        let score_type = match self.score_type {
            0 => None,
            code => Some(data_type::from_code(code)?),
        };
        Ok(move |core: Attention| {
            let core = core
                .k_transposed(self.k_transposed != 0)
                .nan_without_keys(self.nan_without_keys != 0)
                .bias(bias)
                .sinks(sinks)
                .alibi(alibi)
                .stats(stats)
                .mask(mask, says)
                .causal(causal)
                .window(Some(self.window).filter(|&window| window != 0))
                .groups(Some(self.groups).filter(|&groups| groups != 0))
                .scale(scale)
                .softcap(Some(self.softcap).filter(|&cap| cap != 0.0));
            let core = match packed {
                Some((of_queries, Some(of_keys))) => core.packed(of_queries, of_keys),
                Some((of_queries, None)) => core.packed_queries(of_queries),
                None => core,
            };
            let core = match paged {
                Some((table, lengths)) => core.paged(table, lengths),
                None => core,
            };
            let core = scaled(core);
            match score_type {
                Some(score_type) => core.score_type(score_type),
                None => core,
            }
        })
    }

    /// Sets the scales and the zero points of keys and of values.
    ///
    /// # Safety
    ///
    /// Each pointer is null, or what its type says can be read there.
    unsafe fn scaled(&self) -> Result<impl FnOnce(Attention) -> Attention + use<>, Fault> {
        // SAFETY: as the caller promises.
        let optional = |at, name| unsafe { optional(at, name) };
        let of = |scales, name, zeros, name_of_zeros| match (
            optional(scales, name)?,
            optional(zeros, name_of_zeros)?,
        ) {
            (None, None) => Ok(None),
            (Some(scales), zeros) => Ok(Some((scales, zeros))),
            (None, Some(_)) => {
                let why = format!("`{name_of_zeros}` is given, but `{name}` is null");
                Err(Fault::invalid_arguments(why))
            }
        };
        let of_keys = of(self.k_scales, "k_scales", self.k_zero_points, "k_zero_points")?;
        let of_values = of(self.v_scales, "v_scales", self.v_zero_points, "v_zero_points")?;
        Ok(|core: Attention| {
            let core = match of_keys {
                Some((scales, zeros)) => core.quantized_keys(scales, zeros),
                None => core,
            };
            match of_values {
                Some((scales, zeros)) => core.quantized_values(scales, zeros),
                None => core,
            }
        })
    }

    /// Where the diagonal of a causal mask lies.
    fn diagonal(&self, offset: Option<sterna::LogicalTensor>) -> Result<Option<CoreCausal>, Fault> {
        if offset.is_some() && self.causal != OFFSET {
            let name = CAUSALS.iter().find(|(code, _)| *code == self.causal).map(|(_, name)| *name);
            let name = name.ok_or_else(|| Fault::unknown("place of a diagonal", self.causal))?;
            return Err(Fault::invalid_arguments(format!("`causal` is {name}, but `offset` is given")));
        }
        match self.causal {
            NONE => Ok(None),
            TOP_LEFT => Ok(Some(CoreCausal::TopLeft)),
            BOTTOM_RIGHT => Ok(Some(CoreCausal::BottomRight)),
            OFFSET => Ok(Some(CoreCausal::Offset(require(offset, "offset")?))),
            other => Err(Fault::unknown("place of a diagonal", other)),
        }
    }
}

/// Adds the ops of masked attention to a graph: MatMul, Multiply, Tanh, Add, GenIndex, comparisons, Select,
/// SoftMax, MatMul, as the options need them. They are ops like any other; constants are Fill ops. A query
/// that sees no key gets 0, unless `nan_without_keys` says otherwise.
///
/// `op_num` and `tensor_num`, which may be null, receive how many ids the ops and the tensors between them
/// have taken, from `first_op_id` and `first_tensor_id` on. `invalid_arguments` for an option that is out of
/// its range, contradicts another, or needs a size that is unknown; `unimplemented` for one that this version
/// does not know; `invalid_graph_op` if an op id is taken; `invalid_graph` after `sterna_graph_finalize`.
/// After an error the graph is as it was.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_graph_add_attention(
    graph: Option<&mut Graph>,
    options: *const AttentionOptions,
    op_num: Option<&mut MaybeUninit<usize>>,
    tensor_num: Option<&mut MaybeUninit<usize>>,
) -> Status {
    ffi_guard(|| {
        let graph = require(graph, "graph")?;
        // SAFETY: the caller promises a struct of the size that it says, and descriptions where it points.
        let options = unsafe { AttentionOptions::read(options, "options")?.to_core() }?;
        told(graph.core_mut().attention(&options)?, op_num, tensor_num);
        Ok(())
    })
}

/// Adds the ops of the gradients of masked attention to a graph: those of forward up to what enters the
/// SoftMax, the weights, and the products, sums and differences that lead to the gradients that are wanted.
///
/// `op_num` and `tensor_num` are those of `sterna_graph_add_attention`, as are the errors;
/// `invalid_arguments` also if no gradient is wanted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sterna_graph_add_attention_backward(
    graph: Option<&mut Graph>,
    options: *const AttentionBackwardOptions,
    op_num: Option<&mut MaybeUninit<usize>>,
    tensor_num: Option<&mut MaybeUninit<usize>>,
) -> Status {
    ffi_guard(|| {
        let graph = require(graph, "graph")?;
        // SAFETY: the caller promises structs of the sizes that they say, and descriptions where they point.
        let options = unsafe { AttentionBackwardOptions::read(options, "options")?.to_core() }?;
        told(graph.core_mut().attention_backward(&options)?, op_num, tensor_num);
        Ok(())
    })
}

/// Tells how many ids were taken.
fn told(
    ids: AttentionIds,
    op_num: Option<&mut MaybeUninit<usize>>,
    tensor_num: Option<&mut MaybeUninit<usize>>,
) {
    if let Some(op_num) = op_num {
        op_num.write(ids.ops.end.get() - ids.ops.start.get());
    }
    if let Some(tensor_num) = tensor_num {
        tensor_num.write(ids.tensors.end.get() - ids.tensors.start.get());
    }
}
