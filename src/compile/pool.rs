//! Phases of pools and interpolations.

use smallvec::{SmallVec, smallvec};

use super::arena::Arena;
use super::phases::{PlacedTensor, PlanBuilder};
use super::row_axes::Along;
use super::rows;
use super::shaped_partition::ShapedPartition;
use crate::error::{CompileFault, Result};
use crate::graph::infer;
use crate::graph::interpolate::{Interpolation, spatial_dims};
use crate::graph::op::Op;
use crate::graph::windows::{self, WindowDim, Windows};
use crate::kernels::Width;
use crate::kernels::pack::pack_tile;
use crate::kernels::pointwise::convert;
use crate::kernels::rows::{PoolKernels, Repeats, Strip, WindowsAlong, largest, maxima, repeat, sums};
use crate::kernels::unpack::unpack_tile;
use crate::kernels::vector::RowType;
use crate::plan::{
    AxisTap, AxisTaps, Phase, PoolAcross, PoolDivisor, PoolOperand, PoolPhase, PoolPlanes, PoolScratch,
    PoolWork, RowRepeats,
};
use crate::types::dtype::DataType;
use crate::types::kind::{Attr, Level, OpKind};
use crate::types::shape::{self, SaturatingProduct};

/// Most taps of all rows along a dim, and most elements along one: what a table holds.
const MAX_TAPS: usize = 1 << 28;

/// Elements of a combined row that stay in the first-level cache beside those that make it.
const ROW_ELEMENTS: usize = 8 << 10;

/// Elements of the result that a task makes of planes.
const TASK_ELEMENTS: usize = 4 << 10;

/// Time in which a term of an element is combined, in bytes that could be moved in that time.
const COMBINED: usize = 2;

/// Adds the phases of a partition of one op, which is a pool, an interpolation, or a gradient of one.
pub(super) fn add(shaped: &ShapedPartition<'_>, plan: &mut PlanBuilder<'_>) -> Result<()> {
    let (group, op) = (&shaped.group, plan.anchor_op(0));
    let anchor = &group.anchors[0];
    // A window that is the image is a row.
    if matches!(op.kind(), OpKind::ReduceMean | OpKind::ReduceMax) {
        return rows::add(shaped, plan, 0);
    }
    let dims: Vec<&[i64]> = anchor.inputs.iter().map(|&value| &group.values[value].dims[..]).collect();
    let used = match op.kind() {
        OpKind::MaxPoolBackward => &anchor.inputs[..],
        OpKind::InterpolateBackward => &anchor.inputs[1..2],
        _ => &anchor.inputs[..1],
    };
    let inputs: Vec<PlacedTensor> = used.iter().map(|&value| plan.operand(value)).collect::<Result<_>>()?;
    let result = plan.result(anchor.outputs[0]);
    if result.dims.contains(&0) {
        return Ok(());
    }
    let unsupported = || {
        let why = "it has more windows, or elements of them, along a dim than a table holds";
        CompileFault::Unsupported(format!("no kernel runs {}: {why}", op.kind()))
    };
    let axes = PoolAxes::of(op, &dims)?.ok_or_else(|| plan.refuse(unsupported()))?;
    let read = inputs.iter().map(bytes_of).fold(0, usize::saturating_add);
    let work = axes.terms(&result.dims).saturating_mul(COMBINED);
    plan.count_traffic(read.saturating_add(bytes_of(&result)), bytes_of(&result), work);
    let level = plan.level;
    let name = op.kind().name();
    if op.kind() == OpKind::MaxPoolBackward {
        add_max_backward(name, &axes, [&inputs[0], &inputs[1], &result], plan);
        return Ok(());
    }
    let kernels = if op.kind() == OpKind::MaxPool { maxima(level) } else { sums(level) };
    let tensors = [&inputs[0], &result];
    let repeated = axes.repeated(tensors, level).map(|(axes, repeats)| (axes, PoolWork::Repeat(repeats)));
    let of_planes = || {
        let (in_tasks, planes) = axes.planes(tensors)?;
        Some((in_tasks, PoolWork::Planes(axes.divisor(op), planes)))
    };
    let found = repeated.or_else(of_planes);
    let (axes, work) = found.unwrap_or_else(|| (axes.clone(), PoolWork::Combine(axes.divisor(op))));
    let phase = phase(name, axes, (kernels, work), [&inputs[0], &result], level, None);
    plan.push(Phase::Pool(Box::new(phase)), 0, true);
    Ok(())
}

