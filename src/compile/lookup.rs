//! Phases of lookups, whose places indices name, and of the first elements of lines.

use smallvec::SmallVec;

use super::arena::Arena;
use super::memory;
use super::phases::{AxisStrides, PlacedTensor, PlanBuilder};
use super::row_axes::Along;
use super::shaped_partition::ShapedPartition;
use crate::error::{CompileFault, Result};
use crate::graph::lookup::{self, FirstAlong, LookupSpace};
use crate::graph::op::Op;
use crate::kernels::lookup::{self as kernels, Combination, RowStrides};
use crate::kernels::pack::pack_tile;
use crate::kernels::pointwise::convert;
use crate::kernels::top_k::{self, LineOrder, Ranking, SizeOrder};
use crate::kernels::transpose::transpose_tile;
use crate::kernels::{LINE, StorePolicy, Width};
use crate::plan::{
    Base, InPlacePorts, IndexCheck, IndexOperand, IndexRule, LINES, LineCopy, LineDim, LineForm, LineOperand,
    LookupAxis, LookupParts, LookupPhase, LookupWork, PartAxis, Phase, PlaceDim, TopKPhase,
};
use crate::types::dtype::DataType;
use crate::types::kind::{Attr, Level, OpKind};
use crate::types::shape::{self, SaturatingProduct};

/// Adds the phases of a partition of one op, which is a lookup or gives the first elements of lines.
pub(super) fn add(shaped: &ShapedPartition<'_>, plan: &mut PlanBuilder<'_>) -> Result<()> {
    let anchor = &shaped.group.anchors[0];
    let op = plan.op(anchor.op);
    let inputs: Vec<PlacedTensor> =
        anchor.inputs.iter().map(|&value| plan.operand(value)).collect::<Result<_>>()?;
    let outputs: Vec<PlacedTensor> = anchor.outputs.iter().map(|&value| plan.result(value)).collect();
    match op.kind() {
        OpKind::TopK | OpKind::ArgMax | OpKind::ArgMin => add_first(op, &inputs[0], &outputs, plan),
        _ => add_lookup(op, &inputs, &outputs[0], plan),
    }
}

/// The tensors of a lookup.
struct LookupCall<'c> {
    op: &'c Op,
    table: &'c PlacedTensor,
    rows: &'c PlacedTensor,
    indices: &'c PlacedTensor,
    space: LookupSpace,
}

fn add_lookup(
    op: &Op,
    inputs: &[PlacedTensor],
    result: &PlacedTensor,
    plan: &mut PlanBuilder<'_>,
) -> Result<()> {
    let dims: Vec<&[i64]> = inputs.iter().map(|input| &input.dims[..]).collect();
    let space = lookup::space(op, &dims)?;
    let indices = &inputs[1];
    let is_gather =
        !matches!(op.kind(), OpKind::ScatterElements | OpKind::ScatterND | OpKind::GatherBackward);
    let (table, rows) = match op.kind() {
        OpKind::GatherBackward => (result, &inputs[0]),
        _ if is_gather => (&inputs[0], result),
        _ => (result, &inputs[2]),
    };
    let moved = bytes_of(rows).saturating_mul(2).saturating_add(bytes_of(indices));
    let moved = if is_gather { moved } else { moved.saturating_add(bytes_of(result).saturating_mul(2)) };
    plan.count_traffic(moved, bytes_of(result), 0);
    if !is_gather {
        let from = (op.kind() != OpKind::GatherBackward).then(|| &inputs[0]);
        add_start(from, result, plan);
        let is_read_once = inputs[1..].iter().all(|input| input.base != inputs[0].base);
        if let (Some(from), true) = (from, is_read_once) {
            add_in_place(from, result, plan);
        }
    }
    let call = LookupCall { op, table, rows, indices, space };
    if !op.bool_attr(Attr::ClampIndices) {
        call.add_check(plan);
    }
    let sizes = call.space.axes.iter().map(|&axis| call.space.table[axis]);
    // Without an element to name, every index is out of range.
    if rows.dims.contains(&0) || sizes.min() == Some(0) {
        return Ok(());
    }
    let work = call
        .work(is_gather)
        .ok_or_else(|| plan.refuse(CompileFault::Unsupported(format!("no kernel runs {}", op.kind()))))?;
    let phase = call.phase(work);
    plan.push(Phase::Lookup(Box::new(phase)), 0, !is_gather);
    Ok(())
}

