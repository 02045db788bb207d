//! Primitive attributes: kept as they are set. A reorder takes scales and zero points; any other attribute
//! that would change what it computes makes it unimplemented.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::mem::MaybeUninit;

use sterna_capi::data_type;
use sterna_capi::ffi::{Fault, array, ffi_guard, require};
use sterna_capi::fpmath_mode;
use sterna_capi::status::Status;

use crate::memory_desc::{EMPTY, MAX_NDIMS, MemoryDesc};
use crate::post_ops::PostOps;
use crate::put;

pub(crate) const F32: c_int = sterna::DataType::F32.code() as c_int;
const S32: c_int = sterna::DataType::S32.code() as c_int;

/// `dnnl_quantization_mode_static_sazp`: the scales are data.
pub(crate) const STATIC: c_int = 1;

/// Scales, zero points or reductions of one argument.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Quantization {
    /// The axes along which they differ, a bit each.
    pub(crate) mask: c_int,
    /// How many neighbours share one, along the last dims; empty if all along an axis of the mask differ.
    pub(crate) groups: Vec<i64>,
    pub(crate) data_type: c_int,
    pub(crate) is_on_host: bool,
    pub(crate) mode: c_int,
}

#[derive(Debug, Clone, PartialEq)]
struct Dropout {
    mask: MemoryDesc,
    seed_type: c_int,
    uses_offset: c_int,
    uses_host_scalars: c_int,
}