/// Adds the phases of the gradient of a pool of maxima: the numbers of the largest elements of windows, and
/// the gradients at them.
fn add_max_backward(
    name: &'static str,
    axes: &PoolAxes,
    [source, gradient, result]: [&PlacedTensor; 3],
    plan: &mut PlanBuilder<'_>,
) {
    let level = plan.level;
    let windows = bytes_of(gradient) / gradient.data_type.size().unwrap_or(1);
    let to = plan.buffer(windows.saturating_mul(size_of::<u32>()));
    let (sums, kernels) = (sums(level), largest(level));
    let work = (sums, PoolWork::Numbers { to, kernels });
    let numbers = phase("largest elements", axes.clone(), work, [source, gradient], level, None);
    let inner = Some(numbers.inner);
    plan.push(Phase::Pool(Box::new(numbers)), 0, true);
    let work = (sums, PoolWork::Scatter { numbers: to, kernels });
    let scatter = phase(name, axes.transposed(), work, [gradient, result], level, inner);
    plan.push(Phase::Pool(Box::new(scatter)), 0, true);
}

/// The spatial dims of an op.
#[derive(Debug, Clone)]
struct PoolAxes {
    /// The first spatial dim, and that of the channels.
    first: usize,
    channels: usize,
    outer: SmallVec<[AxisTaps; 2]>,
    last: LastAxis,
    /// The outer dims, if the op combines windows.
    windows: SmallVec<[WindowDim; 2]>,
    /// Elements of the kernel, if padding counts as well.
    volume: f32,
    start: f32,
}

/// The last spatial dim.
#[derive(Debug, Clone)]
enum LastAxis {
    Windows(WindowDim),
    Table(AxisTaps),
}

impl PoolAxes {
    /// The dims of an op on tensors of some dims; `None` if a table would be too long.
    fn of(op: &Op, inputs: &[&[i64]]) -> Result<Option<Self>> {
        let is_backward = matches!(op.kind(), OpKind::AvgPoolBackward | OpKind::InterpolateBackward);
        // A sum of one term keeps the sign of a zero, but in a gradient.
        let start = match op.kind() {
            OpKind::MaxPool => f32::NEG_INFINITY,
            _ if is_backward => 0.0,
            _ => -0.0,
        };
        if let Some(windows) = windows::windows(op, inputs)? {
            return Ok(Self::of_windows(op, &windows, start));
        }
        let src = inputs[0];
        let spatial = spatial_dims(op, src)?;
        let channels = infer::channel_axis(op, src)?;
        let Some(result) = infer::output_shapes(op, inputs)? else { return Ok(None) };
        let to = if is_backward { inputs[1] } else { &result[0][..] };
        let interpolation = Interpolation::of(op);
        let of_dim = |dim: usize| {
            let sizes = (src[dim], to[dim]);
            let place = |place: i64| {
                let taps = interpolation.taps(sizes, place).into_iter();
                taps.map(|tap| (tap.place, 0, tap.share as f32)).collect()
            };
            let taps = AxisTaps::made(sizes, 1, place)?;
            Some(if is_backward { taps.transposed() } else { taps })
        };
        let Some(mut outer) = spatial.clone().map(of_dim).collect::<Option<SmallVec<[AxisTaps; 2]>>>() else {
            return Ok(None);
        };
        let last = outer.pop().map(LastAxis::Table);
        let windows = SmallVec::new();
        Ok(last.map(|last| Self { first: spatial.start, channels, outer, last, windows, volume: 1.0, start }))
    }

