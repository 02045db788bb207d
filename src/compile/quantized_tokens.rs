//! Finds keys and values that are integers of 8 or 4 bits, or floats of 8 bits, behind a dequantisation, so
//! that a phase of attention reads them as they are stored.

use smallvec::{SmallVec, smallvec};

use super::arena::Arena;
use super::elementwise::{Dequantization, DriverSpace, QuantParameters};
use super::phases::{PlacedTensor, PlanBuilder};
use crate::graph::infer;
use crate::kernels::Extent;
use crate::kernels::gemm::StoredKernels;
use crate::plan::{Base, LoopNest, QuantizedScratch, QuantizedTokens, SCALED_TOKENS, ValueId};
use crate::types::fallback::{FallbackReason, FallbackReason as R, FastForm};
use crate::types::shape::{Dims, SaturatingProduct};

/// Most scales of [`SCALED_TOKENS`] tokens in the scratch of a thread.
const MAX_SCALES: usize = 1 << 16;

/// The place of the integers, and how they become numbers.
pub(super) struct QuantizedOperand {
    /// The dims are those of the operand; the strides count bytes.
    pub(super) tensor: PlacedTensor,
    /// Bytes to the first element.
    pub(super) offset: isize,
    pub(super) tokens: QuantizedTokens,
}

/// The place of an element of an operand in the value from which it comes: for each dim of the operand the
/// dim of the value, or none if the dim is 1.
pub(super) type SourceAxes = SmallVec<[Option<usize>; 6]>;

/// The dequantisation from which an operand comes.
#[derive(Clone)]
pub(super) struct DequantizedValue<'a> {
    pub(super) found: &'a Dequantization,
    /// The dims of what is dequantised, by those of the operand.
    pub(super) axes: SourceAxes,
    /// The dim of what is dequantised along sequences, if the operand has the rows of all of them one behind
    /// the other, in one dim; that is then taken for the dim of the rows of one.
    pub(super) sequences: Option<usize>,
}

/// The value of a load from pages that no phase writes, with strides within a page.
#[derive(Clone, Copy)]
pub(super) struct LoadedValue<'s> {
    pub(super) value: ValueId,
    pub(super) strides: &'s [i64],
}

/// Rows of integers behind a dequantisation, as an operand of a product reads them.
pub(super) struct StoredRows<'a> {
    pub(super) source: DequantizedValue<'a>,
    /// Scales along each dim of what is dequantised.
    pub(super) counts: Dims,
    /// The dims are those of the operand; the strides count bytes.
    pub(super) tensor: PlacedTensor,
    /// Bytes to the first element.
    pub(super) offset: isize,
    /// Rows, and elements of one, that share a scale.
    pub(super) group: Extent,
    pub(super) kernels: StoredKernels,
}

/// The rows of an operand as they are stored. `row` and `element` are the dims of the operand along rows and
/// along the elements of one; `load` is the load from which all comes that lies in pages.
pub(super) fn stored_rows<'a>(
    plan: &PlanBuilder<'a>,
    operand: ValueId,
    source: DequantizedValue<'a>,
    [row, element]: [usize; 2],
    load: Option<&LoadedValue<'_>>,
) -> Result<StoredRows<'a>, FallbackReason> {
    let group = plan.group();
    let DequantizedValue { found, axes, sequences } = &source;
    let op = plan.op(found.op);
    let dims_of = |value: ValueId| &group.values[value].dims[..];
    let inputs: SmallVec<[&[i64]; 3]> = found.inputs.iter().map(|&value| dims_of(value)).collect();
    let (stored, dims) = (found.inputs[0], inputs[0]);
    let counts = infer::parameter_counts(op, &inputs).map_err(|_| R::ScaleGroups)?;
    let data_type = group.values[stored].data_type;
    let (row_axis, element_axis) = axes[row].zip(axes[element]).ok_or(R::NoStrides)?;
    let is_whole = |axis: usize| counts[axis] == 1 || counts[axis] == dims[axis];
    let mut others = (0..dims.len()).filter(|&axis| axis != row_axis && axis != element_axis);
    let shared = |axis: usize| (dims[axis] / counts[axis]) as usize;
    let shares = Extent { rows: shared(row_axis), columns: shared(element_axis) };
    let kernels = StoredKernels::new(plan.level, data_type, shares.columns == 1).ok_or(R::ElementType)?;
    R::ScaleGroups.unless(others.all(is_whole))?;
    let of_load = |&LoadedValue { value, strides }: &LoadedValue<'_>| {
        let (_, strides) = plan.strides_from(stored, value, strides)?;
        Some((PlacedTensor { base: Base::Index, data_type, dims: dims.into(), strides }, 0))
    };
    let place = match load {
        Some(load) => of_load(load),
        // Tables alone lead from sequence to sequence.
        None if sequences.is_some() => None,
        None if data_type.size().is_none() => plan.place(stored).map(|place| (place, 0)),
        None => plan.view(stored),
    };
    let (place, offset) = place.ok_or(R::NoStrides)?;
    let bytes = |axis: usize| match (data_type.size(), place.strides[axis]) {
        _ if dims[axis] == 1 => Some(0),
        (Some(_), stride) => Some(stride),
        (None, stride) => (stride % 2 == 0).then_some(stride / 2),
    };
    R::StridedElements.unless(dims[element_axis] == 1 || place.strides[element_axis] == 1)?;
    let stride = |axis: &Option<usize>| match axis {
        Some(axis) if *axis == element_axis => Some(1),
        Some(axis) => bytes(*axis),
        None => Some(0),
    };
    let strides: Dims = axes.iter().map(stride).collect::<Option<_>>().ok_or(R::HalfBytes)?;
    let tensor = PlacedTensor { base: place.base, data_type, dims: dims_of(operand).into(), strides };
    Ok(StoredRows { source, counts, tensor, offset, group: shares, kernels })
}