/// Scales of the weights of a recurrent network.
#[derive(Debug, Clone, Default, PartialEq)]
struct RnnScales {
    mask: c_int,
    scales: Vec<f32>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Attr {
    fpmath_mode: c_int,
    apply_to_int: bool,
    deterministic: bool,
    accumulation_mode: c_int,
    scratchpad_mode: c_int,
    pub(crate) scales: BTreeMap<c_int, Quantization>,
    pub(crate) zero_points: BTreeMap<c_int, Quantization>,
    reductions: BTreeMap<c_int, Quantization>,
    rounding: BTreeMap<c_int, c_int>,
    post_ops: PostOps,
    dropout: Dropout,
    rnn_data: (f32, f32),
    rnn_weights: RnnScales,
    rnn_projection: RnnScales,
}

impl Default for Attr {
    fn default() -> Self {
        let rnn = RnnScales { mask: 0, scales: vec![1.0] };
        Self {
            fpmath_mode: 0,
            apply_to_int: false,
            deterministic: false,
            accumulation_mode: 0,
            scratchpad_mode: 0,
            scales: BTreeMap::new(),
            zero_points: BTreeMap::new(),
            reductions: BTreeMap::new(),
            rounding: BTreeMap::new(),
            post_ops: PostOps::default(),
            dropout: Dropout { mask: EMPTY, seed_type: S32, uses_offset: 0, uses_host_scalars: 0 },
            rnn_data: (1.0, 0.0),
            rnn_weights: rnn.clone(),
            rnn_projection: rnn,
        }
    }
}

impl Attr {
    /// True if no attribute but scales and zero points changes the result.
    pub(crate) fn is_quantization_alone(&self) -> bool {
        let default = Self::default();
        self.reductions.is_empty()
            && self.rounding.values().all(|&mode| mode == 0)
            && self.post_ops.is_empty()
            && self.dropout == default.dropout
            && self.rnn_data == default.rnn_data
            && self.rnn_weights == default.rnn_weights
            && self.rnn_projection == default.rnn_projection
    }
}

/// Runs a setter on the attributes of the caller.
fn set(attr: Option<&mut Attr>, set: impl FnOnce(&mut Attr) -> Result<(), Fault>) -> Status {
    ffi_guard(|| set(require(attr, "attr")?))
}

/// Hands a value of the caller's attributes out.
fn get<T>(attr: Option<&Attr>, to: Option<&mut MaybeUninit<T>>, value: impl FnOnce(&Attr) -> T) -> Status {
    ffi_guard(|| {
        let attr = require(attr, "attr")?;
        require(to, "value")?.write(value(attr));
        Ok(())
    })
}

/// A number among those of an enumeration.
fn known(number: c_int, all: std::ops::RangeInclusive<c_int>, what: &str) -> Result<c_int, Fault> {
    all.contains(&number).then_some(number).ok_or_else(|| Fault::unknown(what, number))
}

#[unsafe(no_mangle)]
extern "C" fn dnnl_primitive_attr_create(attr: Option<&mut MaybeUninit<Box<Attr>>>) -> Status {
    ffi_guard(|| {
        let made = Attr { fpmath_mode: fpmath_mode::default(), ..Attr::default() };
        require(attr, "attr")?.write(Box::new(made));
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn dnnl_primitive_attr_clone(
    attr: Option<&mut MaybeUninit<Box<Attr>>>,
    existing: Option<&Attr>,
) -> Status {
    ffi_guard(|| {
        let to = require(attr, "attr")?;
        to.write(Box::new(require(existing, "existing_attr")?.clone()));
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn dnnl_primitive_attr_destroy(attr: Option<Box<Attr>>) -> Status {
    ffi_guard(|| {
        drop(attr);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn dnnl_primitive_attr_get_fpmath_mode(
    attr: Option<&Attr>,
    mode: Option<&mut MaybeUninit<c_int>>,
) -> Status {
    get(attr, mode, |attr| attr.fpmath_mode)
}

#[unsafe(no_mangle)]
extern "C" fn dnnl_primitive_attr_set_fpmath_mode(attr: Option<&mut Attr>, mode: c_int) -> Status {
    dnnl_primitive_attr_set_fpmath_mode_v2(attr, mode, 0)
}

/// Either value may be null.
#[unsafe(no_mangle)]
extern "C" fn dnnl_primitive_attr_get_fpmath_mode_v2(
    attr: Option<&Attr>,
    mode: Option<&mut MaybeUninit<c_int>>,
    apply_to_int: Option<&mut MaybeUninit<c_int>>,
) -> Status {
    ffi_guard(|| {
        let attr = require(attr, "attr")?;
        put(mode, attr.fpmath_mode);
        put(apply_to_int, attr.apply_to_int.into());
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn dnnl_primitive_attr_set_fpmath_mode_v2(
    attr: Option<&mut Attr>,
    mode: c_int,
    apply_to_int: c_int,
) -> Status {
    set(attr, |attr| {
        attr.fpmath_mode = known(mode, 0..=4, "floating-point math mode")?;
        attr.apply_to_int = apply_to_int != 0;
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn dnnl_primitive_attr_get_deterministic(
    attr: Option<&Attr>,
    value: Option<&mut MaybeUninit<c_int>>,
) -> Status {
    get(attr, value, |attr| attr.deterministic.into())
}

#[unsafe(no_mangle)]
extern "C" fn dnnl_primitive_attr_set_deterministic(attr: Option<&mut Attr>, value: c_int) -> Status {
    set(attr, |attr| {
        attr.deterministic = value != 0;
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn dnnl_primitive_attr_get_accumulation_mode(
    attr: Option<&Attr>,
    mode: Option<&mut MaybeUninit<c_int>>,
) -> Status {
    get(attr, mode, |attr| attr.accumulation_mode)
}

#[unsafe(no_mangle)]
extern "C" fn dnnl_primitive_attr_set_accumulation_mode(attr: Option<&mut Attr>, mode: c_int) -> Status {
    set(attr, |attr| {
        attr.accumulation_mode = known(mode, 0..=5, "accumulation mode")?;
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn dnnl_primitive_attr_get_scratchpad_mode(
    attr: Option<&Attr>,
    mode: Option<&mut MaybeUninit<c_int>>,
) -> Status {
    get(attr, mode, |attr| attr.scratchpad_mode)
}

#[unsafe(no_mangle)]
extern "C" fn dnnl_primitive_attr_set_scratchpad_mode(attr: Option<&mut Attr>, mode: c_int) -> Status {
    set(attr, |attr| {
        attr.scratchpad_mode = known(mode, 0..=1, "scratchpad mode")?;
        Ok(())
    })
}

impl Quantization {
    fn plain(mask: c_int, data_type: c_int) -> Result<Self, Fault> {
        let mask = known(mask, 0..=(1 << MAX_NDIMS) - 1, "mask")?;
        Ok(Self { mask, groups: Vec::new(), data_type, is_on_host: false, mode: STATIC })
    }

    /// # Safety
    ///
    /// Unless the address of the groups is null, so many numbers can be read there.
    unsafe fn grouped(
        mask: c_int,
        ndims: c_int,
        groups: *const i64,
        data_type: c_int,
    ) -> Result<Self, Fault> {
        let ndims = known(ndims, 0..=MAX_NDIMS as c_int, "number of dims of a group")?;
        data_type::from_code(data_type)?;
        // SAFETY: as the caller promises.
        let groups = unsafe { array(groups, ndims as usize, "group_dims") }?;
        if let Some(group) = groups.iter().find(|&&group| group <= 0) {
            return Err(Fault::unknown("size of a group", group));
        }
        Ok(Self { groups: groups.to_vec(), ..Self::plain(mask, data_type)? })
    }
}

#[unsafe(no_mangle)]
extern "C" fn dnnl_primitive_attr_set_scales_mask(
    attr: Option<&mut Attr>,
    arg: c_int,
    mask: c_int,
) -> Status {
    set(attr, |attr| {
        attr.scales.insert(known(arg, 0..=c_int::MAX, "argument")?, Quantization::plain(mask, F32)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dnnl_primitive_attr_set_scales(
    attr: Option<&mut Attr>,
    arg: c_int,
    mask: c_int,
    ndims: c_int,
    groups: *const i64,
    data_type: c_int,
) -> Status {
    // SAFETY: as the caller promises.
    unsafe { dnnl_primitive_attr_set_scales_v3(attr, arg, mask, ndims, groups, data_type, 0, STATIC) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dnnl_primitive_attr_set_scales_v2(
    attr: Option<&mut Attr>,
    arg: c_int,
    mask: c_int,
    ndims: c_int,
    groups: *const i64,
    data_type: c_int,
    is_on_host: c_int,
) -> Status {
    // SAFETY: as the caller promises.
    unsafe {
        dnnl_primitive_attr_set_scales_v3(attr, arg, mask, ndims, groups, data_type, is_on_host, STATIC)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dnnl_primitive_attr_set_scales_v3(
    attr: Option<&mut Attr>,
    arg: c_int,
    mask: c_int,
    ndims: c_int,
    groups: *const i64,
    data_type: c_int,
    is_on_host: c_int,
    mode: c_int,
) -> Status {
    set(attr, |attr| {
        // SAFETY: the caller promises as many numbers as dims, unless the address is null.
        let scales = unsafe { Quantization::grouped(mask, ndims, groups, data_type) }?;
        let mode = known(mode, STATIC..=3, "quantization mode")?;
        let scales = Quantization { is_on_host: is_on_host != 0, mode, ..scales };
        attr.scales.insert(known(arg, 0..=c_int::MAX, "argument")?, scales);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn dnnl_primitive_attr_set_zero_points_mask(
    attr: Option<&mut Attr>,
    arg: c_int,
    mask: c_int,
) -> Status {
    set(attr, |attr| {
        attr.zero_points.insert(known(arg, 0..=c_int::MAX, "argument")?, Quantization::plain(mask, S32)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dnnl_primitive_attr_set_zero_points(
    attr: Option<&mut Attr>,
    arg: c_int,
    mask: c_int,
    ndims: c_int,
    groups: *const i64,
    data_type: c_int,
) -> Status {
    // SAFETY: as the caller promises.
    unsafe { dnnl_primitive_attr_set_zero_points_v2(attr, arg, mask, ndims, groups, data_type, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dnnl_primitive_attr_set_zero_points_v2(
    attr: Option<&mut Attr>,
    arg: c_int,
    mask: c_int,
    ndims: c_int,
    groups: *const i64,
    data_type: c_int,
    is_on_host: c_int,
) -> Status {
    set(attr, |attr| {
        // SAFETY: the caller promises as many numbers as dims, unless the address is null.
        let zero_points = unsafe { Quantization::grouped(mask, ndims, groups, data_type) }?;
        let zero_points = Quantization { is_on_host: is_on_host != 0, ..zero_points };
        attr.zero_points.insert(known(arg, 0..=c_int::MAX, "argument")?, zero_points);
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dnnl_primitive_attr_set_precomputed_reductions(
    attr: Option<&mut Attr>,
    arg: c_int,
    mask: c_int,
    ndims: c_int,
    groups: *const i64,
    data_type: c_int,
) -> Status {
    set(attr, |attr| {
        // SAFETY: the caller promises as many numbers as dims, unless the address is null.
        let reductions = unsafe { Quantization::grouped(mask, ndims, groups, data_type) }?;
        attr.reductions.insert(known(arg, 0..=c_int::MAX, "argument")?, reductions);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn dnnl_primitive_attr_set_rounding(attr: Option<&mut Attr>, arg: c_int, mode: c_int) -> Status {
    set(attr, |attr| {
        attr.rounding.insert(arg, known(mode, 0..=1, "rounding mode")?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn dnnl_primitive_attr_get_rounding(
    attr: Option<&Attr>,
    arg: c_int,
    mode: Option<&mut MaybeUninit<c_int>>,
) -> Status {
    get(attr, mode, |attr| attr.rounding.get(&arg).copied().unwrap_or(0))
}

/// The post-ops belong to the attributes, as long as they are not set anew.
#[unsafe(no_mangle)]
extern "C" fn dnnl_primitive_attr_get_post_ops(
    attr: Option<&Attr>,
    post_ops: Option<&mut MaybeUninit<*const PostOps>>,
) -> Status {
    get(attr, post_ops, |attr| &raw const attr.post_ops)
}

#[unsafe(no_mangle)]
extern "C" fn dnnl_primitive_attr_set_post_ops(
    attr: Option<&mut Attr>,
    post_ops: Option<&PostOps>,
) -> Status {
    set(attr, |attr| {
        attr.post_ops = require(post_ops, "post_ops")?.clone();
        Ok(())
    })
}

/// The descriptor belongs to the attributes.
#[unsafe(no_mangle)]
extern "C" fn dnnl_primitive_attr_get_dropout(
    attr: Option<&Attr>,
    mask: Option<&mut MaybeUninit<*const MemoryDesc>>,
) -> Status {
    get(attr, mask, |attr| &raw const attr.dropout.mask)
}

#[unsafe(no_mangle)]
extern "C" fn dnnl_primitive_attr_set_dropout(attr: Option<&mut Attr>, mask: Option<&MemoryDesc>) -> Status {
    dnnl_primitive_attr_set_dropout_v2(attr, mask, S32, 0, 0)
}

/// Any of the values may be null.
#[unsafe(no_mangle)]
extern "C" fn dnnl_primitive_attr_get_dropout_v2(
    attr: Option<&Attr>,
    mask: Option<&mut MaybeUninit<*const MemoryDesc>>,
    seed_type: Option<&mut MaybeUninit<c_int>>,
    uses_offset: Option<&mut MaybeUninit<c_int>>,
    uses_host_scalars: Option<&mut MaybeUninit<c_int>>,
) -> Status {
    ffi_guard(|| {
        let dropout = &require(attr, "attr")?.dropout;
        put(mask, &raw const dropout.mask);
        put(seed_type, dropout.seed_type);
        put(uses_offset, dropout.uses_offset);
        put(uses_host_scalars, dropout.uses_host_scalars);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn dnnl_primitive_attr_set_dropout_v2(
    attr: Option<&mut Attr>,
    mask: Option<&MemoryDesc>,
    seed_type: c_int,
    uses_offset: c_int,
    uses_host_scalars: c_int,
) -> Status {
    set(attr, |attr| {
        data_type::from_code(seed_type)?;
        let mask = *require(mask, "mask_desc")?;
        attr.dropout = Dropout { mask, seed_type, uses_offset, uses_host_scalars };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn dnnl_primitive_attr_set_rnn_data_qparams(
    attr: Option<&mut Attr>,
    scale: f32,
    shift: f32,
) -> Status {
    set(attr, |attr| {
        attr.rnn_data = (scale, shift);
        Ok(())
    })
}

/// Either value may be null.
#[unsafe(no_mangle)]
extern "C" fn dnnl_primitive_attr_get_rnn_data_qparams(
    attr: Option<&Attr>,
    scale: Option<&mut MaybeUninit<f32>>,
    shift: Option<&mut MaybeUninit<f32>>,
) -> Status {
    ffi_guard(|| {
        let attr = require(attr, "attr")?;
        put(scale, attr.rnn_data.0);
        put(shift, attr.rnn_data.1);
        Ok(())
    })
}

impl RnnScales {
    /// # Safety
    ///
    /// Unless the address is null, so many scales can be read there.
    unsafe fn read(count: i64, mask: c_int, scales: *const f32) -> Result<Self, Fault> {
        let mask = known(mask, 0..=c_int::MAX, "mask")?;
        let count = usize::try_from(count).ok().filter(|&count| count > 0);
        let count = count.ok_or_else(|| Fault::invalid_arguments("there are no scales"))?;
        // SAFETY: as the caller promises.
        Ok(Self { mask, scales: unsafe { array(scales, count, "scales") }?.to_vec() })
    }

    /// Hands the scales out; any of the values may be null.
    fn write(
        &self,
        count: Option<&mut MaybeUninit<i64>>,
        mask: Option<&mut MaybeUninit<c_int>>,
        scales: Option<&mut MaybeUninit<*const f32>>,
    ) {
        put(count, self.scales.len() as i64);
        put(mask, self.mask);
        put(scales, self.scales.as_ptr());
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dnnl_primitive_attr_set_rnn_weights_qparams(
    attr: Option<&mut Attr>,
    count: i64,
    mask: c_int,
    scales: *const f32,
) -> Status {
    set(attr, |attr| {
        // SAFETY: as the caller promises.
        attr.rnn_weights = unsafe { RnnScales::read(count, mask, scales) }?;
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn dnnl_primitive_attr_get_rnn_weights_qparams(
    attr: Option<&Attr>,
    count: Option<&mut MaybeUninit<i64>>,
    mask: Option<&mut MaybeUninit<c_int>>,
    scales: Option<&mut MaybeUninit<*const f32>>,
) -> Status {
    ffi_guard(|| {
        require(attr, "attr")?.rnn_weights.write(count, mask, scales);
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dnnl_primitive_attr_set_rnn_weights_projection_qparams(
    attr: Option<&mut Attr>,
    count: i64,
    mask: c_int,
    scales: *const f32,
) -> Status {
    set(attr, |attr| {
        // SAFETY: as the caller promises.
        attr.rnn_projection = unsafe { RnnScales::read(count, mask, scales) }?;
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn dnnl_primitive_attr_get_rnn_weights_projection_qparams(
    attr: Option<&Attr>,
    count: Option<&mut MaybeUninit<i64>>,
    mask: Option<&mut MaybeUninit<c_int>>,
    scales: Option<&mut MaybeUninit<*const f32>>,
) -> Status {
    ffi_guard(|| {
        require(attr, "attr")?.rnn_projection.write(count, mask, scales);
        Ok(())
    })
}