    fn of_windows(op: &Op, windows: &Windows, start: f32) -> Option<Self> {
        let is_backward = op.kind() == OpKind::AvgPoolBackward;
        let has_counts = is_backward && excludes_padding(op);
        let of_dim = |dim: &WindowDim| {
            let place = |window: i64| {
                let taps = dim.taps(window);
                let share = if has_counts { 1.0 / (taps.end - taps.start) as f32 } else { 1.0 };
                let place = |tap: i64| dim.start(window) + tap * dim.dilation;
                taps.map(|tap| (place(tap), tap, share)).collect()
            };
            let taps = AxisTaps::made((dim.image, dim.windows), dim.kernel, place)?;
            Some(if is_backward { taps.transposed() } else { taps })
        };
        let (last, outer) = windows.dims.split_last()?;
        let of_outer = outer.iter().copied().collect();
        let outer = outer.iter().map(of_dim).collect::<Option<_>>()?;
        let last = if is_backward { LastAxis::Table(of_dim(last)?) } else { LastAxis::Windows(*last) };
        let kernel = windows.dims.iter().map(|dim| dim.kernel);
        u32::try_from(kernel.clone().map(|size| size as usize).saturating_product()).ok()?;
        Some(Self {
            first: windows.data.spatial,
            channels: windows.data.channels,
            outer,
            last,
            windows: of_outer,
            volume: kernel.map(|size| size as f32).product(),
            start,
        })
    }

    /// The same the other way round, of windows.
    fn transposed(&self) -> Self {
        let outer = self.outer.iter().map(|axis| axis.clone().transposed()).collect();
        Self { outer, ..self.clone() }
    }

    /// How rows are repeated if each element of the result is one of the source, a whole number of them
    /// follow each other, and rows of one type are contiguous; with the dims in which the last of the outer
    /// ones is one row.
    fn repeated(&self, tensors: [&PlacedTensor; 2], level: Level) -> Option<(Self, RowRepeats)> {
        let LastAxis::Table(along) = &self.last else { return None };
        let (last, columns) = (self.first + self.outer.len(), along.repeats()?);
        let has_rows = |tensor: &PlacedTensor| {
            let is_float = RowType::of(tensor.data_type).is_some();
            let is_same = tensor.data_type == tensors[0].data_type;
            is_float && is_same && (tensor.strides[last] == 1 || tensor.dims[last] == 1)
        };
        // A gradient begins with +0, which changes −0.
        let is_gradient = self.start.is_sign_positive();
        if is_gradient || !tensors.iter().all(|tensor| has_rows(tensor)) || is_inner(tensors[0], self, last) {
            return None;
        }
        let of_outer: SmallVec<[usize; 2]> =
            self.outer.iter().map(AxisTaps::repeats).collect::<Option<_>>()?;
        let times = Repeats { rows: of_outer.last().copied().unwrap_or(1), columns };
        let (mut axes, mut rows, mut strides) = (self.clone(), 1, [0; 2]);
        if let Some(down) = axes.outer.last_mut() {
            rows = down.source;
            strides = tensors.map(|tensor| tensor.onto(tensor.dims.len(), 0).strides[last - 1]);
            *down = AxisTaps::made((1, 1), 1, |place| smallvec![(place, 0, 1.0)])?;
        }
        Some((axes, RowRepeats { kernel: repeat(level), rows, times, strides }))
    }