/// The rows of an operand of attention, which a phase dequantises itself; `None` if nothing dequantises the
/// operand, or if the phase cannot, which the plan then says. `token` and `element` are the dims of the
/// operand along tokens and along the elements of one, `outer` the dims along which the loops of the phase
/// go that are not over tokens.
pub(super) fn find(
    plan: &mut PlanBuilder<'_>,
    operand: ValueId,
    tokens: [usize; 2],
    outer: &[Option<usize>],
    load: Option<&LoadedValue<'_>>,
) -> Option<QuantizedOperand> {
    let source = DequantizedValue::of_sequences(plan, operand)?;
    let op = source.found.op;
    let rows = stored_rows(plan, operand, source, tokens, load);
    let found = rows.and_then(|rows| quantized_operand(plan, rows, tokens, outer));
    plan.taken(FastForm::StoredCache, op, found)
}

/// The operand of stored rows.
fn quantized_operand(
    plan: &mut PlanBuilder<'_>,
    rows: StoredRows<'_>,
    [token, element]: [usize; 2],
    outer: &[Option<usize>],
) -> Result<QuantizedOperand, FallbackReason> {
    let group = plan.group();
    let StoredRows { source, counts, tensor, offset, group: shares, kernels } = rows;
    let DequantizedValue { found, axes, sequences } = source;
    let op = plan.op(found.op);
    let (token_axis, element_axis) = axes[token].zip(axes[element]).ok_or(R::NoStrides)?;
    let dims = &group.values[found.inputs[0]].dims;

    // Their scales and zero points.
    let groups = [counts[token_axis], counts[element_axis]];
    let form = ScaleGroups::new(groups, shares.rows);
    R::TooManyScales.unless(form.held.saturating_mul(groups[1] as usize) <= MAX_SCALES)?;
    let parameters = QuantParameters::of(op, &found.inputs);
    let mut program = |layout: SlotOrder| {
        // Kernels read a scale for each element from a row.
        let is_row = layout != SlotOrder::Planes || shares.columns > 1;
        let space = layout.space(&counts, [token_axis, element_axis], &form).filter(|_| is_row)?;
        let (group, values) = group.with_parameters(&parameters, &counts, &space.dims);
        let slots = [QuantizedTokens::SCALES, QuantizedTokens::ZEROS];
        let targets: SmallVec<[(ValueId, usize); 2]> = values.into_iter().zip(slots).collect();
        let nest = plan.program_in(&group, &space, &targets)?;
        Some((layout, space, nest))
    };
    let (layout, space, nest) = [SlotOrder::Flat, SlotOrder::Planes, SlotOrder::Rows]
        .into_iter()
        .find_map(&mut program)
        .ok_or(R::ScaleGroups)?;
    let [row_step, column_step] = layout.steps(&form);
    let tiles_along = |axis: Option<usize>| {
        let axis = axis.filter(|&axis| counts[axis] != 1);
        axis.and_then(|axis| tiles_of(&space, &nest, axis, layout, element_axis)).unwrap_or(0)
    };
    let tile_strides = outer.iter().map(|dim| tiles_along(dim.and_then(|dim| axes[dim]))).collect();
    let sequences = sequences.map(|axis| tiles_along(Some(axis)));
    let tokens = QuantizedTokens {
        tile_strides,
        group: shares,
        tokens: dims[token_axis] as usize,
        sequences,
        tile_groups: form.tile,
        row_step,
        column_step,
        numbers: form.held * groups[1] as usize,
        kernels,
        nest,
    };
    Ok(QuantizedOperand { tensor, offset, tokens })
}

/// The layout of the scratch of a dequantisation; nothing without one.
pub(super) fn quantized_layout(tokens: Option<&QuantizedTokens>, arena: &mut Arena) -> QuantizedScratch {
    /// Kernels read whole vectors.
    const VECTOR_BYTES: usize = 64;
    let Some(tokens) = tokens else { return QuantizedScratch::default() };
    let slot = 4 * tokens.numbers + VECTOR_BYTES;
    QuantizedScratch {
        program: arena.take(tokens.nest.program.scratch),
        slots: [arena.take(slot), arena.take(slot)],
    }
}

