//! Keys and values in the pages of a cache, which attention reads where they lie.

use crate::compile::arena::Arena;
use crate::compile::elementwise::Anchor;
use crate::compile::lookup::bytes_along;
use crate::compile::paged::{LoadOperands, add_load, in_bytes};
use crate::compile::phases::{PlacedTensor, PlanBuilder};
use crate::compile::quantized_tokens::{DequantizedValue, LoadedValue, SourceAxes};
use crate::error::Result;
use crate::graph::paged::LoadedRows;
use crate::kernels::LINE;
use crate::plan::{AttentionCore, Base, PageTable, PagedScratch, SequenceSteps, ValueId};
use crate::types::dtype::DataType;
use crate::types::fallback::{FallbackReason, FallbackReason as R, FastForm};
use crate::types::kind::OpKind;
use crate::types::shape::Dims;

/// An operand in pages.
pub(super) struct PagedOperand {
    /// The value that its load would give, or its rows in order.
    load: ValueId,
    pub(super) is_dequantized: bool,
    pub(super) data_type: DataType,
    /// Strides along the sequences, heads, rows and elements of the value, in elements of the cache and
    /// within a page: none along sequences, because tables lead to their pages.
    pub(super) strides: Dims,
    /// The first element of the cache.
    pub(super) base: Base,
    pub(super) offset: isize,
    pub(super) table: PageTable,
    /// The first entry and the first length, and for each the bytes from sequence to sequence.
    pub(super) entries: (Base, isize),
    pub(super) lengths: Option<(Base, isize)>,
    rows: LoadedRows,
    /// The cache in bytes, its table and its lengths.
    tensors: (PlacedTensor, PlacedTensor, Option<PlacedTensor>),
}

/// The loads from which a value is computed, and which no phase has written.
fn loads_of<'a>(plan: &PlanBuilder<'a>, value: ValueId) -> Vec<(usize, &'a Anchor)> {
    let anchors = plan.group().anchors.iter().enumerate();
    let is_load = |&(index, anchor): &(usize, &Anchor)| {
        plan.anchor_op(index).kind() == OpKind::PagedLoad
            && plan.place(anchor.outputs[0]).is_none()
            && plan.depends(value, anchor.outputs[0], &[])
    };
    anchors.filter(is_load).collect()
}

/// The operand in pages that a value is, if attention can read it there; `None` if it is in none, or if not,
/// which the plan then says. The last two numbers are the dims along tokens and along the elements of one.
pub(super) fn find(plan: &mut PlanBuilder<'_>, value: ValueId, axes: [usize; 2]) -> Option<PagedOperand> {
    let loads = loads_of(plan, value);
    let &(index, load) = loads.first()?;
    let is_one = R::OperandForm.unless(loads.len() == 1);
    let found = is_one.and_then(|()| operand(plan, value, (index, load), axes));
    plan.taken(FastForm::PagedCache, load.op, found)
}

fn operand(
    plan: &PlanBuilder<'_>,
    value: ValueId,
    (index, load): (usize, &Anchor),
    [token, element]: [usize; 2],
) -> Result<PagedOperand, FallbackReason> {
    let inputs = &load.inputs;
    let (cache, offset) = match plan.group().values[inputs[0]].data_type.size() {
        Some(_) => plan.view(inputs[0]),
        None => plan.place(inputs[0]).map(|place| (place, 0)),
    }
    .ok_or(R::NoStrides)?;
    let in_bytes = in_bytes(&cache).ok_or(R::HalfBytes)?;
    let port = |value: ValueId| {
        plan.place(value).filter(|place| matches!(place.base, Base::Port(_))).ok_or(R::OperandForm)
    };
    let table = port(inputs[1])?;
    let lengths = inputs.get(2).map(|&lengths| port(lengths)).transpose()?;
    let dims: Vec<&[i64]> = inputs.iter().map(|&input| &plan.group().values[input].dims[..]).collect();
    let rows = LoadedRows::new(plan.anchor_op(index), &dims).map_err(|_| R::OperandForm)?;
    let operands = LoadOperands { cache: &in_bytes, table: &table, lengths: lengths.as_ref() };
    let mut strides = cache.strides.clone();
    strides[0] = 0;
    let of_value = plan.group().values[value].dims.clone();
    let page_table = operands.page_table(&rows);
    // The rows of sequences that follow each other are one dim, along which tables lead. They are put in that
    // order before they are dequantised, or behind.
    let dequantized = DequantizedValue::of_sequences(plan, value);
    let along_sequences = dequantized.as_ref().and_then(|of| of.sequences);
    let in_order = in_order(plan, load.outputs[0], &rows).filter(|_| along_sequences.is_none());
    let is_in_order = in_order.is_some() || along_sequences.is_some();
    let sequences = is_in_order.then(|| SequenceSteps {
        rows: page_table.rows,
        entries: bytes_along(&table)[0],
        lengths: lengths.as_ref().map_or(0, |lengths| bytes_along(lengths)[0]),
    });
    let found = PagedOperand {
        load: in_order.unwrap_or(load.outputs[0]),
        is_dequantized: dequantized.is_some(),
        data_type: cache.data_type,
        strides,
        base: cache.base,
        offset,
        table: PageTable {
            rows: of_value[token].max(0) as usize,
            sequences,
            bits: cache.data_type.bits(),
            ..page_table
        },
        entries: (table.base, bytes_along(&table)[0]),
        lengths: lengths.as_ref().map(|lengths| (lengths.base, bytes_along(lengths)[0])),
        rows,
        tensors: (in_bytes, table, lengths),
    };
    // The tokens of the operand are all rows of the sequences in their order.
    let (first, along) = found.strides_in(plan, value, &[0, 0, 1, 0]).ok_or(R::NoStrides)?;
    let is_of_tokens = |axis: usize| along[axis] == i64::from(axis == token) || of_value[axis] == 1;
    let all = if is_in_order { rows.sequences.saturating_mul(rows.rows()) } else { rows.rows() };
    let is_whole = of_value[token] == all && first == 0;
    R::NoStrides.unless(is_whole && (0..along.len()).all(is_of_tokens))?;
    if let Some((of, axis)) = dequantized.as_ref().zip(along_sequences) {
        let (_, along) =
            plan.strides_from(of.found.inputs[0], found.load, &[1, 0, 0, 0]).ok_or(R::NoStrides)?;
        R::NoStrides.unless(along[axis] == 1)?;
    }
    let (_, along) = found.strides_in(plan, value, &found.strides).ok_or(R::NoStrides)?;
    R::StridedElements.unless(along[element] == 1 || of_value[element] == 1)?;
    Ok(found)
}

