//! Post-ops: what primitives compute behind their result. No primitive here takes any; they are data.

use std::ffi::c_int;
use std::mem::MaybeUninit;

use sterna_capi::data_type;
use sterna_capi::ffi::{Fault, ffi_guard, require};
use sterna_capi::status::Status;

use crate::memory_desc::{EMPTY, MemoryDesc};
use crate::put;

/// As many as oneDNN takes.
const CAPACITY: usize = 32;

/// Numbers of `dnnl_primitive_kind_t`.
mod kind {
    use std::ffi::c_int;

    pub(super) const UNDEF: c_int = 0;
    pub(super) const SUM: c_int = 4;
    pub(super) const CONVOLUTION: c_int = 5;
    pub(super) const ELTWISE: c_int = 7;
    pub(super) const BINARY: c_int = 13;
    pub(super) const PRELU: c_int = 18;
}

/// Numbers of `dnnl_alg_kind_t`.
const ELTWISE: [std::ops::RangeInclusive<c_int>; 2] = [0x20..=0x34, 0x100..=0x106];
const BINARY: std::ops::RangeInclusive<c_int> = 0x1fff0..=0x1fffb;
const BINARY_SELECT: c_int = 0x1fffc;

#[derive(Debug, Clone, PartialEq)]
enum PostOp {
    Sum {
        scale: f32,
        zero_point: i32,
        data_type: c_int,
    },
    Eltwise {
        alg: c_int,
        alpha: f32,
        beta: f32,
    },
    Depthwise {
        types: [c_int; 3],
        kernel: i64,
        stride: i64,
        padding: i64,
    },
    /// The second and third operands; the third is empty unless the algorithm is select.
    Binary {
        alg: c_int,
        operands: Box<[MemoryDesc; 2]>,
    },
    Prelu {
        mask: c_int,
    },
}