impl<'a> DequantizedValue<'a> {
    /// The dequantisation from which an operand comes, with dims in any order, and as numbers of any float
    /// type if it `converts`; `None` if the operand is computed otherwise.
    pub(super) fn find(plan: &PlanBuilder<'a>, operand: ValueId, converts: bool) -> Option<Self> {
        Self::through(plan, operand, converts, false)
    }

    /// The same for an operand that may have the rows of several sequences one behind the other.
    pub(super) fn of_sequences(plan: &PlanBuilder<'a>, operand: ValueId) -> Option<Self> {
        Self::through(plan, operand, true, true)
    }

    fn through(plan: &PlanBuilder<'a>, operand: ValueId, converts: bool, joins: bool) -> Option<Self> {
        let group = plan.group();
        let mut value = operand;
        let mut axes: SourceAxes = (0..group.values[operand].dims.len()).map(Some).collect();
        let mut sequences: Option<usize> = None;
        loop {
            if let Some(found) = group.dequantized(value) {
                return Some(Self { found, axes, sequences });
            }
            if let Some(from) = group.converted(value).filter(|_| converts) {
                value = from;
                continue;
            }
            let from = group.moved_from(value)?;
            let mut joined = None;
            let of_dims = match group.dims_of_moved(value) {
                Some(of_dims) => of_dims,
                None => {
                    let (of_dims, outer) = group.dims_of_joined(value).filter(|_| joins)?;
                    joined = Some(outer);
                    of_dims
                }
            };
            sequences = match (sequences, joined) {
                (None, joined) => joined,
                (Some(axis), None) => Some(of_dims[axis]?),
                (Some(_), Some(_)) => return None,
            };
            axes.iter_mut().for_each(|axis| *axis = axis.and_then(|axis| of_dims[axis]));
            value = from;
        }
    }
}

/// Groups of tokens and of elements that share a scale, in the scratch of a thread.
struct ScaleGroups {
    /// Groups of elements of a token.
    elements: usize,
    /// Groups of tokens of a tile, and of all tiles that [`SCALED_TOKENS`] tokens need.
    tile: usize,
    held: usize,
}

impl ScaleGroups {
    fn new([tokens, elements]: [i64; 2], shares: usize) -> Self {
        let (tokens, elements) = (tokens as usize, elements as usize);
        let (tile, held) = match SCALED_TOKENS.is_multiple_of(shares) {
            true => (SCALED_TOKENS / shares, SCALED_TOKENS / shares),
            false => (1, SCALED_TOKENS / shares + 2),
        };
        let is_one = tokens <= tile;
        Self { elements, tile: if is_one { tokens } else { tile }, held: held.min(tokens) }
    }
}

/// How scales lie in a slot. Each form is best for one order in memory, because programs are fast along long
/// rows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SlotOrder {
    /// As one row, token by token; in memory the scales of a token follow each other.
    Flat,
    /// A row for each group of elements.
    Planes,
    /// A row for each group of tokens.
    Rows,
}

impl SlotOrder {
    /// Numbers from one group of tokens to the next, and from one group of elements to the next.
    fn steps(self, form: &ScaleGroups) -> [usize; 2] {
        match self {
            Self::Flat | Self::Rows => [form.elements, 1],
            Self::Planes => [1, form.held],
        }
    }

    /// The space of the program; `None` if the form is not that of the scales.
    fn space(self, counts: &Dims, [token, element]: [usize; 2], form: &ScaleGroups) -> Option<DriverSpace> {
        let mut dims = counts.clone();
        let slot = |row: usize| smallvec![((4 * row) as isize, 4), ((4 * row) as isize, 4)];
        let (rows, columns, tile, slots) = match self {
            Self::Flat if element == token + 1 => {
                let elements = dims.remove(element);
                dims[token] *= elements;
                let columns = form.tile * form.elements;
                (None, token, Extent { rows: 1, columns }, slot(columns))
            }
            Self::Planes if element < token || form.elements == 1 => {
                (Some(element), token, Extent { rows: form.elements, columns: form.tile }, slot(form.held))
            }
            Self::Rows => (
                Some(token),
                element,
                Extent { rows: form.tile, columns: form.elements },
                slot(form.elements),
            ),
            Self::Flat | Self::Planes => return None,
        };
        Some(DriverSpace::new(dims, [rows, Some(columns)], tile, slots))
    }
}

/// Tiles of a nest from one iteration of an axis of the scales to the next.
fn tiles_of(
    space: &DriverSpace,
    nest: &LoopNest,
    axis: usize,
    layout: SlotOrder,
    element: usize,
) -> Option<usize> {
    // The axis of elements is gone if the scales lie as one row.
    let axis = if layout == SlotOrder::Flat && axis > element { axis - 1 } else { axis };
    let place = space.outer().position(|outer| outer == axis)?;
    Some(nest.loops[place + 1..].iter().map(|l| l.extent).saturating_product())
}