impl LookupCall<'_> {
    /// Lets each execution check the indices, if they are an input.
    fn add_check(&self, plan: &mut PlanBuilder<'_>) {
        let Base::Port(port) = self.indices.base else { return };
        let mut dims: SmallVec<[(usize, isize); 6]> = SmallVec::new();
        let own = self.indices.dims.iter().zip(bytes_along(self.indices)).filter(|(dim, _)| **dim != 1);
        // The first of repeated indices is the first that is wrong.
        for (&dim, stride) in own.skip_while(|&(&dim, stride)| dim != 0 && stride == 0) {
            match dims.last_mut() {
                // Neighbours that lie as one are one.
                Some(outer) if stride.checked_mul(dim as isize) == Some(outer.1) => {
                    *outer = (outer.0 * dim as usize, stride);
                }
                _ => dims.push((dim as usize, stride)),
            }
        }
        plan.check_indices(IndexCheck {
            port,
            data_type: self.indices.data_type,
            dims,
            rule: IndexRule::Dims(self.space.axes.iter().map(|&axis| self.space.table[axis]).collect()),
        });
    }

    fn work(&self, is_gather: bool) -> Option<LookupWork> {
        let width = Width::of(self.rows.data_type.size()?)?;
        if is_gather {
            return Some(LookupWork::Gather {
                row: kernels::copy_row(width),
                line: Some(kernels::move_elements(width, self.indices.data_type, true)),
            });
        }
        let combination = match (self.op.kind(), self.op.str_attr(Attr::Reduction)) {
            (OpKind::GatherBackward, _) | (_, Some("add")) => Combination::Add,
            (_, Some("mul")) => Combination::Multiply,
            (_, Some("min")) => Combination::Minimum,
            (_, Some("max")) => Combination::Maximum,
            _ => Combination::Replace,
        };
        let line = kernels::move_elements(width, self.indices.data_type, false);
        kernels::combine_row(self.rows.data_type, combination).map(|row| LookupWork::Scatter {
            row,
            line: Some(line).filter(|_| combination == Combination::Replace),
        })
    }

    fn phase(&self, work: LookupWork) -> LookupPhase {
        let [table, rows, indices] = [self.table, self.rows, self.indices].map(bytes_along);
        let along = |strides: &AxisStrides, dim: Option<usize>| dim.map_or(0, |dim| strides[dim]);
        let dims = self.space.dims.iter().enumerate().map(|(row, dim)| PlaceDim {
            extent: dim.size as usize,
            table: along(&table, dim.table),
            rows: rows[row],
            indices: along(&indices, dim.indices),
        });
        let axes = self.space.axes.iter().map(|&axis| {
            let size = self.space.table[axis];
            LookupAxis { size, stride: if size == 1 { 0 } else { table[axis] } }
        });
        let operand = IndexOperand {
            base: self.indices.base,
            data_type: self.indices.data_type,
            axes: axes.collect(),
            tuple_stride: if self.space.has_tuples { indices.last().copied().unwrap_or(0) } else { 0 },
        };
        lookup_phase(self.op.kind().name(), work, [self.table, self.rows], Some(operand), dims.collect())
    }
}

/// Adds the phase that gives the result of a scatter its first elements: a copy of a tensor, or zeros.
pub(super) fn add_start(from: Option<&PlacedTensor>, to: &PlacedTensor, plan: &mut PlanBuilder<'_>) {
    let width = to.data_type.size().and_then(Width::of);
    let (Some(width), false) = (width, to.dims.contains(&0)) else { return };
    let name = if from.is_some() { "copy" } else { "fill with 0" };
    let zeros = || PlacedTensor {
        base: plan.constant([[0; 8]]),
        strides: to.dims.iter().map(|_| 0).collect(),
        ..to.clone()
    };
    let from = from.cloned().unwrap_or_else(zeros);
    let (table, rows) = (bytes_along(&from), bytes_along(to));
    let dim = |dim: usize| PlaceDim {
        extent: to.dims[dim] as usize,
        table: table[dim],
        rows: rows[dim],
        indices: 0,
    };
    let dims = (0..to.dims.len()).map(dim).collect();
    let work = LookupWork::Gather { row: kernels::copy_row(width), line: None };
    let phase = lookup_phase(name, work, [&from, to], None, dims);
    plan.push(Phase::Lookup(Box::new(phase)), 0, false);
}