    /// The windows of planes whose rows are contiguous, and no wider than a part; with the dims in which a
    /// task is one row.
    fn planes(&self, [source, result]: [&PlacedTensor; 2]) -> Option<(Self, PoolPlanes)> {
        let LastAxis::Windows(along) = &self.last else { return None };
        let last = self.first + self.outer.len();
        let are_rows = |of: &PlacedTensor| of.strides[last] == 1 || of.dims[last] == 1;
        if is_inner(source, self, last) || ![source, result].into_iter().all(are_rows) {
            return None;
        }
        let one =
            WindowDim { image: 1, windows: 1, kernel: 1, dilation: 1, stride: 1, pad_begin: 0, pad_end: 0 };
        let of_down = self.windows.last().copied().unwrap_or(one);
        let [down, along] = [&of_down, along].map(WindowsAlong::of);
        let (rows, outputs) = (of_down.windows as usize, result.dims[last] as usize);
        if down.source == 0 || along.source == 0 {
            return None;
        }
        let planes = source.dims[self.channels] as usize;
        let most = |axis: &AxisTaps| axis.firsts.windows(2).map(|ends| ends[1] - ends[0]).max().unwrap_or(0);
        let further = &self.outer[..self.outer.len().saturating_sub(1)];
        let depth = further.iter().map(|axis| most(axis) as usize).saturating_product().max(1);
        let strip = Strip::new([&down, &along], [planes, depth], [rows, outputs])?;
        let of_task = (TASK_ELEMENTS / outputs).clamp(1, rows);
        let planes_of_task = (TASK_ELEMENTS / outputs / rows).clamp(1, planes);
        let strides = [source, result].map(|of| of.onto(of.dims.len(), 0).strides[self.channels]);
        let mut axes = self.clone();
        if let Some(outer) = axes.outer.last_mut() {
            *outer = AxisTaps::made((1, rows.div_ceil(of_task) as i64), 1, |_| smallvec![(0, 0, 1.0)])?;
        }
        Some((axes, PoolPlanes { down, rows, of_task, strip, planes, planes_of_task, strides }))
    }

    /// How many terms make the elements of a result.
    fn terms(&self, dims: &[i64]) -> usize {
        let of_axis = |axis: &AxisTaps| axis.taps.len().div_ceil(axis.rows().max(1));
        let last = match &self.last {
            LastAxis::Windows(dim) => dim.kernel as usize,
            LastAxis::Table(axis) => of_axis(axis),
        };
        let rows = self.outer.iter().map(of_axis).saturating_product();
        (shape::saturating_count(dims) as usize).saturating_mul(rows.saturating_add(last))
    }

    fn divisor(&self, op: &Op) -> PoolDivisor {
        match (op.kind(), &self.last) {
            (OpKind::AvgPool, LastAxis::Windows(dim)) if excludes_padding(op) => {
                let count = |window: i64| (dim.taps(window).end - dim.taps(window).start) as f32;
                PoolDivisor::Counted((0..dim.windows).map(count).collect())
            }
            (OpKind::AvgPoolBackward, _) if excludes_padding(op) => PoolDivisor::Same(1.0),
            (OpKind::AvgPool | OpKind::AvgPoolBackward, _) => PoolDivisor::Same(self.volume),
            _ => PoolDivisor::Same(1.0),
        }
    }
}

impl WindowsAlong {
    fn of(dim: &WindowDim) -> Self {
        Self {
            before: dim.pad_begin as usize,
            step: dim.stride as usize,
            between: dim.dilation as usize,
            ranks: dim.kernel as usize,
            source: dim.image as usize,
        }
    }
}

/// True if elements in the padding do not count in a mean.
fn excludes_padding(op: &Op) -> bool {
    op.bool_attr(Attr::ExcludePad) || op.str_attr(Attr::RoundingType) == Some("ceil")
}

impl AxisTaps {
    /// How many rows of the result are each row of the source, if that is a whole number of them in a run.
    fn repeats(&self) -> Option<usize> {
        let times =
            self.rows().checked_div(self.source).filter(|times| times * self.source == self.rows())?;
        let is_repeated = |row: usize| match self.of(row) {
            [tap] => tap.place as usize == row / times && tap.share == 1.0,
            _ => false,
        };
        (0..self.rows()).all(is_repeated).then_some(times)
    }

    /// The table of a dim with so many elements in source and result; `of_place` gives place, number and
    /// share of each tap. `None` if it would be too long.
    fn made(
        (from, to): (i64, i64),
        kernel: i64,
        of_place: impl Fn(i64) -> SmallVec<[(i64, i64, f32); 2]>,
    ) -> Option<Self> {
        let source = usize::try_from(from).ok().filter(|&from| from <= MAX_TAPS)?;
        let kernel = u32::try_from(kernel).ok()?;
        let (mut firsts, mut taps) = (vec![0], Vec::new());
        for place in 0..usize::try_from(to).ok().filter(|&to| to <= MAX_TAPS)? {
            for (place, number, share) in of_place(place as i64) {
                taps.push(AxisTap { place: place as u32, number: number as u32, share });
            }
            if taps.len() > MAX_TAPS {
                return None;
            }
            firsts.push(taps.len() as u32);
        }
        Some(Self { firsts, taps, kernel, source })
    }

