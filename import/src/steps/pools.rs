//! Maxima and means of windows, of data whose channels are the second dim.

use std::ops::Range;

use sterna::{Attr, AttrValue, DataType, OpKind, TensorId};

use super::convolutions::{WindowPadding, Windows};
use super::rows::Reduction;
use super::{Around, MAX_SLICES, Padding, Steps};
use crate::compose::stored;
use crate::constant::Constant;
use crate::dims::is_known;
use crate::error::Fault;
use crate::weights::element_count;

use DataType as D;
use OpKind as K;

/// The longest windows whose elements are looked up one after the other.
const LARGEST_LOOKUPS: i64 = 32;

/// The most windows along a dim that share it.
const MOST_WINDOWS: i64 = 1 << 16;

/// How the number of windows is rounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rounding {
    Down,
    /// A window may end behind the padding.
    Up,
    /// The same, but none begins behind the data.
    UpWithin,
}

/// A pool, by its windows.
#[derive(Debug, Clone)]
pub(crate) struct Pool {
    pub(crate) kernel: Vec<i64>,
    pub(crate) windows: Windows,
    pub(crate) rounding: Rounding,
    /// The largest element of a window, or the mean.
    pub(crate) is_max: bool,
    /// Padding counts in a mean.
    pub(crate) counts_padding: bool,
}

impl Pool {
    /// True if, whatever the size of the data, the last of as many windows as are rounded up begins before
    /// the data ends.
    fn ends_within(&self) -> bool {
        let fits = |at: usize| {
            let extent = (self.kernel[at] - 1).saturating_mul(self.windows.dilations[at]).saturating_add(1);
            self.windows.end[at].saturating_add(self.windows.strides[at]) <= extent
        };
        (0..self.kernel.len()).all(fits)
    }

    /// The padding behind data of some dims with which as many windows as are rounded up, but for one that
    /// begins behind the data, are as many as are rounded down. `None` if there is no window.
    fn end(&self, dims: &[i64]) -> Option<Vec<i64>> {
        let of_dim = |at: usize| {
            let (stride, begin, end) =
                (self.windows.strides[at], self.windows.begin[at], self.windows.end[at]);
            let extent = (self.kernel[at] - 1).checked_mul(self.windows.dilations[at])?.checked_add(1)?;
            let reach = dims[at].checked_add(begin)?;
            let room = reach.checked_add(end)?.checked_sub(extent)?;
            let mut steps = room.checked_add(stride - 1)?.div_euclid(stride);
            if steps.checked_mul(stride)? >= reach {
                steps -= 1;
            }
            (steps >= 0).then_some(())?;
            let needed = steps.checked_mul(stride)?.checked_add(extent)?.checked_sub(reach)?;
            Some(if room.div_euclid(stride) == steps { end } else { needed.max(0) })
        };
        (0..self.kernel.len()).map(of_dim).collect()
    }
}

/// The windows along a dim of which as many are asked for: each starts where its share of the dim does, and
/// ends with the element in which that ends.
fn shares(length: i64, count: i64) -> Vec<Range<i64>> {
    let place = |index: i64| i128::from(index) * i128::from(length);
    // Both lie within the dim.
    let window = |index: i64| {
        let (start, end) = (place(index) / i128::from(count), (place(index + 1) - 1) / i128::from(count) + 1);
        start as i64..end as i64
    };
    (0..count).map(window).collect()
}

impl Steps<'_, '_> {
    /// The pool of data {N, C, dims} with so many windows along each dim, which share it as evenly as may be.
    /// `None` for dims that do not fit.
    pub(crate) fn adaptively_pooled(
        &mut self,
        x: TensorId,
        counts: &[i64],
        is_max: bool,
    ) -> Result<Option<TensorId>, Fault> {
        let dims = self.builder.dims(x).unwrap_or_default();
        let lengths = dims.get(2..).unwrap_or_default().to_vec();
        let fits = |(&length, &count): (&i64, &i64)| length > 0 && (1..=MOST_WINDOWS).contains(&count);
        if lengths.len() != counts.len() || lengths.is_empty() || !lengths.iter().zip(counts).all(fits) {
            return Ok(None);
        }
        let declared = self.declared.take();
        let is_even = |at: usize| lengths[at] % counts[at] == 0;
        let kernel: Vec<i64> =
            (0..counts.len()).map(|at| if is_even(at) { lengths[at] / counts[at] } else { 1 }).collect();
        let mut result = x;
        if kernel.iter().any(|&length| length > 1) {
            let none = || vec![0; kernel.len()];
            let windows = Windows {
                strides: kernel.clone(),
                dilations: vec![1; kernel.len()],
                begin: none(),
                end: none(),
                auto_pad: WindowPadding::Given,
            };
            let pool = Pool {
                kernel: kernel.clone(),
                windows,
                rounding: Rounding::Down,
                is_max,
                counts_padding: false,
            };
            let Some(pooled) = self.pooled(result, &pool)? else { return Ok(None) };
            result = pooled;
        }
        for at in (0..counts.len()).filter(|&at| !is_even(at)) {
            let windows = shares(lengths[at], counts[at]);
            let longest = windows.iter().map(|window| window.end - window.start).max().unwrap_or(0);
            result = match () {
                () if longest <= LARGEST_LOOKUPS => {
                    self.pooled_along(result, 2 + at, &windows, longest, is_max)?
                }
                () if windows.len() <= MAX_SLICES => {
                    self.pooled_one_by_one(result, 2 + at, &windows, is_max)?
                }
                () => return Ok(None),
            };
        }
        self.declared = declared;
        Ok(Some(result))
    }

