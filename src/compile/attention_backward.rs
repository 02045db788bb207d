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
use super::elementwise::{DriverSpace, ShapedGroup};
use super::gemm;
use super::machine::Machine;
use super::phases::{AxisStrides, PlacedTensor, PlanBuilder};
use super::rows;
use super::shaped_partition::ShapedPartition;
use crate::compile::memory::whole_lines;
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
    GROUP, KEYS, OPERANDS, OperandForm, OuterAxis, Phase, PhaseOperand, Plan, SLOTS, TileChain, TypedTile,
    ValueId,
};
use crate::types::dtype::DataType;
use crate::types::fallback::FastForm;
use crate::types::kind::{Attr, Level};
use crate::types::shape::{self, SaturatingProduct};

use BackwardOperand as O;

/// The plan of a partition for concrete inputs.
pub(super) fn lower(
    partition: &Partition,
    inputs: &[&LogicalTensor],
    outputs: &[&LogicalTensor],
    machine: Machine,
) -> Result<Plan> {
    let shaped = ShapedPartition::new(partition, inputs, outputs)?;
    let mut plan = PlanBuilder::new(&shaped, machine.level, machine.single_thread());
    let anchors = &shaped.group.anchors;
    let mut is_done = vec![false; anchors.len()];
    // Sums that need no product come first, because the phase may read their results.
    for anchor in 0..anchors.len() {
        let is_sum = infer::is_reduction(&partition.ops()[anchors[anchor].op]);
        if is_sum && anchors[anchor].inputs.iter().all(|&input| plan.is_computable(input, &[])) {
            rows::add(&shaped, &mut plan, anchor)?;
            is_done[anchor] = true;
        }
    }
    let shape = BackwardShape::new(&shaped, &plan, &is_done);
    let first = anchors.first().map_or(0, |anchor| anchor.op);
    if let Some(shape) = plan.taken(FastForm::AttentionBackward, first, shape) {
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
    value: ValueId,
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
        let start = whole_lines(self.0);
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
    let right = [O::DqKeys, O::DkQueries, O::DvGradients];
    for (operand, end) in right.into_iter().zip(&shape.ends) {
        if let Some(end) = end {
            set(operand, tokens(plan, shape, end.right, end.transposes_right)?);
        }
    }

    // Tile programs. Scratch of each comes before all tiles.
    let mut chains = Chains { plan, shape, group, level, programs: 0, tiles: Places(0) };
    let score_tile = chains.tiles.take(tile_bytes(4));
    let gradient_tile = chains.tiles.take(if shape.gradients.is_some() { tile_bytes(4) } else { 0 });
    let raw = |product: &Factors, slot: usize, tile: usize| (product.result, slot, tile);
    let supplied: SmallVec<[(ValueId, usize, usize); 3]> =
        [Some(raw(&shape.scores, TileChain::SCORES, score_tile))]
            .into_iter()
            .chain([shape.gradients.map(|product| raw(&product, TileChain::GRADIENTS, gradient_tile))])
            .flatten()
            .collect();
    let (chain, weights, factors, slopes, softmax);
    match &shape.softmax {
        None => {
            let mut wanted: SmallVec<[(ValueId, usize); 3]> = smallvec![(shape.weights, TileChain::LOGITS)];
            wanted.extend(shape.factors.map(|value| (value, TileChain::P)));
            wanted.extend(shape.slopes.map(|value| (value, TileChain::DS)));
            let (made, tiles) = chains.chain(&supplied, &wanted)?;
            chain = made;
            weights = tiles[TileChain::LOGITS].unwrap_or(score_tile);
            (factors, slopes) = (tiles[TileChain::P], tiles[TileChain::DS]);
            softmax = None;
        }
        Some(of) => {
            let given = of.backward.map(|(_, [given, _])| given);
            let mut wanted: SmallVec<[(ValueId, usize); 3]> = smallvec![(shape.logits, TileChain::LOGITS)];
            wanted.extend(given.map(|value| (value, TileChain::DP)));
            let (made, tiles) = chains.chain(&supplied, &wanted)?;
            chain = made;
            weights = tiles[TileChain::LOGITS].unwrap_or(score_tile);
            let gradients = tiles[TileChain::DP];
            let last = match (of.backward, shape.gradients) {
                (Some((_, [_, result])), _) => gradients.map(|tile| (result, TileChain::GRADIENTS, tile)),
                (None, Some(product)) => Some((product.result, TileChain::GRADIENTS, gradient_tile)),
                (None, None) => None,
            };
            let mut supplied: SmallVec<[(ValueId, usize, usize); 3]> =
                smallvec![(shape.weights, TileChain::SCORES, weights)];
            supplied.extend(last);
            if of.needs_scores {
                supplied.push((shape.scores.result, TileChain::LOGITS, score_tile));
            }
            let mut wanted: SmallVec<[(ValueId, usize); 3]> = SmallVec::new();
            wanted.extend(shape.factors.map(|value| (value, TileChain::P)));
            wanted.extend(shape.slopes.map(|value| (value, TileChain::DS)));
            let (behind, tiles) = chains.chain(&supplied, &wanted)?;
            (factors, slopes) = (tiles[TileChain::P], tiles[TileChain::DS]);
            softmax = Some(BackwardSoftmax {
                gradients: gradients.filter(|_| of.backward.is_some()),
                behind: Some(behind).filter(|behind| !behind.nest.program.roots.is_empty()),
                makes_logits: shape.logits != shape.scores.result,
                makes_gradients: given != shape.gradients.map(|product| product.result),
            });
        }
    }
    // The scratch of the programs, whose size is known only now, stands before the tiles.
    let Chains { programs, tiles, .. } = chains;
    let mut places = Places(programs + tiles.0);

    // The forms of operands, and the places of sums.
    let tile = shape.tile();
    let row = |elements: usize| whole_lines(elements.saturating_mul(4)).saturating_add(LINE);
    let (key_row, value_row) = (row(shape.depth), row(shape.value_columns));
    let row_of = |operand: O| match operand {
        O::Queries | O::Keys | O::DqKeys | O::DkQueries => key_row,
        O::Gradients | O::Values | O::DvGradients => value_row,
    };
    let depth_of = |operand: O| match operand {
        O::Gradients => shape.value_columns,
        _ => shape.depth,
    };
    let product = GemmKernel::new(level, Form::F32);
    let panels = QUERIES.div_ceil(product.panel_columns());
    let all = [O::Queries, O::Keys, O::Gradients, O::Values, O::DqKeys, O::DkQueries, O::DvGradients];
    let types: [DataType; OPERANDS] = all
        .map(|operand| operands[operand as usize].as_ref().map_or(DataType::F32, |of| of.tensor.data_type));
    let mut forms = [OperandForm::Unused; OPERANDS];
    let is_same_keys = operands[O::DqKeys as usize] == operands[O::Keys as usize];
    // Scratch of one block of queries is contiguous, and repeats for each block of the group.
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
            O::DkQueries | O::DvGradients => {
                let pack = RowPack::new(level, data_type, DataType::F32).ok_or_else(|| refuse(plan))?;
                OperandForm::Rows(pack, places.take(row_of(operand).saturating_mul(QUERIES)))
            }
            O::DqKeys if is_same_keys => OperandForm::Same(O::Keys),
            O::Keys | O::Values | O::DqKeys => OperandForm::InPlace,
        };
    }
    let query_sums = places.take(if shape.ends[0].is_some() { shape.depth * QUERIES * 4 } else { 0 });
    let group_step = places.take(0) - group_start;
    let blocks = shape.queries().div_ceil(tile.columns).min(GROUP);
    places.take(group_step.saturating_mul(blocks - 1));
    for operand in [O::Keys, O::Values, O::DqKeys] {
        let data_type = types[operand as usize];
        if matches!(forms[operand as usize], OperandForm::InPlace) && data_type != DataType::F32 {
            let pack =
                RowPack::new(level, data_type, DataType::F32).ok_or_else(|| plan.refuse(unsupported()))?;
            let at = places.take(row_of(operand).saturating_mul(shape.keys()));
            forms[operand as usize] = OperandForm::Rows(pack, at);
        }
    }
    let sums = |end: &Option<Factors>, row: usize| end.map_or(0, |_| row.saturating_mul(shape.keys()));
    let key_sums = places.take(sums(&shape.ends[1], key_row));
    let value_sums = places.take(sums(&shape.ends[2], value_row));
    let finite_keys = places.take(shape.keys().div_ceil(tile.rows));
    let most = QUERIES.max(KEYS).saturating_mul(shape.depth.max(shape.value_columns)).saturating_mul(2);
    let typed_result = places.take(most);
    let pack = places.take(pack::SCRATCH);

    // Results.
    let mut results: [Option<BackwardResult>; 3] = Default::default();
    let mut result_programs = [0; 3];
    let mut result_tiles: [SmallVec<[usize; 6]>; 3] = Default::default();
    let rows = [(query_axis, shape.depth), (key_axis, shape.depth), (key_axis, shape.value_columns)];
    for place in 0..3 {
        let Some(end) = shape.ends[place] else { continue };
        let (token_axis, columns) = rows[place];
        let (made, tiles) = result(shaped, plan, shape, place, &end, token_axis, columns, level)?;
        result_programs[place] = places.take(made.nest.program.scratch);
        result_tiles[place] = tiles;
        results[place] = Some(made);
    }
    let layout = BackwardScratch {
        behind: whole_lines(chain.nest.program.scratch),
        results: result_programs,
        scores: programs + score_tile,
        gradients: programs + gradient_tile,
        key_row,
        value_row,
        group_step,
        query_sums,
        key_sums,
        value_sums,
        finite_keys,
        typed_result,
        pack,
        end: places.take(0),
    };
    let softmax = softmax.map(|softmax| BackwardSoftmax {
        gradients: softmax.gradients.map(|gradients| programs + gradients),
        behind: softmax.behind.map(|behind| behind_programs(behind, programs)),
        ..softmax
    });

    // The accesses of the operands follow those of the chain.
    let TileChain { mut nest, slots } = behind_programs(chain, programs);
    let first_access = nest.program.next_access();
    for operand in 0..OPERANDS {
        let tokens = operands[operand].as_ref().or(operands[0].as_ref());
        let Some(of) = tokens else { continue };
        let is_of_keys = [O::Keys, O::Values, O::DqKeys].iter().any(|&other| other as usize == operand);
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
    let phase = BackwardPhase {
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
        weights: programs + weights,
        factors: factors.map(|tile| programs + tile),
        slopes: slopes.map(|tile| programs + tile),
        classes,
        axes,
        results,
        layout,
    };
    plan.push(Phase::AttentionBackward(Box::new(phase)), shape.flops(), true);
    Ok(())
}