    /// The rows of the result that each row of the source makes, in order.
    fn transposed(self) -> Self {
        let mut counts = vec![0u32; self.source + 1];
        self.taps.iter().for_each(|tap| counts[tap.place as usize + 1] += 1);
        for row in 0..self.source {
            counts[row + 1] += counts[row];
        }
        let firsts = counts.clone();
        let mut taps = vec![AxisTap { place: 0, number: 0, share: 0.0 }; self.taps.len()];
        for row in 0..self.rows() {
            for tap in self.of(row) {
                let at = &mut counts[tap.place as usize];
                taps[*at as usize] = AxisTap { place: row as u32, ..*tap };
                *at += 1;
            }
        }
        Self { source: self.rows(), firsts, taps, kernel: self.kernel }
    }

    /// The taps by rank and place; those that a place lacks are behind the source, with a share of 1.
    fn named(&self) -> PoolAcross {
        let outputs = self.rows();
        let ranks = (0..outputs).map(|row| self.of(row).len()).max().unwrap_or(0).max(1);
        let mut places = vec![self.source as u32; ranks * outputs];
        let mut shares = vec![1.0; ranks * outputs];
        for row in 0..outputs {
            for (rank, tap) in self.of(row).iter().enumerate() {
                places[rank * outputs + row] = tap.place;
                shares[rank * outputs + row] = tap.share;
            }
        }
        PoolAcross::Named { places, shares, ranks }
    }
}

/// A phase between two tensors; `inner` is the number of elements of a group, if another phase has settled
/// it.
fn phase(
    name: &'static str,
    axes: PoolAxes,
    (kernels, work): (PoolKernels, PoolWork),
    [source, result]: [&PlacedTensor; 2],
    level: Level,
    inner: Option<usize>,
) -> PoolPhase {
    let last = axes.first + axes.outer.len();
    let channels = source.dims[axes.channels] as usize;
    let inner = inner.unwrap_or(if is_inner(source, &axes, last) { channels } else { 1 });
    let has_channels = inner == channels && channels > 1;
    let planes: SmallVec<[usize; 2]> =
        [0, axes.channels].into_iter().filter(|&dim| dim == 0 || !has_channels).collect();
    let has_whole_rows = matches!(work, PoolWork::Scatter { .. } | PoolWork::Planes(..));
    let (width, outputs) = (source.dims[last] as usize, result.dims[last] as usize);
    let across = match &axes.last {
        LastAxis::Windows(dim) => PoolAcross::Strided(WindowsAlong::of(dim)),
        LastAxis::Table(taps) => taps.named(),
    };
    // Largest elements lie beside their numbers, and are read for each row of a window.
    let elements = if matches!(work, PoolWork::Numbers { .. }) { ROW_ELEMENTS / 4 } else { ROW_ELEMENTS };
    let part = match across {
        PoolAcross::Strided(WindowsAlong { step, .. }) if !has_whole_rows => {
            (elements / inner / step.max(1)).clamp(1, outputs)
        }
        _ => outputs,
    };
    let operand = |tensor: &PlacedTensor| operand(tensor, &axes, &planes, (last, inner), level);
    let mut phase = PoolPhase {
        name,
        kernels,
        work,
        source: operand(source),
        result: operand(result),
        is_plain: axes.outer.iter().all(|axis| axis.taps.iter().all(|tap| tap.share == 1.0)),
        planes: planes.iter().map(|&dim| source.dims[dim] as usize).collect(),
        outer: axes.outer,
        width,
        outputs,
        inner,
        across,
        part,
        parts: outputs.div_ceil(part),
        start: axes.start,
        scratch: PoolScratch::default(),
    };
    if let (&PoolWork::Planes(_, PoolPlanes { planes_of_task, .. }), Some(planes)) =
        (&phase.work, phase.planes.last_mut())
    {
        *planes = planes.div_ceil(planes_of_task);
        for operand in [&mut phase.source, &mut phase.result] {
            operand.planes.last_mut().into_iter().for_each(|stride| *stride *= planes_of_task as isize);
        }
    }
    phase.scratch = scratch_of(&phase);
    phase
}