/// The rows of all sequences of a load one behind the other, of dims [1, heads, rows, elements], if that is
/// all that follows from the load.
fn in_order(plan: &PlanBuilder<'_>, load: ValueId, rows: &LoadedRows) -> Option<ValueId> {
    let group = plan.group();
    let (moved, order) = group.only_transposed(load)?;
    let mut users = group.values.ids().filter(|&user| group.operands(user).contains(&moved));
    let (user, None) = (users.next()?, users.next()) else { return None };
    let of_all = [1, rows.cache.heads, rows.sequences.saturating_mul(rows.rows()), rows.cache.depth];
    let is_in_order = order[..] == [1, 0, 2, 3] && group.values[user].dims[..] == of_all;
    let is_reshaped = || group.reshaped_from(user, &group.values[moved].dims) == Some(moved);
    (is_in_order && rows.sequences > 1 && is_reshaped()).then_some(user)
}

impl PagedOperand {
    /// The value of the load, with its strides within a page.
    pub(super) fn of_load(&self) -> LoadedValue<'_> {
        LoadedValue { value: self.load, strides: &self.strides }
    }

    /// The first element of an operand that follows from the load, and its strides, if the load had some.
    pub(super) fn strides_in(
        &self,
        plan: &PlanBuilder<'_>,
        value: ValueId,
        strides: &[i64],
    ) -> Option<(i64, Dims)> {
        let (from, axes) = match DequantizedValue::of_sequences(plan, value) {
            Some(DequantizedValue { found, axes, .. }) => (found.inputs[0], axes),
            None => (value, (0..plan.group().values[value].dims.len()).map(Some).collect::<SourceAxes>()),
        };
        let (first, of_source) = plan.strides_from(from, self.load, strides)?;
        Some((first, axes.iter().map(|axis| axis.map_or(0, |axis| of_source[axis])).collect()))
    }

    /// Lets each execution check the table and the lengths.
    pub(super) fn add_checks(&self, plan: &mut PlanBuilder<'_>) {
        let (cache, table, lengths) = &self.tensors;
        LoadOperands { cache, table, lengths: lengths.as_ref() }.add_checks(plan, &self.rows);
    }
}

/// Adds phases that copy what a value needs out of pages.
pub(super) fn copy(plan: &mut PlanBuilder<'_>, value: ValueId) -> Result<()> {
    let loads: Vec<usize> = loads_of(plan, value).into_iter().map(|(index, _)| index).collect();
    loads.into_iter().try_for_each(|index| add_load(plan, index))
}

/// The layout of the scratch of keys and values in pages; `block` is the number of tokens that a phase reads
/// together, if it needs them evenly in memory.
pub(super) fn paged_layout(core: &AttentionCore, block: Option<usize>, arena: &mut Arena) -> PagedScratch {
    let bytes = |index: usize, columns: usize| {
        let bits = core.pages[index].as_ref().map_or(0, |table| table.bits);
        columns.saturating_mul(bits).div_ceil(8)
    };
    let token_bytes = [bytes(0, core.depth), bytes(1, core.value_columns)];
    // Kernels read whole vectors.
    let zero_bytes = match token_bytes[0].max(token_bytes[1]) {
        0 => 0,
        bytes => bytes.saturating_add(LINE),
    };
    let zeros = arena.take(zero_bytes);
    let of_block = |bytes: usize| match (block, bytes) {
        (None, _) | (_, 0) => 0,
        (Some(tokens), bytes) => bytes.saturating_mul(tokens).saturating_add(LINE),
    };
    let blocks = token_bytes.map(|bytes| arena.take(of_block(bytes)));
    PagedScratch { zeros, zero_bytes, blocks, token_bytes }
}
