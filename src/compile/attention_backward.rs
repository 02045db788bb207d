//! Lowers the gradients of attention to one phase. Phases before it compute the sums that it needs; phases
//! after it compute the sums over groups of heads that it cannot compute itself.
//!
//! [`BackwardShape::new`] checks whether a partition has the form that the phase runs: one product of scores,
//! weights from them by Exp or by a SoftMax along the keys, at most one product of gradients of the weights,
//! and products of what tile programs make of both. Any other partition runs its products and its ops on rows
//! one after another, through internal buffers.

mod form;

use smallvec::{SmallVec, smallvec};

use self::form::{BackwardShape, Factors};
use super::attention::{keys_innermost, rewrite_roots};
use super::elementwise::{DriverSpace, ShapedGroup};
use super::gemm;
use super::machine::Machine;
use super::phases::{AxisStrides, PlacedTensor, PlanBuilder, ShapedPartition};
use super::rows;
use crate::error::{CompileFault, Result};
use crate::graph::infer;
use crate::graph::logical_tensor::LogicalTensor;
use crate::kernels::attention::{AttentionKernels, QUERIES};
use crate::kernels::gemm::pack::{self, PackPanel, RowPack};
use crate::kernels::gemm::{Form, GemmKernel};
use crate::kernels::pointwise::{Kernel1, convert};
use crate::kernels::{Extent, LINE};
use crate::partition::Partition;
use crate::plan::{
    Access, BackwardOperand, BackwardPhase, BackwardResult, BackwardScratch, BackwardSoftmax, ChainSlot,
    GROUP, KEYS, Loop, LoopNest, OPERANDS, OperandForm, OuterAxis, Phase, PhaseOperand, Plan, SLOTS, StepSet,
    TileChain, TileProgram, TypedTile,
};
use crate::types::dtype::DataType;
use crate::types::kind::{Attr, Level};
use crate::types::shape;

use BackwardOperand as O;

/// The plan of a partition for concrete inputs.
pub(super) fn lower(
    partition: &Partition,
    inputs: &[&LogicalTensor],
    outputs: &[&LogicalTensor],
    machine: Machine,
) -> Result<Plan> {
    let shaped = ShapedPartition::new(partition, inputs, outputs)?;
    let mut plan = PlanBuilder::new(&shaped, machine.level, machine.single_thread);
    let anchors = &shaped.group.anchors;
    let mut is_done = vec![false; anchors.len()];
    // Sums that need no product come first, whatever follows.
    for anchor in 0..anchors.len() {
        let is_sum = infer::is_reduction(&partition.ops()[anchors[anchor].op]);
        if is_sum && anchors[anchor].inputs.iter().all(|&input| plan.is_computable(input, &[])) {
            rows::add(&shaped, &mut plan, anchor)?;
            is_done[anchor] = true;
        }
    }
    if let Some(shape) = BackwardShape::new(&shaped, &plan, &is_done)? {
        add(&shaped, &mut plan, &shape, machine)?;
        shape.anchors().for_each(|anchor| is_done[anchor] = true);
    }
    let rest = (0..anchors.len()).filter(|&anchor| !is_done[anchor]);
    gemm::add_anchors(&shaped, &mut plan, rest, machine)?;
    plan.finish()
}

/// An operand of a product: from token to token, and along the elements of one.
#[derive(PartialEq)]
struct TokenAccess {
    tensor: PlacedTensor,
    offset: isize,
    /// Bytes along the outer axes of the scores.
    outer: AxisStrides,
    token: isize,
    element: isize,
}

