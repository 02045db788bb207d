//! Elements taken, joined and put elsewhere.

use sterna::{Attr, AttrValue, DataType, Direction, Op, OpKind, TensorId};

use super::Steps;
use crate::compose::resolved_axes;
use crate::constant::Constant;
use crate::error::{Fault, PortRef};

use OpKind as K;

/// The most operands of an op `Concat`.
const WIDEST: usize = 64;
/// The most slices that a layer without an op of its own becomes.
pub(crate) const MAX_SLICES: usize = 1024;

/// The ranges of a slice along some axes.
#[derive(Default)]
pub(crate) struct Ranges {
    pub(crate) starts: Vec<i64>,
    pub(crate) ends: Vec<i64>,
    pub(crate) axes: Vec<i64>,
    pub(crate) steps: Vec<i64>,
}

/// The elements that stand around the data.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Around {
    Constant,
    /// The first and the last element.
    Edge,
    /// The data backwards, but for its first or last element.
    Reflect,
    /// The data backwards.
    Symmetric,
    Wrap,
}

/// How many elements stand in front and behind along an axis; negative numbers cut off.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Padding {
    pub(crate) axis: usize,
    pub(crate) front: i64,
    pub(crate) back: i64,
}

impl Steps<'_, '_> {
    pub(crate) fn sliced(&mut self, x: TensorId, ranges: Ranges) -> Result<TensorId, Fault> {
        let attrs: [(Attr, AttrValue); 4] = [
            (Attr::Starts, ranges.starts.into()),
            (Attr::Ends, ranges.ends.into()),
            (Attr::Steps, ranges.steps.into()),
            (Attr::Axes, ranges.axes.into()),
        ];
        self.emit_declared(K::Slice, &attrs, &[x], self.builder.data_type(x))
    }

    /// The elements along axes, the first ones unless given, from starts that are computed to ends that lie
    /// so much further as a constant says. `None` if the starts are constants, a step is not 1, the ends are
    /// no such sums, or the dims are not known.
    pub(crate) fn sliced_from(
        &mut self,
        mut x: TensorId,
        [starts, ends]: [TensorId; 2],
        axes: Option<&[i64]>,
        steps: &[i64],
    ) -> Result<Option<TensorId>, Fault> {
        if self.builder.value(starts).is_some() || steps.iter().any(|&step| step != 1) {
            return Ok(None);
        }
        let Some(lengths) = self.distance(starts, ends) else { return Ok(None) };
        let Some(dims) = self.builder.known_dims(x).map(<[i64]>::to_vec) else { return Ok(None) };
        let first: Vec<i64> = (0..lengths.len() as i64).collect();
        let axes = resolved_axes(axes.unwrap_or(&first), dims.len());
        let axes = axes.filter(|axes| axes.len() == lengths.len());
        let Some(axes) = axes else { return Ok(None) };
        if axes.iter().zip(&lengths).any(|(&axis, length)| !(0..=dims[axis]).contains(length)) {
            return Ok(None);
        }
        let starts = self.in_shape(starts, &[lengths.len() as i64])?;
        for (at, (axis, length)) in axes.into_iter().zip(lengths).enumerate() {
            if length == dims[axis] {
                continue;
            }
            let first = self.part(starts, 0, [at as i64, at as i64 + 1])?;
            let first = self.cast(first, DataType::S64)?;
            self.builder.charge_folded((length as usize).saturating_mul(size_of::<i64>()))?;
            let behind = Constant::from_slice(&[length], &(0..length).collect::<Vec<i64>>())?;
            let behind = self.builder.constant(behind)?;
            let places = self.both(K::Add, first, behind)?;
            x = self.gathered(x, axis, places, 0)?;
        }
        Ok(Some(x))
    }

    /// How far ends lie behind starts, if they are the starts and a constant.
    fn distance(&mut self, starts: TensorId, ends: TensorId) -> Option<Vec<i64>> {
        let (starts, ends) = (self.origin(starts), self.origin(ends));
        let sum = self.builder.op_behind(ends).filter(|op| op.kind() == K::Add)?;
        let operands = [0, 1].map(|at| sum.inputs()[at].id());
        let at = operands.into_iter().position(|operand| self.origin(operand) == starts)?;
        self.known_places(operands[1 - at])
    }