/// Notes that a result may take the memory of an input, from which it is copied at the same places.
pub(super) fn add_in_place(from: &PlacedTensor, to: &PlacedTensor, plan: &mut PlanBuilder<'_>) {
    if let (Base::Port(input), Base::Port(output)) = (from.base, to.base)
        && bytes_along(from) == bytes_along(to)
    {
        plan.share(InPlacePorts { input, output });
    }
}

/// A phase over places. The row of a place takes the dims along which the same indices serve, as far as they
/// follow each other in memory.
fn lookup_phase(
    name: &'static str,
    work: LookupWork,
    [table, rows]: [&PlacedTensor; 2],
    indices: Option<IndexOperand>,
    dims: SmallVec<[PlaceDim; 6]>,
) -> LookupPhase {
    let element = rows.data_type.size().unwrap_or(1);
    let mut dims: SmallVec<[PlaceDim; 6]> = dims.into_iter().filter(|dim| dim.extent != 1).collect();
    let is_scatter = matches!(work, LookupWork::Scatter { .. });
    // Updates of one element keep their order. Of several dims, the one whose elements are neighbours.
    let may_be_row = |dim: &PlaceDim| dim.indices == 0 && (!is_scatter || dim.table != 0);
    let distance = |dim: &PlaceDim| dim.rows.unsigned_abs().max(dim.table.unsigned_abs());
    let nearest =
        (0..dims.len()).filter(|&dim| may_be_row(&dims[dim])).min_by_key(|&dim| distance(&dims[dim]));
    // Places by one index follow each other in a line, which a row of elements further apart would cut.
    let may_be_line = !is_scatter && indices.as_ref().is_some_and(|indices| indices.axes.len() == 1);
    let is_near =
        |row: &usize| dims.iter().all(|dim| dims[*row].rows.unsigned_abs() <= dim.rows.unsigned_abs());
    let nearest = nearest.filter(|row| !may_be_line || is_near(row));
    let mut row = nearest.map(|nearest| dims.remove(nearest));
    if let Some(row) = &mut row {
        while let Some(outer) = dims.iter().position(|dim| may_be_row(dim) && follows(dim, row)) {
            row.extent *= dims.remove(outer).extent;
        }
    }
    let mut dims = merged(&dims);
    if dims.is_empty() {
        dims.push(PlaceDim { extent: 1, table: 0, rows: 0, indices: 0 });
    }
    let row = row.map_or(RowStrides { count: 1, table: 0, rows: 0 }, |row| RowStrides {
        count: row.extent,
        table: row.table,
        rows: row.rows,
    });
    let has_line = row.count == 1 && indices.as_ref().is_some_and(|indices| indices.axes.len() == 1);
    let work = match work {
        LookupWork::Gather { row, line } => LookupWork::Gather { row, line: line.filter(|_| has_line) },
        LookupWork::Scatter { row, line } => LookupWork::Scatter { row, line: line.filter(|_| has_line) },
    };
    let parts = parts_of(&dims, row, element, is_scatter);
    LookupPhase { name, work, table: table.base, rows: rows.base, indices, dims, row, parts }
}

/// True if a step along an outer dim is one over a whole inner dim, in all tensors.
fn follows(outer: &PlaceDim, inner: &PlaceDim) -> bool {
    let whole = |stride: isize| stride.checked_mul(inner.extent as isize);
    let pairs = [(outer.table, inner.table), (outer.rows, inner.rows), (outer.indices, inner.indices)];
    pairs.iter().all(|&(outer, inner)| whole(inner) == Some(outer))
}

/// The dims with neighbours that turn as one made one.
fn merged(dims: &[PlaceDim]) -> SmallVec<[PlaceDim; 4]> {
    let mut merged: SmallVec<[PlaceDim; 4]> = SmallVec::new();
    for &dim in dims {
        match merged.last_mut() {
            Some(outer) if follows(outer, &dim) => {
                *outer = PlaceDim { extent: outer.extent * dim.extent, ..dim }
            }
            _ => merged.push(dim),
        }
    }
    merged
}