/// An operand whose rows are tokens unless it lies transposed.
fn tokens(
    plan: &mut PlanBuilder<'_>,
    shape: &BackwardShape,
    value: usize,
    is_transposed: bool,
) -> Result<TokenAccess> {
    let (tensor, offset) = plan.operand_view(value)?;
    let (rank, own) = (shape.rank(), tensor.dims.len());
    let width = tensor.data_type.size().unwrap_or(1) as isize;
    let stride = |axis: usize| tensor.strides[axis] as isize * width;
    let (token_axis, element_axis) = if is_transposed { (own - 1, own - 2) } else { (own - 2, own - 1) };
    let batch =
        shape::access_strides(&tensor.dims[..own - 2], &tensor.strides, &shape.dims[..rank - 2], rank - own);
    let outer = batch.into_iter().map(|stride| stride as isize * width).collect();
    Ok(TokenAccess { outer, token: stride(token_axis), element: stride(element_axis), offset, tensor })
}

/// Places of scratch, one behind the other.
struct Places(usize);

impl Places {
    fn take(&mut self, bytes: usize) -> usize {
        let start = self.0.next_multiple_of(LINE);
        self.0 = start.saturating_add(bytes);
        start
    }
}

/// Bytes of a tile of scores.
fn tile_bytes(width: usize) -> usize {
    KEYS * QUERIES * width
}