    /// The largest element or the mean of each window along a dim, by a lookup of the first elements of all
    /// windows, one of the second ones, and so on.
    fn pooled_along(
        &mut self,
        x: TensorId,
        axis: usize,
        windows: &[Range<i64>],
        longest: i64,
        is_max: bool,
    ) -> Result<TensorId, Fault> {
        let data_type = self.builder.data_type(x);
        let dims = self.builder.dims(x).unwrap_or_default().to_vec();
        let mut data = self.cast(x, D::F32)?;
        if !is_max {
            // Behind the elements stands the 0 of windows that are shorter than the longest.
            let zero = self.number(D::F32, 0.0)?;
            data = self.padded(data, Around::Constant, &[Padding { axis, front: 0, back: 1 }], zero)?;
        }
        let mut result = None;
        for step in 0..longest {
            let place = |window: &Range<i64>| match window.start + step {
                place if place < window.end => place,
                _ if is_max => window.end - 1,
                _ => dims[axis],
            };
            let places: Vec<i64> = windows.iter().map(place).collect();
            let elements = self.at_places(data, axis, &places)?;
            result = Some(match result {
                Some(result) if is_max => self.both(K::Maximum, result, elements)?,
                result => self.added(result, elements)?,
            });
        }
        let mut result = result.unwrap_or(data);
        if !is_max {
            let shares: Vec<f32> =
                windows.iter().map(|window| 1.0 / (window.end - window.start) as f32).collect();
            let beside = [&[windows.len() as i64], &*vec![1; dims.len() - axis - 1]].concat();
            let shares = stored(self.builder, Constant::from_slice(&beside, &shares)?)?;
            result = self.both(K::Multiply, result, shares)?;
        }
        self.cast(result, data_type)
    }

    /// A pool of data {N, C, dims}. `None` for dims that do not fit, and if the number of windows does not
    /// follow from what is known of them.
    pub(crate) fn pooled(&mut self, x: TensorId, pool: &Pool) -> Result<Option<TensorId>, Fault> {
        let data_type = self.builder.data_type(x);
        // Of whole numbers in 8 bits, f32 holds each.
        let is_whole = pool.is_max && matches!(data_type, D::S8 | D::U8);
        let mut x = if is_whole { self.cast(x, D::F32)? } else { x };
        let mut pool = pool.clone();
        let is_given = pool.windows.auto_pad == WindowPadding::Given;
        let rounds_up = pool.rounding != Rounding::Down && is_given;
        if rounds_up && pool.counts_padding && !pool.is_max {
            // The part of a window beyond the padding does not count.
            if self.builder.known_dims(x).is_none() {
                return Ok(None);
            }
            let dims = self.dims(x)?;
            let Some(reach) = dims.get(2..).and_then(|dims| pool.end(dims)) else { return Ok(None) };
            let zero = self.number(data_type, 0.0)?;
            let own = std::mem::take(&mut pool.windows.end);
            let sides = pool.windows.begin.iter().zip(own.iter().zip(&reach)).enumerate();
            // No padding stands behind the last window.
            let paddings: Vec<Padding> = sides
                .map(|(at, (&front, (own, reach)))| Padding { axis: 2 + at, front, back: *own.min(reach) })
                .collect();
            let declared = self.declared.take();
            x = self.padded(x, Around::Constant, &paddings, zero)?;
            self.declared = declared;
            pool.windows.end =
                paddings.iter().zip(&reach).map(|(padding, reach)| reach - padding.back).collect();
            pool.windows.begin.fill(0);
            pool.rounding = Rounding::Down;
            pool.counts_padding = false;
        }
        if rounds_up && pool.rounding == Rounding::UpWithin && !pool.ends_within() {
            let dims = self.builder.dims(x).and_then(|dims| dims.get(2..)).filter(|dims| is_known(dims));
            let end = dims.and_then(|dims| pool.end(dims));
            let Some(end) = end else { return Ok(None) };
            (pool.windows.end, pool.rounding) = (end, Rounding::Down);
        }
        let word = if pool.rounding == Rounding::Down || !is_given { "floor" } else { "ceil" };
        let mut attrs: Vec<(Attr, AttrValue)> = pool.windows.attrs(pool.is_max);
        attrs.extend([(Attr::Kernel, pool.kernel.into()), (Attr::RoundingType, word.into())]);
        if !pool.is_max {
            attrs.push((Attr::ExcludePad, (!pool.counts_padding).into()));
        }
        let kind = if pool.is_max { K::MaxPool } else { K::AvgPool };
        match self.windowed(kind, &attrs, &[x])? {
            Some(result) if is_whole => self.cast(result, data_type).map(Some),
            result => Ok(result),
        }
    }