/// A chain whose tiles stand behind the scratch of the programs.
fn behind_programs(chain: TileChain, programs: usize) -> TileChain {
    let slots = chain.slots.map(|slot| {
        slot.map(|ChainSlot { tile, typed }| ChainSlot {
            tile: programs + tile,
            typed: typed.map(|typed| TypedTile { place: programs + typed.place, ..typed }),
        })
    });
    TileChain { slots, ..chain }
}

/// The builder of the tile programs.
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
    /// The program that makes some values, each in its slot, from supplied ones, each with its slot and its
    /// tile; and by slot the tile of each wanted value. A value that is supplied, or was wanted before, has a
    /// tile already, which is reused.
    fn chain(
        &mut self,
        supplied: &[(ValueId, usize, usize)],
        wanted: &[(ValueId, usize)],
    ) -> Result<(TileChain, [Option<usize>; SLOTS])> {
        let width = |value: ValueId| self.group.values[value].data_type.size().unwrap_or(4);
        let mut slots: [Option<ChainSlot>; SLOTS] = [None; SLOTS];
        let mut tiles = [None; SLOTS];
        let mut targets: SmallVec<[(ValueId, usize); 3]> = SmallVec::new();
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
            rows_innermost: true,
            overwrites_results: true,
            ..DriverSpace::new(
                self.shape.dims.clone(),
                [Some(rank - 1), Some(rank - 2)],
                self.shape.tile(),
                widths.iter().map(|&width| ((QUERIES * width) as isize, width as isize)).collect(),
            )
        };
        let nest = match targets.is_empty() {
            true => space.empty_nest(),
            false => {
                let supplied: SmallVec<[(ValueId, usize); 3]> =
                    supplied.iter().map(|&(value, slot, _)| (value, slot)).collect();
                self.plan.slots_program(&space, &supplied, &targets)?
            }
        };
        self.programs = self.programs.saturating_add(whole_lines(nest.program.scratch));
        Ok((TileChain { nest, slots }, tiles))
    }

    fn slot(&mut self, value: ValueId, tile: usize, is_supplied: bool) -> Result<ChainSlot> {
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

/// How a gradient is stored, and the tiles of the result from index to index of the outer axes of the scores.
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
    // For each axis of the scores, its place among the axes of the value; that of tokens and of their
    // elements last.
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
    let is_needed = |value: ValueId, plan: &PlanBuilder<'_>| {
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
    let space = DriverSpace::new(
        of_value.dims.clone(),
        [rows, element],
        Extent { rows: tokens, columns },
        smallvec![slot],
    );
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
        .map(|index| nest.loops[index + 1..].iter().map(|l| l.extent).saturating_product())
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

#[cfg(test)]
mod tests;