/// Adds the phase.
fn add(
    shaped: &ShapedPartition<'_>,
    plan: &mut PlanBuilder<'_>,
    shape: &BackwardShape,
    machine: Machine,
) -> Result<()> {
    let (group, level) = (&shaped.group, machine.level);
    let rank = shape.rank();
    let (query_axis, key_axis) = (rank - 2, rank - 1);
    let unsupported =
        || CompileFault::Unsupported("no kernel runs gradients of attention on these types".into());

    // Operands of products.
    let mut operands: [Option<TokenAccess>; OPERANDS] = Default::default();
    let mut set = |operand: O, tokens: TokenAccess| operands[operand as usize] = Some(tokens);
    let of_scores = shape.scores;
    set(O::Queries, tokens(plan, shape, of_scores.left, of_scores.transposes_left)?);
    set(O::Keys, tokens(plan, shape, of_scores.right, !of_scores.transposes_right)?);
    if let Some(of) = shape.gradients {
        set(O::Gradients, tokens(plan, shape, of.left, of.transposes_left)?);
        set(O::Values, tokens(plan, shape, of.right, !of.transposes_right)?);
    }
    let right = [O::KeysOfSlopes, O::QueriesOfSlopes, O::GradientsOfFactors];
    for (operand, end) in right.into_iter().zip(&shape.ends) {
        if let Some(end) = end {
            set(operand, tokens(plan, shape, end.right, end.transposes_right)?);
        }
    }

    // Tile programs. Scratch of each comes before all tiles.
    let mut chains = Chains { plan, shape, group, level, programs: 0, tiles: Places(0) };
    let mut layout = BackwardScratch {
        scores: chains.tiles.take(tile_bytes(4)),
        gradients: chains.tiles.take(if shape.gradients.is_some() { tile_bytes(4) } else { 0 }),
        ..BackwardScratch::default()
    };
    let raw = |product: &Factors, slot: usize, tile: usize| (product.result, slot, tile);
    let supplied: SmallVec<[(usize, usize, usize); 3]> =
        [Some(raw(&shape.scores, TileChain::SCORES, layout.scores))]
            .into_iter()
            .chain([shape.gradients.map(|product| raw(&product, TileChain::GRADIENTS, layout.gradients))])
            .flatten()
            .collect();
    let (chain, weights, factors, slopes, softmax);
    match &shape.softmax {
        None => {
            let mut wanted: SmallVec<[(usize, usize); 3]> = smallvec![(shape.weights, TileChain::LOGITS)];
            wanted.extend(shape.factors.map(|value| (value, TileChain::FACTORS)));
            wanted.extend(shape.slopes.map(|value| (value, TileChain::SLOPES)));
            let (made, tiles) = chains.chain(&supplied, &wanted)?;
            chain = made;
            weights = tiles[TileChain::LOGITS].unwrap_or(layout.scores);
            (factors, slopes) = (tiles[TileChain::FACTORS], tiles[TileChain::SLOPES]);
            softmax = None;
        }
        Some(of) => {
            let given = of.backward.map(|(_, [given, _])| given);
            let mut wanted: SmallVec<[(usize, usize); 3]> = smallvec![(shape.logits, TileChain::LOGITS)];
            wanted.extend(given.map(|value| (value, TileChain::FACTORS)));
            let (made, tiles) = chains.chain(&supplied, &wanted)?;
            chain = made;
            weights = tiles[TileChain::LOGITS].unwrap_or(layout.scores);
            let gradients = tiles[TileChain::FACTORS];
            let last = match (of.backward, shape.gradients) {
                (Some((_, [_, result])), _) => gradients.map(|tile| (result, TileChain::GRADIENTS, tile)),
                (None, Some(product)) => Some((product.result, TileChain::GRADIENTS, layout.gradients)),
                (None, None) => None,
            };
            let mut supplied: SmallVec<[(usize, usize, usize); 3]> =
                smallvec![(shape.weights, TileChain::SCORES, weights)];
            supplied.extend(last);
            if of.needs_scores {
                supplied.push((shape.scores.result, TileChain::LOGITS, layout.scores));
            }
            let mut wanted: SmallVec<[(usize, usize); 3]> = SmallVec::new();
            wanted.extend(shape.factors.map(|value| (value, TileChain::FACTORS)));
            wanted.extend(shape.slopes.map(|value| (value, TileChain::SLOPES)));
            let (behind, tiles) = chains.chain(&supplied, &wanted)?;
            (factors, slopes) = (tiles[TileChain::FACTORS], tiles[TileChain::SLOPES]);
            softmax = Some(BackwardSoftmax {
                gradients: gradients.filter(|_| of.backward.is_some()),
                behind: Some(behind).filter(|behind| !behind.nest.program.roots.is_empty()),
                makes_logits: shape.logits != shape.scores.result,
                makes_gradients: given != shape.gradients.map(|product| product.result),
            });
        }
    }
    let Chains { programs, tiles, .. } = chains;
    let mut places = tiles;

    // Where operands are read, and where sums are.
    let tile = shape.tile();
    let row = |elements: usize| elements.saturating_mul(4).next_multiple_of(LINE).saturating_add(LINE);
    (layout.key_row, layout.value_row) = (row(shape.depth), row(shape.value_columns));
    let row_of = |operand: O| match operand {
        O::Queries | O::Keys | O::KeysOfSlopes | O::QueriesOfSlopes => layout.key_row,
        O::Gradients | O::Values | O::GradientsOfFactors => layout.value_row,
    };
    let depth_of = |operand: O| match operand {
        O::Gradients => shape.value_columns,
        _ => shape.depth,
    };
    let product = GemmKernel::new(level, Form::F32);
    let panels = QUERIES.div_ceil(product.panel_columns());
    let all = [
        O::Queries,
        O::Keys,
        O::Gradients,
        O::Values,
        O::KeysOfSlopes,
        O::QueriesOfSlopes,
        O::GradientsOfFactors,
    ];
    let types: [DataType; OPERANDS] = all
        .map(|operand| operands[operand as usize].as_ref().map_or(DataType::F32, |of| of.tensor.data_type));
    let mut forms = [OperandForm::Unused; OPERANDS];
    let is_same_keys = operands[O::KeysOfSlopes as usize] == operands[O::Keys as usize];
    // What belongs to a block of queries lies together, as often as a group has blocks.
    let group_start = places.take(0);
    for operand in all.into_iter().filter(|&operand| operands[operand as usize].is_some()) {
        let data_type = types[operand as usize];
        let refuse = |plan: &PlanBuilder<'_>| plan.refuse(unsupported());
        forms[operand as usize] = match operand {
            O::Queries | O::Gradients => {
                let pack =
                    PackPanel::new(level, data_type, Form::F32, QUERIES).ok_or_else(|| refuse(plan))?;
                let bytes = pack.panel_bytes(depth_of(operand)).saturating_mul(panels);
                OperandForm::Panels(pack, places.take(bytes))
            }
            O::QueriesOfSlopes | O::GradientsOfFactors => {
                let pack = RowPack::new(level, data_type, DataType::F32).ok_or_else(|| refuse(plan))?;
                OperandForm::Rows(pack, places.take(row_of(operand).saturating_mul(QUERIES)))
            }
            O::KeysOfSlopes if is_same_keys => OperandForm::Same(O::Keys),
            O::Keys | O::Values | O::KeysOfSlopes => OperandForm::InPlace,
        };
    }
    layout.query_sums = places.take(if shape.ends[0].is_some() { shape.depth * QUERIES * 4 } else { 0 });
    layout.group_step = places.take(0) - group_start;
    let blocks = shape.queries().div_ceil(tile.columns).min(GROUP);
    places.take(layout.group_step.saturating_mul(blocks - 1));
    for operand in [O::Keys, O::Values, O::KeysOfSlopes] {
        let data_type = types[operand as usize];
        if matches!(forms[operand as usize], OperandForm::InPlace) && data_type != DataType::F32 {
            let pack =
                RowPack::new(level, data_type, DataType::F32).ok_or_else(|| plan.refuse(unsupported()))?;
            let at = places.take(row_of(operand).saturating_mul(shape.keys()));
            forms[operand as usize] = OperandForm::Rows(pack, at);
        }
    }
    let sums = |end: &Option<Factors>, row: usize| end.map_or(0, |_| row.saturating_mul(shape.keys()));
    layout.key_sums = places.take(sums(&shape.ends[1], layout.key_row));
    layout.value_sums = places.take(sums(&shape.ends[2], layout.value_row));
    layout.finite_keys = places.take(shape.keys().div_ceil(tile.rows));
    let most = QUERIES.max(KEYS).saturating_mul(shape.depth.max(shape.value_columns)).saturating_mul(2);
    layout.typed_result = places.take(most);
    layout.pack = places.take(pack::SCRATCH);

    // Results.
    let mut results: [Option<BackwardResult>; 3] = Default::default();
    let mut result_tiles: [SmallVec<[usize; 6]>; 3] = Default::default();
    let rows = [(query_axis, shape.depth), (key_axis, shape.depth), (key_axis, shape.value_columns)];
    for place in 0..3 {
        let Some(end) = shape.ends[place] else { continue };
        let (token_axis, columns) = rows[place];
        let (made, tiles) = result(shaped, plan, shape, place, &end, token_axis, columns, level)?;
        layout.results[place] = places.take(made.nest.program.scratch);
        result_tiles[place] = tiles;
        results[place] = Some(made);
    }
    layout.end = places.take(0);

    // The accesses of the operands follow those of the chain.
    let TileChain { mut nest, slots } = chain;
    let first_access = nest.program.next_access();
    for operand in 0..OPERANDS {
        let tokens = operands[operand].as_ref().or(operands[0].as_ref());
        let Some(of) = tokens else { continue };
        let is_of_keys = [O::Keys, O::Values, O::KeysOfSlopes].iter().any(|&other| other as usize == operand);
        let is_of_keys = is_of_keys && operands[operand].is_some();
        nest.program.accesses.push(Access {
            base: of.tensor.base,
            offset: of.offset,
            row_stride: of.token,
            col_stride: of.element,
        });
        for index in 0..nest.loops.len() {
            let stride = match index {
                _ if index < rank - 2 => of.outer[index],
                _ if (index == nest.row_blocks) == is_of_keys => {
                    let tokens = if is_of_keys { tile.rows } else { tile.columns };
                    of.token.saturating_mul(tokens as isize)
                }
                _ => 0,
            };
            nest.loops[index].strides.push(stride);
        }
    }
    let is_exponent = shape.softmax.is_none();
    let classes = plan.classify((shape.scores.result, shape.logits), (query_axis, key_axis), is_exponent);
    let mut axes: SmallVec<[OuterAxis; 6]> = (0..rank - 2)
        .map(|axis| OuterAxis {
            extent: shape.dims[axis] as usize,
            is_summed: shape.summed.contains(&axis),
            places: 1,
            result_tiles: [0, 1, 2].map(|place| result_tiles[place].get(axis).copied().unwrap_or(0)),
        })
        .collect();
    for axis in (1..axes.len()).rev() {
        axes[axis - 1].places = axes[axis].places * axes[axis].extent;
    }
    let mut phase = BackwardPhase {
        chain: TileChain { nest, slots },
        first_access,
        operands: all.map(|operand| PhaseOperand {
            data_type: types[operand as usize],
            form: forms[operand as usize],
        }),
        softmax,
        depth: shape.depth,
        value_columns: shape.value_columns,
        product,
        kernels: AttentionKernels::new(level),
        weights,
        factors,
        slopes,
        classes,
        axes,
        results,
        layout,
    };
    shift(&mut phase, programs);
    plan.push(Phase::AttentionBackward(Box::new(phase)), shape.flops(), true);
    Ok(())
}

