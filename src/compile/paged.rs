//! Phases that move rows between a cache in pages and a tensor.

use smallvec::smallvec;

use super::lookup::{add_in_place, add_start, bytes_along, bytes_of};
use super::memory;
use super::phases::{AxisStrides, PlacedTensor, PlanBuilder};
use super::shaped_partition::ShapedPartition;
use crate::error::{CompileFault, Error, Result};
use crate::graph::op::Op;
use crate::graph::paged::{LoadedRows, PagedCache, cache_of_store};
use crate::kernels::Width;
use crate::kernels::lookup::{CopyRow, copy_row};
use crate::plan::{
    Base, IndexCheck, IndexRule, LoadedSequences, LookupParts, PageTable, PagedPhase, PagedRows, PagedWork,
    PartAxis, Phase, PlainRows, SequenceLengths, ValueId,
};
use crate::types::dtype::DataType;
use crate::types::kind::OpKind;

/// True for a partition of one op on a cache in pages.
pub(super) fn is_of_pages(shaped: &ShapedPartition<'_>) -> bool {
    let kind = shaped.partition.ops()[0].kind();
    matches!(kind, OpKind::PagedLoad | OpKind::CacheStore)
}

/// Adds the phases of such a partition.
pub(super) fn add(shaped: &ShapedPartition<'_>, plan: &mut PlanBuilder<'_>) -> Result<()> {
    let anchor = &shaped.group.anchors[0];
    let op = plan.op(anchor.op);
    if op.kind() == OpKind::PagedLoad {
        return add_load(plan, 0);
    }
    let inputs: Vec<PlacedTensor> =
        anchor.inputs.iter().map(|&value| plan.operand(value)).collect::<Result<_>>()?;
    let result = plan.result(anchor.outputs[0]);
    let moved = bytes_of(&inputs[1]).saturating_mul(2).saturating_add(bytes_of(&result).saturating_mul(2));
    plan.count_traffic(moved, bytes_of(&result), 0);
    add_store(op, &inputs, &result, plan)
}

/// The values that loads of a group give.
pub(super) fn loaded(plan: &PlanBuilder<'_>) -> Vec<ValueId> {
    let anchors = plan.group().anchors.iter().enumerate();
    let loads = anchors.filter(|&(index, _)| plan.anchor_op(index).kind() == OpKind::PagedLoad);
    loads.map(|(_, anchor)| anchor.outputs[0]).collect()
}

/// Adds the phase of the `PagedLoad` that an anchor is.
pub(super) fn add_load(plan: &mut PlanBuilder<'_>, anchor: usize) -> Result<()> {
    let op = plan.anchor_op(anchor);
    let anchor = &plan.group().anchors[anchor];
    let inputs: Vec<PlacedTensor> =
        anchor.inputs.iter().map(|&value| plan.operand(value)).collect::<Result<_>>()?;
    let result = plan.result(anchor.outputs[0]);
    add_load_of(op, &inputs, &result, plan)
}

/// The inputs of a load: the cache, its table, and the lengths if there are any.
pub(super) struct LoadOperands<'t> {
    pub(super) cache: &'t PlacedTensor,
    pub(super) table: &'t PlacedTensor,
    pub(super) lengths: Option<&'t PlacedTensor>,
}

impl LoadOperands<'_> {
    /// How the table leads to rows.
    pub(super) fn page_table(&self, rows: &LoadedRows) -> PageTable {
        let (cache, table) = (bytes_along(self.cache), bytes_along(self.table));
        PageTable {
            entry_type: self.table.data_type,
            entry_stride: table[1],
            length_type: self.lengths.map(|lengths| lengths.data_type),
            pages: rows.cache.pages,
            page: rows.cache.page as usize,
            rows: rows.rows() as usize,
            sequences: None,
            bits: self.cache.data_type.bits(),
            page_stride: cache[0],
            row_stride: row_stride(&cache, &rows.cache),
        }
    }

    /// Lets each execution check lengths and the entries of the table, as far as they are inputs.
    pub(super) fn add_checks(&self, plan: &mut PlanBuilder<'_>, rows: &LoadedRows) {
        let of_lengths = self.lengths.map(|lengths| (lengths, bytes_along(lengths)[0]));
        if let Some((lengths, stride)) = of_lengths
            && let Base::Port(port) = lengths.base
        {
            plan.check_indices(IndexCheck {
                port,
                data_type: lengths.data_type,
                dims: smallvec![(rows.sequences as usize, stride)],
                rule: IndexRule::Between([0, rows.rows()]),
            });
        }
        let lengths = of_lengths.and_then(|(lengths, stride)| match lengths.base {
            Base::Port(port) => Some(SequenceLengths { port, data_type: lengths.data_type, stride }),
            _ => None,
        });
        let strides = bytes_along(self.table);
        if let (Base::Port(port), true) = (self.table.base, lengths.is_some() == self.lengths.is_some()) {
            plan.check_indices(IndexCheck {
                port,
                data_type: self.table.data_type,
                dims: smallvec![(rows.sequences as usize, strides[0]), (rows.entries as usize, strides[1])],
                rule: IndexRule::Pages { pages: rows.cache.pages, page: rows.cache.page, lengths },
            });
        }
    }
}