    /// The tensor that one is in another shape or type.
    fn origin(&mut self, mut of: TensorId) -> TensorId {
        let is_same = |op: &&Op| matches!(op.kind(), K::StaticReshape | K::TypeCast);
        while let Some(op) = self.builder.op_behind(of).filter(is_same) {
            of = op.inputs()[0].id();
        }
        of
    }

    /// The elements from a start to an end along one axis.
    pub(crate) fn part(
        &mut self,
        x: TensorId,
        axis: usize,
        [start, end]: [i64; 2],
    ) -> Result<TensorId, Fault> {
        self.strided(x, axis, [start, end, 1])
    }

    /// Some of the elements from a start to an end along one axis.
    pub(crate) fn strided(
        &mut self,
        x: TensorId,
        axis: usize,
        [start, end, step]: [i64; 3],
    ) -> Result<TensorId, Fault> {
        let (starts, ends, axes, steps) = (vec![start], vec![end], vec![axis as i64], vec![step]);
        let declared = self.declared.take();
        let result = self.sliced(x, Ranges { starts, ends, axes, steps });
        self.declared = declared;
        result
    }

    /// The elements from a start down to and without an end, −1 for before the first.
    pub(crate) fn backwards(
        &mut self,
        x: TensorId,
        axis: usize,
        [start, end]: [i64; 2],
    ) -> Result<TensorId, Fault> {
        self.strided(x, axis, [start, if end < 0 { i64::MIN } else { end }, -1])
    }

    pub(crate) fn transposed(&mut self, x: TensorId, order: &[i64]) -> Result<TensorId, Fault> {
        // Of the order of no dims, the op makes that of all.
        if order.is_empty() {
            return Ok(x);
        }
        let attrs = [(Attr::Order, order.into())];
        self.emit_declared(K::StaticTranspose, &attrs, &[x], self.builder.data_type(x))
    }

    /// Tensors one after the other along an axis.
    pub(crate) fn joined(&mut self, mut parts: Vec<TensorId>, axis: usize) -> Result<TensorId, Fault> {
        let attrs = [(Attr::Axis, (axis as i64).into())];
        while parts.len() > 1 {
            let mut fewer = Vec::with_capacity(parts.len().div_ceil(WIDEST));
            for group in parts.chunks(WIDEST) {
                fewer.push(match group {
                    [one] => *one,
                    _ => self.emit(K::Concat, &attrs, group, self.builder.data_type(group[0]))?,
                });
            }
            parts = fewer;
        }
        Ok(parts[0])
    }

    /// Parts of some lengths, which cover the axis.
    pub(crate) fn split(
        &mut self,
        x: TensorId,
        axis: usize,
        lengths: &[i64],
    ) -> Result<Vec<TensorId>, Fault> {
        let (mut parts, mut start) = (Vec::new(), 0);
        for &length in lengths {
            parts.push(self.part(x, axis, [start, start + length])?);
            start += length;
        }
        Ok(parts)
    }