/// Moves all places of scratch behind the scratch of the chains, which was not known before.
fn shift(phase: &mut BackwardPhase, by: usize) {
    let chains = [Some(&mut phase.chain), phase.softmax.as_mut().and_then(|softmax| softmax.behind.as_mut())];
    for slot in chains.into_iter().flatten().flat_map(|chain| chain.slots.iter_mut().flatten()) {
        slot.tile += by;
        slot.typed.iter_mut().for_each(|typed| typed.place += by);
    }
    for operand in &mut phase.operands {
        if let OperandForm::Rows(_, place) | OperandForm::Panels(_, place) = &mut operand.form {
            *place += by;
        }
    }
    if let Some(BackwardSoftmax { gradients: Some(gradients), .. }) = &mut phase.softmax {
        *gradients += by;
    }
    phase.weights += by;
    phase.factors.iter_mut().chain(&mut phase.slopes).for_each(|place| *place += by);
    let layout = &mut phase.layout;
    let BackwardScratch { scores, gradients, query_sums, key_sums, value_sums, finite_keys, .. } = layout;
    [scores, gradients, query_sums, key_sums, value_sums, finite_keys].into_iter().for_each(|at| *at += by);
    layout.results.iter_mut().for_each(|at| *at += by);
    [&mut layout.typed_result, &mut layout.pack, &mut layout.end].into_iter().for_each(|at| *at += by);
    layout.behind = phase.chain.nest.program.scratch.next_multiple_of(LINE);
}