/// Divides the places along the longest range. The updates of a scatter may name the same place, and are
/// taken in order, so only dims that lie apart in the table divide them.
fn parts_of(dims: &[PlaceDim], row: RowStrides, element: usize, is_scatter: bool) -> LookupParts {
    let places = dims.iter().map(|dim| dim.extent).saturating_product();
    let bytes = places.saturating_mul(row.count).saturating_mul(element);
    let most = bytes.div_ceil(memory::lookup_part());
    // A part has whole lines of the cache.
    let lines = |extent: usize, stride: usize| (extent.saturating_mul(stride) / LINE).clamp(1, extent.max(1));
    let stride = |dim: &PlaceDim| dim.rows.unsigned_abs().max(dim.table.unsigned_abs());
    let divides = |dim: &PlaceDim| !is_scatter || dim.table != 0;
    let of_dims = (dims.iter().enumerate())
        .filter(|(_, dim)| divides(dim))
        .map(|(index, dim)| (PartAxis::Dim(index), lines(dim.extent, stride(dim))));
    let ranges = of_dims.chain([(PartAxis::Row, lines(row.count, element))]);
    // The outermost of those that are long enough: its parts are the largest.
    let mut best = (PartAxis::Row, 1);
    for (along, extent) in ranges {
        if extent.min(most) > best.1 {
            best = (along, extent.min(most));
        }
    }
    LookupParts { along: best.0, count: best.1 }
}

/// Time in which an element is compared with the first one so far, in bytes that could be moved in that time.
const COMPARED: usize = 8;

/// Time in which an element is put in order, in the same way.
const SORTED: usize = 64;

/// Adds the phase that gives the first elements of lines.
fn add_first(
    op: &Op,
    source: &PlacedTensor,
    outputs: &[PlacedTensor],
    plan: &mut PlanBuilder<'_>,
) -> Result<()> {
    let FirstAlong { axis, count } = lookup::first_along(op, &source.dims)?;
    let (length, count) = (source.dims[axis] as usize, count as usize);
    let unsupported = || CompileFault::Unsupported(format!("no kernel runs {}", op.kind()));
    let wide = top_k::wide_type(source.data_type).filter(|_| u32::try_from(length).is_ok());
    let wide = wide.ok_or_else(|| plan.refuse(unsupported()))?;
    let by_size = match op.kind() {
        OpKind::ArgMin => SizeOrder::NanAndSmallest,
        OpKind::TopK if !op.bool_attr(Attr::Largest) => SizeOrder::Smallest,
        _ => SizeOrder::Largest,
    };
    let (elements, indices) = match outputs {
        [elements, indices] => (Some(elements), indices),
        _ => (None, &outputs[0]),
    };
    let is_removed = indices.dims.len() < source.dims.len();
    let operand = |tensor: &PlacedTensor, is_removed: bool| LineOperand {
        base: tensor.base,
        data_type: tensor.data_type,
        stride: if is_removed { 0 } else { bytes_along(tensor)[axis] },
    };
    // The dim of a result that belongs to one of the source.
    let of_result = |dim: usize, tensor: Option<&PlacedTensor>| {
        let dim = if is_removed && dim > axis { dim - 1 } else { dim };
        tensor.map_or(0, |tensor| bytes_along(tensor)[dim])
    };
    let lines = (0..source.dims.len()).filter(|&dim| dim != axis && source.dims[dim] != 1);
    let dims: SmallVec<[LineDim; 4]> = lines
        .map(|dim| LineDim {
            extent: source.dims[dim] as usize,
            source: bytes_along(source)[dim],
            elements: of_result(dim, elements),
            indices: of_result(dim, Some(indices)),
        })
        .collect();
    let written = outputs.iter().map(bytes_of).fold(0, usize::saturating_add);
    let work = count_of(source).saturating_mul(if count == 1 { COMPARED } else { SORTED });
    plan.count_traffic(bytes_of(source).saturating_add(written), written, work);
    if count == 0 || dims.iter().any(|dim| dim.extent == 0) {
        return Ok(());
    }
    let order = LineOrder { by_size, last_of_equal: op.bool_attr(Attr::SelectLastIndex) };
    let phase = first_phase(FirstLines {
        name: op.kind().name(),
        level: plan.level,
        wide,
        order,
        counts: (length, count),
        source: operand(source, false),
        elements: elements.map(|elements| operand(elements, false)),
        indices: operand(indices, is_removed),
        dims: merged_lines(dims),
    });
    plan.push(Phase::TopK(Box::new(phase)), 0, false);
    Ok(())
}

/// Lines whose first elements are asked for.
struct FirstLines {
    name: &'static str,
    level: Level,
    /// The type to which elements are widened.
    wide: DataType,
    order: LineOrder,
    /// The length of a line, and how many elements of it are given.
    counts: (usize, usize),
    source: LineOperand,
    elements: Option<LineOperand>,
    indices: LineOperand,
    dims: SmallVec<[LineDim; 4]>,
}