    /// The same of long windows, each of which is a slice.
    fn pooled_one_by_one(
        &mut self,
        x: TensorId,
        axis: usize,
        windows: &[Range<i64>],
        is_max: bool,
    ) -> Result<TensorId, Fault> {
        let reduction = Reduction::One(if is_max { K::ReduceMax } else { K::ReduceMean });
        let mut parts = Vec::with_capacity(windows.len());
        for window in windows {
            let part = self.part(x, axis, [window.start, window.end])?;
            parts.push(self.reduced(reduction, part, &[axis as i64], true)?);
        }
        self.joined(parts, axis)
    }

    /// Data {N, C, dims}, each element divided by what the squares of so many channels around its own are on
    /// the mean: by (bias + alpha · mean) to the power of beta. `None` for dims that do not fit.
    pub(crate) fn local_response(
        &mut self,
        x: TensorId,
        size: i64,
        [alpha, beta, bias]: [f32; 3],
    ) -> Result<Option<TensorId>, Fault> {
        let (data_type, dims) = (self.builder.data_type(x), self.dims(x)?);
        let &[batch, channels, ref rest @ ..] = &dims[..] else { return Ok(None) };
        let Some(rest) = element_count(rest) else {
            return Ok(None);
        };
        let declared = self.declared.take();
        let wide = self.cast(x, D::F32)?;
        let squares = self.same(K::Square, wide)?;
        // The channels are a dim of the windows.
        let rows = self.in_shape(squares, &[batch, 1, channels, rest])?;
        let windows = Windows {
            strides: vec![1, 1],
            dilations: vec![1, 1],
            begin: vec![(size - 1) / 2, 0],
            end: vec![size / 2, 0],
            auto_pad: WindowPadding::Given,
        };
        let rounding = Rounding::Down;
        let pool = Pool { kernel: vec![size, 1], windows, rounding, is_max: false, counts_padding: true };
        let Some(means) = self.pooled(rows, &pool)? else { return Ok(None) };
        let means = self.in_shape(means, &dims)?;
        let (alpha, bias) = (self.float(alpha)?, self.float(bias)?);
        let sums = self.both(K::Multiply, means, alpha)?;
        let sums = self.both(K::Add, sums, bias)?;
        let divisors = self.emit(K::Pow, &[(Attr::Beta, beta.into())], &[sums], D::F32)?;
        let result = self.both(K::Divide, wide, divisors)?;
        self.declared = declared;
        self.cast(result, data_type).map(Some)
    }

    /// The norm of each window: the sum of so great powers of the sizes of its elements, and the root of
    /// that. `None` for dims that do not fit.
    pub(crate) fn pooled_norm(
        &mut self,
        x: TensorId,
        pool: &Pool,
        power: f32,
    ) -> Result<Option<TensorId>, Fault> {
        let data_type = self.builder.data_type(x);
        let declared = self.declared.take();
        let wide = self.cast(x, D::F32)?;
        let to_power = |steps: &mut Self, x, power: f32| match power {
            1.0 => Ok(x),
            2.0 => steps.same(K::Square, x),
            0.5 => steps.same(K::Sqrt, x),
            _ => steps.emit(K::Pow, &[(Attr::Beta, power.into())], &[x], D::F32),
        };
        let sizes = self.same(K::Abs, wide)?;
        let powers = to_power(self, sizes, power)?;
        let Some(means) = self.pooled(powers, pool)? else { return Ok(None) };
        let count = self.float(pool.kernel.iter().map(|&length| length as f32).product())?;
        let sums = self.both(K::Multiply, means, count)?;
        let result = to_power(self, sums, 1.0 / power)?;
        self.declared = declared;
        self.cast(result, data_type).map(Some)
    }
}