/// What makes tile programs.
struct Chains<'c, 'a> {
    plan: &'c mut PlanBuilder<'a>,
    shape: &'c BackwardShape,
    group: &'c ShapedGroup,
    level: Level,
    /// Bytes of the scratch of all programs.
    programs: usize,
    tiles: Places,
}

impl Chains<'_, '_> {
    /// The program that makes some values, each in its slot, from supplied ones with slots and tiles; and the
    /// tile of each wanted value by slot. A value that is supplied, or wanted before, has that tile.
    fn chain(
        &mut self,
        supplied: &[(usize, usize, usize)],
        wanted: &[(usize, usize)],
    ) -> Result<(TileChain, [Option<usize>; SLOTS])> {
        let width = |value: usize| self.group.values[value].data_type.size().unwrap_or(4);
        let mut slots: [Option<ChainSlot>; SLOTS] = [None; SLOTS];
        let mut tiles = [None; SLOTS];
        let mut targets: SmallVec<[(usize, usize); 3]> = SmallVec::new();
        let mut widths = [4; SLOTS];
        for &(value, slot, tile) in supplied {
            slots[slot] = Some(self.slot(value, tile, true)?);
            widths[slot] = width(value);
        }
        for &(value, slot) in wanted {
            let known = supplied.iter().find(|(of, ..)| *of == value).map(|&(.., tile)| tile);
            let known = known.or_else(|| {
                let (_, slot) = targets.iter().find(|(of, _)| *of == value)?;
                slots[*slot].map(|slot| slot.tile)
            });
            if known.is_none() {
                let tile = self.tiles.take(tile_bytes(4));
                slots[slot] = Some(self.slot(value, tile, false)?);
                widths[slot] = width(value);
                targets.push((value, slot));
            }
            tiles[slot] = known.or(slots[slot].map(|slot| slot.tile));
        }
        let rank = self.shape.rank();
        let space = DriverSpace {
            dims: self.shape.dims.clone(),
            rows: Some(rank - 1),
            columns: Some(rank - 2),
            tile: self.shape.tile(),
            slots: widths.iter().map(|&width| ((QUERIES * width) as isize, width as isize)).collect(),
            folded: None,
        };
        let mut nest = match targets.is_empty() {
            true => empty_nest(&space),
            false => {
                let supplied: SmallVec<[(usize, usize); 3]> =
                    supplied.iter().map(|&(value, slot, _)| (value, slot)).collect();
                self.plan.slots_program(&space, &supplied, &targets)?
            }
        };
        keys_innermost(&mut nest);
        rewrite_roots(&mut nest.program);
        self.programs += nest.program.scratch.next_multiple_of(LINE);
        Ok((TileChain { nest, slots }, tiles))
    }