    /// The data with elements in front and behind along some axes.
    pub(crate) fn padded(
        &mut self,
        mut x: TensorId,
        around: Around,
        paddings: &[Padding],
        fill: TensorId,
    ) -> Result<TensorId, Fault> {
        use Around::{Constant, Edge, Reflect, Symmetric, Wrap};
        let mut dims = self.dims(x)?;
        for &Padding { axis, mut front, mut back } in paddings {
            if front < 0 || back < 0 {
                let kept = [
                    front.min(0).saturating_neg().min(dims[axis]),
                    dims[axis] + back.min(0).max(-dims[axis]),
                ];
                x = self.part(x, axis, kept)?;
                dims[axis] = (kept[1] - kept[0]).max(0);
                (front, back) = (front.max(0), back.max(0));
            }
            if front == 0 && back == 0 {
                continue;
            }
            let length = dims[axis];
            // The most elements that a slice of the data can give at one side.
            let most = match around {
                Constant => i64::MAX,
                Edge if length > 0 => MAX_SLICES as i64,
                Reflect => length - 1,
                Symmetric | Wrap => length,
                Edge => 0,
            };
            if front > most || back > most {
                let needed = format!("at most {most} elements in front and behind along axis {axis}");
                let port = PortRef { direction: Direction::Input, id: 0, name: "" };
                return Err(Fault::Shape { port, given: dims.as_slice().into(), needed });
            }
            let mut parts = Vec::new();
            for (count, at_front) in [(front, true), (back, false)] {
                if !at_front {
                    parts.push(x);
                }
                if count == 0 {
                    continue;
                }
                match around {
                    Constant => {
                        let mut shape = dims.clone();
                        shape[axis] = count;
                        parts.push(self.enlarged(fill, &shape)?);
                    }
                    Edge => {
                        let edge = if at_front { [0, 1] } else { [length - 1, length] };
                        let edge = self.part(x, axis, edge)?;
                        parts.extend(std::iter::repeat_n(edge, count as usize));
                    }
                    Reflect => {
                        let range = if at_front { [count, 0] } else { [length - 2, length - 2 - count] };
                        parts.push(self.backwards(x, axis, range)?);
                    }
                    Symmetric => {
                        let range = if at_front { [count - 1, -1] } else { [length - 1, length - 1 - count] };
                        parts.push(self.backwards(x, axis, range)?);
                    }
                    Wrap => {
                        let range = if at_front { [length - count, length] } else { [0, count] };
                        parts.push(self.part(x, axis, range)?);
                    }
                }
            }
            x = self.joined(parts, axis)?;
            dims[axis] = length.checked_add(front).and_then(|sum| sum.checked_add(back)).unwrap_or(i64::MAX);
        }
        Ok(x)
    }

    /// Blocks of neighbours along the last dims become channels, or back: dims in which the elements lie, the
    /// order of these dims, and the shape of the result.
    pub(crate) fn rearranged(
        &mut self,
        x: TensorId,
        apart: &[i64],
        order: &[i64],
        result: &[i64],
    ) -> Result<TensorId, Fault> {
        let apart = self.in_shape(x, apart)?;
        let declared = self.declared.take();
        let moved = self.transposed(apart, order);
        self.declared = declared;
        self.in_shape(moved?, result)
    }

    /// The channels divided among the blocks that the dims behind them become; `depth_first` says that the
    /// channel is the slower index of a channel.
    pub(crate) fn depth_to_space(
        &mut self,
        x: TensorId,
        block: i64,
        depth_first: bool,
    ) -> Result<Option<TensorId>, Fault> {
        let dims = self.dims(x)?;
        let Some((&[batch, channels], spatial)) = dims.split_first_chunk() else { return Ok(None) };
        let count = spatial.len();
        let Some(blocks) = u32::try_from(count).ok().and_then(|count| block.checked_pow(count)) else {
            return Ok(None);
        };
        if block < 1 || channels % blocks != 0 || 2 + 2 * count > sterna::MAX_RANK {
            return Ok(None);
        }
        let own = channels / blocks;
        let blocked = vec![block; count];
        let (apart, channel, first) = match depth_first {
            true => ([&[batch, own], &*blocked, spatial].concat(), 1, 2),
            false => ([&[batch], &*blocked, &[own], spatial].concat(), 1 + count as i64, 1),
        };
        let mut order = vec![0, channel];
        let mut result = vec![batch, own];
        for (at, &dim) in spatial.iter().enumerate() {
            order.extend([(2 + count + at) as i64, first + at as i64]);
            result.push(dim.saturating_mul(block));
        }
        self.rearranged(x, &apart, &order, &result).map(Some)
    }