/// True if the channels of a place lie closer to each other than the elements of a row.
fn is_inner(source: &PlacedTensor, axes: &PoolAxes, last: usize) -> bool {
    let (channels, along) = (source.strides[axes.channels], source.strides[last]);
    source.dims[axes.channels] > 1 && (channels < along || source.dims[last] == 1 && channels == 1)
}

/// A tensor by the dims of a phase.
fn operand(
    tensor: &PlacedTensor,
    axes: &PoolAxes,
    planes: &[usize],
    (last, inner): (usize, usize),
    level: Level,
) -> PoolOperand {
    let strides = tensor.onto(tensor.dims.len(), 0).strides;
    let bytes = tensor.data_type.size().unwrap_or(1);
    let float = RowType::of(tensor.data_type).unwrap_or(RowType::F32);
    let (along, within) = (strides[last], strides[axes.channels]);
    // The stride of one group, or of one element of a group, is none.
    let lies_within = inner == 1 || within == bytes as isize;
    let lies_along = tensor.dims[last] == 1 || along == (inner * bytes) as isize;
    let width = Width::of(bytes).unwrap_or(Width::W4);
    let is_f32 = tensor.data_type == DataType::F32;
    PoolOperand {
        base: tensor.base,
        float,
        planes: planes.iter().map(|&dim| strides[dim]).collect(),
        outer: (axes.first..last).map(|dim| strides[dim]).collect(),
        along,
        within: if inner == 1 { along } else { within },
        packed: (!(lies_within && lies_along)).then(|| (pack_tile(level, width), unpack_tile(level, width))),
        to_f32: convert(level, tensor.data_type, DataType::F32)
            .map(|convert| convert.kernel)
            .filter(|_| !is_f32),
        of_f32: convert(level, DataType::F32, tensor.data_type)
            .map(|convert| convert.kernel)
            .filter(|_| !is_f32),
    }
}

/// The scratch of a thread.
fn scratch_of(phase: &PoolPhase) -> PoolScratch {
    let &PoolPhase { width, outputs, inner, part, .. } = phase;
    let (groups, room) = match phase.across {
        // The scattered row is that of the result, with the padding.
        PoolAcross::Strided(along) => match phase.work {
            PoolWork::Planes(_, PoolPlanes { strip, .. }) => (0, strip.numbers()),
            PoolWork::Scatter { .. } => (width, along.reach(width).max(along.before.saturating_add(outputs))),
            _ => (along.reach(part).min(width), along.reach(part)),
        },
        PoolAcross::Named { .. } => (width, width + 1),
    };
    let step = if let PoolAcross::Strided(along) = phase.across { along.step } else { 0 };
    let floats = |groups: usize| groups.saturating_mul(inner).saturating_mul(size_of::<f32>());
    let mut arena = Arena::behind(0);
    let is_of_numbers = matches!(phase.work, PoolWork::Numbers { .. });
    let packed = arena.take(floats(groups));
    let widened = arena.take(floats(groups));
    let combined = arena.take(floats(room));
    let numbers = arena.take(if is_of_numbers { floats(room) } else { 0 });
    let is_of_rows = !matches!(phase.work, PoolWork::Planes(..));
    let in_parts =
        if inner == 1 && is_of_rows { floats(room.saturating_add(step.saturating_mul(2))) } else { 0 };
    let apart = arena.take(in_parts);
    let apart_numbers = arena.take(if is_of_numbers { in_parts } else { 0 });
    let of_result = if is_of_rows { floats(part) } else { 0 };
    let result = arena.take(of_result);
    let narrow = arena.take(of_result);
    let end = arena.bytes();
    PoolScratch { packed, widened, combined, numbers, apart, apart_numbers, result, narrow, end }
}

fn bytes_of(tensor: &PlacedTensor) -> usize {
    (shape::saturating_count(&tensor.dims) as usize).saturating_mul(tensor.data_type.size().unwrap_or(1))
}