    fn slot(&mut self, value: usize, tile: usize, is_supplied: bool) -> Result<ChainSlot> {
        let data_type = self.group.values[value].data_type;
        if data_type == DataType::F32 {
            return Ok(ChainSlot { tile, typed: None });
        }
        let [from, to] = if is_supplied { [DataType::F32, data_type] } else { [data_type, DataType::F32] };
        let (Some(kernels), Some(width)) = (convert(self.level, from, to), data_type.size()) else {
            let fault = format!("no kernel runs gradients of attention on {data_type}");
            return Err(self.plan.refuse(CompileFault::Unsupported(fault)));
        };
        let place = self.tiles.take(tile_bytes(width));
        Ok(ChainSlot { tile, typed: Some(TypedTile { place, width, convert: kernels.kernel }) })
    }
}

/// The loops around the tiles of a space, without accesses.
fn empty_nest(space: &DriverSpace) -> LoopNest {
    let rank = space.dims.len();
    let count = |axis: usize| space.dims[axis] as usize;
    let (keys, queries) = (count(rank - 1), count(rank - 2));
    let extents = (0..rank - 2).map(count);
    let extents = extents.chain([keys.div_ceil(space.tile.rows), queries.div_ceil(space.tile.columns)]);
    let loops: SmallVec<[Loop; 6]> = extents.map(|extent| Loop { extent, strides: smallvec![] }).collect();
    let invalidated_by = smallvec![StepSet::none_of(0); loops.len()];
    LoopNest {
        loops,
        row_blocks: rank - 2,
        column_blocks: rank - 1,
        space: Extent { rows: keys, columns: queries },
        tile: space.tile,
        program: TileProgram { invalidated_by, ..TileProgram::default() },
    }
}