    /// The way back.
    pub(crate) fn space_to_depth(
        &mut self,
        x: TensorId,
        block: i64,
        depth_first: bool,
    ) -> Result<Option<TensorId>, Fault> {
        let dims = self.dims(x)?;
        let Some((&[batch, channels], spatial)) = dims.split_first_chunk() else { return Ok(None) };
        let count = spatial.len();
        if block < 1 || spatial.iter().any(|dim| dim % block != 0) || 2 + 2 * count > sterna::MAX_RANK {
            return Ok(None);
        }
        let mut apart = vec![batch, channels];
        let mut result = vec![batch, channels];
        for &dim in spatial {
            apart.extend([dim / block, block]);
            result[1] = result[1].saturating_mul(block);
            result.push(dim / block);
        }
        let blocks = (0..count).map(|at| 3 + 2 * at as i64);
        let (front, back) = if depth_first { (vec![0, 1], vec![]) } else { (vec![0], vec![1]) };
        let order: Vec<i64> = front
            .into_iter()
            .chain(blocks)
            .chain(back)
            .chain((0..count).map(|at| 2 + 2 * at as i64))
            .collect();
        self.rearranged(x, &apart, &order, &result).map(Some)
    }

    /// The elements as often one after the other along each dim as `times` says.
    pub(crate) fn tiled(&mut self, x: TensorId, times: &[i64]) -> Result<Option<TensorId>, Fault> {
        let own = self.dims(x)?;
        let rank = own.len().max(times.len());
        if 2 * rank > sterna::MAX_RANK || times.iter().any(|&times| times < 0) {
            return Ok(None);
        }
        let padded = |list: &[i64]| -> Vec<i64> {
            std::iter::repeat_n(1, rank - list.len()).chain(list.iter().copied()).collect()
        };
        let (dims, times) = (padded(&own), padded(times));
        let pairs = || times.iter().zip(&dims);
        let apart: Vec<i64> = pairs().flat_map(|(_, &dim)| [1, dim]).collect();
        let wide: Vec<i64> = pairs().flat_map(|(&times, &dim)| [times, dim]).collect();
        let result: Vec<i64> = pairs().map(|(times, dim)| times.saturating_mul(*dim)).collect();
        let apart = self.in_shape(x, &apart)?;
        let wide = self.enlarged(apart, &wide)?;
        self.in_shape(wide, &result).map(Some)
    }

    /// The lengths that [`reversed_sequences`](Self::reversed_sequences) takes.
    pub(crate) const LENGTHS: &'static str =
        "a length within the dim for each sequence of a batch; for more than 1024 sequences the same";

    /// The first elements of each sequence of a batch backwards, as many as its length. `None` for lengths
    /// that do not fit.
    pub(crate) fn reversed_sequences(
        &mut self,
        x: TensorId,
        (batch, time): (usize, usize),
        lengths: &[i64],
    ) -> Result<Option<TensorId>, Fault> {
        let dims = self.dims(x)?;
        let is_within = lengths.iter().all(|length| (0..=dims[time]).contains(length));
        if batch == time || lengths.len() as i64 != dims[batch] || !is_within {
            return Ok(None);
        }
        if lengths.windows(2).all(|pair| pair[0] == pair[1]) {
            return self.first_reversed(x, time, lengths.first().copied().unwrap_or(0)).map(Some);
        }
        if lengths.len() > MAX_SLICES {
            return Ok(None);
        }
        let mut parts = Vec::with_capacity(lengths.len());
        for (place, &length) in (0..).zip(lengths) {
            let part = self.part(x, batch, [place, place + 1])?;
            parts.push(self.first_reversed(part, time, length)?);
        }
        self.joined(parts, batch).map(Some)
    }

    /// The first elements along an axis backwards, and those behind them.
    fn first_reversed(&mut self, x: TensorId, axis: usize, length: i64) -> Result<TensorId, Fault> {
        let whole = self.dims(x)?[axis];
        if length < 2 {
            return Ok(x);
        }
        let front = self.backwards(x, axis, [length - 1, -1])?;
        if length == whole {
            return Ok(front);
        }
        let back = self.part(x, axis, [length, whole])?;
        self.joined(vec![front, back], axis)
    }
}