impl PostOp {
    fn kind(&self) -> c_int {
        match self {
            Self::Sum { .. } => kind::SUM,
            Self::Eltwise { .. } => kind::ELTWISE,
            Self::Depthwise { .. } => kind::CONVOLUTION,
            Self::Binary { .. } => kind::BINARY,
            Self::Prelu { .. } => kind::PRELU,
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct PostOps(Vec<PostOp>);

impl PostOps {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn at(&self, index: c_int) -> Option<&PostOp> {
        self.0.get(usize::try_from(index).ok()?)
    }
}

/// Appends a post-op.
fn append(to: Option<&mut PostOps>, made: impl FnOnce() -> Result<PostOp, Fault>) -> Status {
    ffi_guard(|| {
        let PostOps(list) = require(to, "post_ops")?;
        let post_op = made()?;
        if list.len() >= CAPACITY {
            let status = sterna::Status::OutOfMemory as Status;
            return Err(Fault::of_status(status, format!("there are at most {CAPACITY} post-ops")));
        }
        list.push(post_op);
        Ok(())
    })
}

/// Reads a post-op of a kind; `read` finds it at the index, or fails.
fn read(
    from: Option<&PostOps>,
    index: c_int,
    kind: &str,
    read: impl FnOnce(&PostOp) -> Option<()>,
) -> Status {
    ffi_guard(|| {
        let found = require(from, "post_ops")?.at(index).and_then(read);
        found.ok_or_else(|| Fault::invalid_arguments(format!("post-op {index} is no {kind}")))
    })
}

#[unsafe(no_mangle)]
extern "C" fn dnnl_post_ops_create(post_ops: Option<&mut MaybeUninit<Box<PostOps>>>) -> Status {
    ffi_guard(|| {
        require(post_ops, "post_ops")?.write(Box::default());
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn dnnl_post_ops_clone(
    post_ops: Option<&mut MaybeUninit<Box<PostOps>>>,
    existing: Option<&PostOps>,
) -> Status {
    ffi_guard(|| {
        let to = require(post_ops, "post_ops")?;
        to.write(Box::new(require(existing, "existing_post_ops")?.clone()));
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn dnnl_post_ops_destroy(post_ops: Option<Box<PostOps>>) -> Status {
    ffi_guard(|| {
        drop(post_ops);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn dnnl_post_ops_len(post_ops: Option<&PostOps>) -> c_int {
    post_ops.map_or(0, |post_ops| post_ops.0.len() as c_int)
}

#[unsafe(no_mangle)]
extern "C" fn dnnl_post_ops_get_kind(post_ops: Option<&PostOps>, index: c_int) -> c_int {
    post_ops.and_then(|post_ops| post_ops.at(index)).map_or(kind::UNDEF, PostOp::kind)
}

#[unsafe(no_mangle)]
extern "C" fn dnnl_post_ops_append_sum(
    post_ops: Option<&mut PostOps>,
    scale: f32,
    zero_point: i32,
    data_type: c_int,
) -> Status {
    append(post_ops, || {
        data_type::from_code(data_type)?;
        Ok(PostOp::Sum { scale, zero_point, data_type })
    })
}

#[unsafe(no_mangle)]
extern "C" fn dnnl_post_ops_get_params_sum(
    post_ops: Option<&PostOps>,
    index: c_int,
    to_scale: Option<&mut MaybeUninit<f32>>,
    to_zero_point: Option<&mut MaybeUninit<i32>>,
    to_data_type: Option<&mut MaybeUninit<c_int>>,
) -> Status {
    read(post_ops, index, "sum", |post_op| {
        let PostOp::Sum { scale, zero_point, data_type } = *post_op else { return None };
        put(to_scale, scale);
        put(to_zero_point, zero_point);
        put(to_data_type, data_type);
        Some(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn dnnl_post_ops_append_eltwise(
    post_ops: Option<&mut PostOps>,
    alg: c_int,
    alpha: f32,
    beta: f32,
) -> Status {
    append(post_ops, || match ELTWISE.iter().any(|range| range.contains(&alg)) {
        true => Ok(PostOp::Eltwise { alg, alpha, beta }),
        false => Err(Fault::unknown("eltwise algorithm", alg)),
    })
}

#[unsafe(no_mangle)]
extern "C" fn dnnl_post_ops_get_params_eltwise(
    post_ops: Option<&PostOps>,
    index: c_int,
    to_alg: Option<&mut MaybeUninit<c_int>>,
    to_alpha: Option<&mut MaybeUninit<f32>>,
    to_beta: Option<&mut MaybeUninit<f32>>,
) -> Status {
    read(post_ops, index, "eltwise", |post_op| {
        let PostOp::Eltwise { alg, alpha, beta } = *post_op else { return None };
        put(to_alg, alg);
        put(to_alpha, alpha);
        put(to_beta, beta);
        Some(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn dnnl_post_ops_append_dw(
    post_ops: Option<&mut PostOps>,
    weights: c_int,
    bias: c_int,
    dst: c_int,
    kernel: i64,
    stride: i64,
    padding: i64,
) -> Status {
    append(post_ops, || {
        // A bias of type undef is none.
        [weights, bias, dst].into_iter().try_for_each(|code| data_type::from_code(code).map(drop))?;
        if kernel <= 0 || stride <= 0 || padding < 0 || padding >= kernel {
            return Err(Fault::invalid_arguments(format!(
                "a depthwise convolution of kernel {kernel}, stride {stride} and padding {padding}"
            )));
        }
        Ok(PostOp::Depthwise { types: [weights, bias, dst], kernel, stride, padding })
    })
}

#[unsafe(no_mangle)]
extern "C" fn dnnl_post_ops_get_params_dw(
    post_ops: Option<&PostOps>,
    index: c_int,
    to_weights: Option<&mut MaybeUninit<c_int>>,
    to_bias: Option<&mut MaybeUninit<c_int>>,
    to_dst: Option<&mut MaybeUninit<c_int>>,
    to_kernel: Option<&mut MaybeUninit<i64>>,
    to_stride: Option<&mut MaybeUninit<i64>>,
    to_padding: Option<&mut MaybeUninit<i64>>,
) -> Status {
    read(post_ops, index, "depthwise convolution", |post_op| {
        let PostOp::Depthwise { types: [weights, bias, dst], kernel, stride, padding } = *post_op else {
            return None;
        };
        put(to_weights, weights);
        put(to_bias, bias);
        put(to_dst, dst);
        put(to_kernel, kernel);
        put(to_stride, stride);
        put(to_padding, padding);
        Some(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn dnnl_post_ops_append_binary(
    post_ops: Option<&mut PostOps>,
    alg: c_int,
    src1: Option<&MemoryDesc>,
) -> Status {
    append(post_ops, || {
        let src1 = *require(src1, "src1_desc")?;
        match BINARY.contains(&alg) {
            true => Ok(PostOp::Binary { alg, operands: Box::new([src1, EMPTY]) }),
            false => Err(Fault::unknown("binary algorithm of two operands", alg)),
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn dnnl_post_ops_append_binary_v2(
    post_ops: Option<&mut PostOps>,
    alg: c_int,
    src1: Option<&MemoryDesc>,
    src2: Option<&MemoryDesc>,
) -> Status {
    append(post_ops, || {
        let src1 = *require(src1, "src1_desc")?;
        let src2 = match alg {
            BINARY_SELECT => *require(src2, "src2_desc")?,
            _ if BINARY.contains(&alg) => src2.copied().unwrap_or(EMPTY),
            _ => return Err(Fault::unknown("binary algorithm", alg)),
        };
        Ok(PostOp::Binary { alg, operands: Box::new([src1, src2]) })
    })
}

#[unsafe(no_mangle)]
extern "C" fn dnnl_post_ops_get_params_binary(
    post_ops: Option<&PostOps>,
    index: c_int,
    to_alg: Option<&mut MaybeUninit<c_int>>,
    to_src1: Option<&mut MaybeUninit<*const MemoryDesc>>,
) -> Status {
    dnnl_post_ops_get_params_binary_v2(post_ops, index, to_alg, to_src1, None)
}

#[unsafe(no_mangle)]
extern "C" fn dnnl_post_ops_get_params_binary_v2(
    post_ops: Option<&PostOps>,
    index: c_int,
    to_alg: Option<&mut MaybeUninit<c_int>>,
    to_src1: Option<&mut MaybeUninit<*const MemoryDesc>>,
    to_src2: Option<&mut MaybeUninit<*const MemoryDesc>>,
) -> Status {
    read(post_ops, index, "binary", |post_op| {
        let PostOp::Binary { alg, operands } = post_op else { return None };
        let [src1, src2] = &**operands;
        put(to_alg, *alg);
        put(to_src1, &raw const *src1);
        put(to_src2, &raw const *src2);
        Some(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn dnnl_post_ops_append_prelu(post_ops: Option<&mut PostOps>, mask: c_int) -> Status {
    append(post_ops, || match mask {
        ..0 => Err(Fault::unknown("mask", mask)),
        _ => Ok(PostOp::Prelu { mask }),
    })
}

#[unsafe(no_mangle)]
extern "C" fn dnnl_post_ops_get_params_prelu(
    post_ops: Option<&PostOps>,
    index: c_int,
    to_mask: Option<&mut MaybeUninit<c_int>>,
) -> Status {
    read(post_ops, index, "prelu", |post_op| {
        let PostOp::Prelu { mask } = *post_op else { return None };
        put(to_mask, mask);
        Some(())
    })
}