fn add_load_of(
    op: &Op,
    inputs: &[PlacedTensor],
    result: &PlacedTensor,
    plan: &mut PlanBuilder<'_>,
) -> Result<()> {
    let dims: Vec<&[i64]> = inputs.iter().map(|input| &input.dims[..]).collect();
    let rows = LoadedRows::new(op, &dims)?;
    let [cache, result] = [&inputs[0], result].map(in_bytes);
    let (Some(cache), Some(result)) = (cache, result) else { return Err(refuse_halves(plan)) };
    let operands = LoadOperands { cache: &cache, table: &inputs[1], lengths: inputs.get(2) };
    operands.add_checks(plan, &rows);
    if result.dims.contains(&0) {
        return Ok(());
    }
    let [first, to] = [operands.table, &result].map(bytes_along);
    let sequences = LoadedSequences {
        table: operands.page_table(&rows),
        entries: (operands.table.base, first[0]),
        lengths: operands.lengths.map(|lengths| (lengths.base, bytes_along(lengths)[0])),
        sequences: rows.sequences as usize,
        zero: plan.constant([[0; 8]]),
    };
    let entries = (rows.sequences * rows.entries) as usize;
    let phase = PagedPhase {
        name: op.kind().name(),
        cache: paged_rows(operands.cache, &rows.cache),
        rows: PlainRows {
            base: result.base,
            sequence_stride: to[0],
            head_stride: to[1],
            row_stride: to[2],
            element_stride: to[3],
        },
        work: PagedWork::Load(sequences),
        copy: copy_of(op, &result, plan)?,
        parts: parts_of(bytes_of(&result), entries),
    };
    plan.push(Phase::Paged(Box::new(phase)), 0, false);
    Ok(())
}

/// Adds the phases of a `CacheStore`: a copy of the cache, unless the result takes its place, and the rows.
fn add_store(
    op: &Op,
    inputs: &[PlacedTensor],
    result: &PlacedTensor,
    plan: &mut PlanBuilder<'_>,
) -> Result<()> {
    let [from, rows, slots] = inputs else { return Ok(()) };
    let cache = cache_of_store(op, &[&from.dims[..], &rows.dims[..], &slots.dims[..]])?;
    let [Some(from), Some(rows), Some(result)] = [from, rows, result].map(in_bytes) else {
        return Err(refuse_halves(plan));
    };
    add_start(Some(&from), &result, plan);
    if [&rows, slots].iter().all(|input| input.base != from.base) {
        add_in_place(&from, &result, plan);
    }
    let slot_stride = bytes_along(slots)[0];
    if let Base::Port(port) = slots.base {
        plan.check_indices(IndexCheck {
            port,
            data_type: slots.data_type,
            dims: smallvec![(slots.dims[0] as usize, slot_stride)],
            rule: IndexRule::Between([-1, cache.slots() - 1]),
        });
    }
    if result.dims.contains(&0) || rows.dims.contains(&0) {
        return Ok(());
    }
    let along = bytes_along(&rows);
    let phase = PagedPhase {
        name: op.kind().name(),
        cache: paged_rows(&result, &cache),
        rows: PlainRows {
            base: rows.base,
            sequence_stride: 0,
            head_stride: along[1],
            row_stride: along[0],
            element_stride: along[2],
        },
        work: PagedWork::Store {
            slots: slots.base,
            slot_type: slots.data_type,
            slot_stride,
            tokens: rows.dims[0] as usize,
        },
        copy: copy_of(op, &result, plan)?,
        parts: parts_of(bytes_of(&rows), cache.heads as usize),
    };
    plan.push(Phase::Paged(Box::new(phase)), 0, false);
    Ok(())
}

/// A tensor whose last dim is along the elements of rows: of elements of four bits the bytes; `None` if these
/// do not follow each other, or a row begins within a byte.
pub(super) fn in_bytes(tensor: &PlacedTensor) -> Option<PlacedTensor> {
    if tensor.data_type.size().is_some() {
        return Some(tensor.clone());
    }
    let (mut of_bytes, last) = (tensor.clone(), tensor.dims.len().checked_sub(1)?);
    let is_even = |dim: usize| tensor.dims[dim] == 1 || tensor.strides[dim] % 2 == 0;
    let follows = tensor.dims[last] % 2 == 0 && tensor.strides[last] == 1;
    let is_of_bytes = tensor.dims.contains(&0) || follows && (0..last).all(is_even);
    if !is_of_bytes {
        return None;
    }
    of_bytes.data_type = DataType::U8;
    of_bytes.dims[last] /= 2;
    of_bytes.strides[..last].iter_mut().for_each(|stride| *stride /= 2);
    Some(of_bytes)
}

fn refuse_halves(plan: &PlanBuilder<'_>) -> Error {
    let why = "rows of 4-bit elements begin with a byte, and their elements follow each other";
    plan.refuse(CompileFault::Unsupported(why.into()))
}

fn paged_rows(tensor: &PlacedTensor, cache: &PagedCache) -> PagedRows {
    let strides = bytes_along(tensor);
    PagedRows {
        base: tensor.base,
        pages: cache.pages,
        heads: cache.heads as usize,
        page: cache.page as usize,
        depth: tensor.dims[3] as usize,
        page_stride: strides[0],
        head_stride: strides[1],
        row_stride: row_stride(&strides, cache),
        element_stride: strides[3],
    }
}

/// Bytes from row to row, which pages of one row have from page to page.
fn row_stride(strides: &AxisStrides, cache: &PagedCache) -> isize {
    if cache.page == 1 { strides[0] } else { strides[2] }
}

fn copy_of(op: &Op, tensor: &PlacedTensor, plan: &PlanBuilder<'_>) -> Result<CopyRow> {
    let width = tensor.data_type.size().and_then(Width::of);
    let none = || CompileFault::Unsupported(format!("no kernel runs {}", op.kind()));
    width.map(copy_row).ok_or_else(|| plan.refuse(none()))
}

/// Divides what moves so many bytes.
fn parts_of(bytes: usize, most: usize) -> LookupParts {
    LookupParts { along: PartAxis::Row, count: bytes.div_ceil(memory::lookup_part()).clamp(1, most.max(1)) }
}
