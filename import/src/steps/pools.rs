//! Maxima and means of windows, of data whose channels are the second dim.

use sterna::{Attr, AttrValue, DataType, OpKind, TensorId};

use super::convolutions::{WindowPadding, Windows};
use super::{Around, Padding, Steps};
use crate::dims::is_known;
use crate::error::Fault;

use DataType as D;
use OpKind as K;

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

impl Steps<'_, '_> {
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
}