/// How a gradient leaves the phase, and the tiles from index to index of the outer axes of the scores.
#[allow(clippy::too_many_arguments, reason = "each is another thing")]
fn result(
    shaped: &ShapedPartition<'_>,
    plan: &mut PlanBuilder<'_>,
    shape: &BackwardShape,
    place: usize,
    end: &Factors,
    token_axis: usize,
    columns: usize,
    level: Level,
) -> Result<(BackwardResult, SmallVec<[usize; 6]>)> {
    let group = &shaped.group;
    let rank = shape.rank();
    // Where the outer axes of the scores, the tokens and their elements are in the value.
    let is_of_keys = place > 0;
    let sum = shape.sums[place];
    let (mut value, keeps_dims) = match sum {
        Some(sum) => {
            let anchor = &group.anchors[sum];
            (anchor.outputs[0], shaped.partition.ops()[anchor.op].bool_attr(Attr::KeepDims))
        }
        None => (end.result, true),
    };
    let mut places: SmallVec<[Option<usize>; 6]> = SmallVec::new();
    let mut next = 0;
    for axis in 0..rank {
        let is_kept = keeps_dims || !shape.summed.contains(&axis);
        places.push(is_kept.then_some(next));
        next += usize::from(is_kept);
    }
    let is_needed = |value: usize, plan: &PlanBuilder<'_>| {
        let own: SmallVec<[usize; 8]> = shape.anchors().collect();
        let others = (0..group.anchors.len()).filter(|anchor| !own.contains(anchor));
        others.flat_map(|other| &group.anchors[other].inputs).any(|&input| plan.depends(input, value, &[]))
    };
    let is_needed_later = is_needed(value, plan);
    while !is_needed_later
        && !group.outputs.contains(&value)
        && let Some((user, order)) = group.only_transposed(value)
    {
        for place in places.iter_mut().flatten() {
            *place = order.iter().position(|axis| axis == place).unwrap_or(0);
        }
        value = user;
    }
    let of_value = &group.values[value];
    let data_type = of_value.data_type;
    let width = data_type.size().unwrap_or(4);
    let tokens = if is_of_keys { shape.tile().rows } else { shape.tile().columns };
    let slot = match is_of_keys {
        false => (width as isize, (QUERIES * width) as isize),
        true => ((columns * width) as isize, width as isize),
    };
    // Sums in f32 lie in padded rows.
    let slot = match is_of_keys && data_type == DataType::F32 {
        true => ((columns * 4).next_multiple_of(LINE) as isize + LINE as isize, 4),
        false => slot,
    };
    let (rows, element) = (places[rank - 2], places[rank - 1]);
    debug_assert!(token_axis + 2 >= rank);
    let space = DriverSpace {
        dims: of_value.dims.clone(),
        rows,
        columns: element,
        tile: Extent { rows: tokens, columns },
        slots: smallvec![slot],
        folded: None,
    };
    let nest = match is_needed_later {
        false => plan.result_program(&space, value)?,
        true => {
            let anchor = sum.unwrap_or(end.anchor);
            let roots = plan.epilogue_roots(anchor, &[value], None);
            plan.epilogue(&space, &[(value, 0)], &roots)?
        }
    };
    let outer: SmallVec<[usize; 6]> = space.outer().collect();
    let strides: SmallVec<[usize; 6]> = (0..nest.loops.len())
        .map(|index| nest.loops[index + 1..].iter().map(|l| l.extent).product())
        .collect();
    let of_axis = |axis: usize| {
        let at = places[axis].and_then(|place| outer.iter().position(|&other| other == place));
        at.filter(|_| !(is_of_keys && shape.summed.contains(&axis))).map_or(0, |at| strides[at])
    };
    let tiles = (0..rank - 2).map(of_axis).collect();
    let round = match data_type {
        DataType::F32 => None,
        other => Some(convert(level, DataType::F32, other).map(|kernels| kernels.kernel)),
    };
    let round: Option<Kernel1> = match round {
        Some(None) => {
            let fault = format!("no kernel runs gradients of attention on {data_type}");
            return Err(plan.refuse(CompileFault::Unsupported(fault)));
        }
        round => round.flatten(),
    };
    let block_tiles = strides[nest.row_blocks];
    Ok((BackwardResult { nest, block_tiles, round }, tiles))
}