/// Elements of lines that one task goes through.
const OF_TASK: usize = 32 << 10;

/// Most elements of a line that is transposed with its neighbours.
const SHORT_LINE: usize = 128;

/// Elements of lines that are transposed at once: they stay in the first-level cache.
const TRANSPOSED: usize = 8 << 10;

/// Steps along lines whose elements are widened at once.
const WIDENED_STEPS: usize = 32;

fn first_phase(lines: FirstLines) -> TopKPhase {
    let FirstLines { name, level, wide, order, counts: (length, count), source, elements, indices, dims } =
        lines;
    let (width, wide_width) = (source.data_type.size().unwrap_or(1), wide.size().unwrap_or(8));
    let along = dims[dims.len() - 1];
    let widen = convert(level, source.data_type, wide).filter(|_| source.data_type != wide);
    let is_next = |stride: isize| stride == width as isize;
    let of_width = Width::of(width).unwrap_or(Width::W1);
    let (form, pack) = match () {
        () if count == 1 && is_next(along.source) && along.extent > 1 => {
            (LineForm::Columns { steps: if widen.is_some() { WIDENED_STEPS } else { length } }, None)
        }
        () if count == 1 && is_next(source.stride) && length <= SHORT_LINE && along.extent >= LINE => {
            (LineForm::Transposed, Some(transpose_tile(level, of_width, StorePolicy::Temporal)))
        }
        () if is_next(source.stride) || length == 1 => (LineForm::Rows, None),
        () => (LineForm::Rows, Some(pack_tile(level, of_width))),
    };
    // Sorting takes longer.
    let elements_of_task = if count == 1 { OF_TASK } else { OF_TASK / 8 };
    let (most, steps) = match form {
        LineForm::Columns { steps } => (LINES, steps),
        LineForm::Transposed => ((TRANSPOSED / length).clamp(LINE, LINES), length),
        LineForm::Rows => ((elements_of_task / length).clamp(1, LINES), 1),
    };
    let room = if form == LineForm::Rows { length } else { most.saturating_mul(steps) };
    let mut arena = Arena::behind(0);
    let pack = pack.map(|kernel| LineCopy { kernel, scratch: arena.take(room.saturating_mul(width)) });
    let widen =
        widen.map(|of| LineCopy { kernel: of.kernel, scratch: arena.take(room.saturating_mul(wide_width)) });
    let keys = if count == 1 { LINES * size_of::<u64>() } else { top_k::sorted_bytes(wide, length, count) };
    TopKPhase {
        name,
        kernels: top_k::first_of_lines(level, wide),
        ranking: Ranking::new(wide, order),
        form,
        length,
        count,
        source,
        elements,
        indices,
        dims,
        lines: most,
        pack,
        widen,
        width: wide_width,
        keys: arena.take(keys),
        places: arena.take(count.max(LINES).saturating_mul(size_of::<u32>())),
        scratch: arena.bytes(),
    }
}

/// The dims of lines, of which neighbours are one if their strides allow; at least one.
fn merged_lines(dims: SmallVec<[LineDim; 4]>) -> SmallVec<[LineDim; 4]> {
    let mut merged: SmallVec<[LineDim; 4]> = SmallVec::new();
    for dim in dims {
        let spans = |outer: isize, inner: isize| outer == inner.saturating_mul(dim.extent as isize);
        match merged.last_mut() {
            Some(outer)
                if spans(outer.source, dim.source)
                    && spans(outer.elements, dim.elements)
                    && spans(outer.indices, dim.indices) =>
            {
                *outer = LineDim { extent: outer.extent.saturating_mul(dim.extent), ..dim };
            }
            _ => merged.push(dim),
        }
    }
    if merged.is_empty() {
        merged.push(LineDim { extent: 1, source: 0, elements: 0, indices: 0 });
    }
    merged
}

/// The strides of a tensor in bytes; 0 along dims of one element.
pub(super) fn bytes_along(tensor: &PlacedTensor) -> AxisStrides {
    tensor.onto(tensor.dims.len(), 0).strides
}

pub(super) fn bytes_of(tensor: &PlacedTensor) -> usize {
    count_of(tensor).saturating_mul(tensor.data_type.bits()).div_ceil(8)
}

fn count_of(tensor: &PlacedTensor) -> usize {
    shape::saturating_count(&tensor.dims) as usize
}
