//! Lowers the gradients of attention to one phase. Phases before it compute the sums that it needs; phases
//! after it compute the sums over groups of heads that it cannot compute itself.
//!
//! [`BackwardShape::new`] checks whether the phase runs the shapes of ops with the roles of gradients. Any
//! other partition runs its products and its ops on rows one after another, through internal buffers.

mod form;

use smallvec::{SmallVec, smallvec};

use self::form::BackwardShape;
use super::operands::Tokens;
use super::result::{place_in, rounding, tiles_of_loops, transposed};
use crate::compile::arena::{Arena, padded_row};
use crate::compile::elementwise::DriverSpace;
use crate::compile::machine::Machine;
use crate::compile::phases::{ClassifiedScores, PlanBuilder};
use crate::compile::shaped_partition::ShapedPartition;
use crate::compile::{gemm, rows};
use crate::error::{CompileFault, Error, Result};
use crate::graph::infer;
use crate::kernels::Extent;
use crate::kernels::attention::{AttentionKernels, QUERIES};
use crate::kernels::gemm::pack::{self, PackPanel, RowPack};
use crate::kernels::gemm::{Form, GemmKernel};
use crate::kernels::pointwise::convert;
use crate::partition::matches::GradientRoles;
use crate::plan::{
    BackwardOperand, BackwardPhase, BackwardResult, BackwardScratch, BackwardSoftmax, ChainSlot, GROUP, KEYS,
    LoopNest, OPERANDS, OperandForm, OuterAxis, Phase, PhaseOperand, RESULTS, SLOTS, ScoreBound, TileChain,
    TypedTile, ValueId,
};
use crate::types::dtype::DataType;
use crate::types::fallback::{FallbackReason, FastForm};
use crate::types::kind::{Attr, Level};

use BackwardOperand as O;

/// The operands of the phase, in the order of the accesses.
const OPERAND_ORDER: [O; OPERANDS] =
    [O::Queries, O::Keys, O::Gradients, O::Values, O::DqKeys, O::DkQueries, O::DvGradients];

/// The operands whose tokens are keys.
const OF_KEYS: [O; 3] = [O::Keys, O::Values, O::DqKeys];

/// Adds the phases: those of sums, the one of the gradients, and those of all else.
pub(in crate::compile) fn add(
    shaped: &ShapedPartition<'_>,
    plan: &mut PlanBuilder<'_>,
    (weights, roles): (usize, Result<GradientRoles, FallbackReason>),
    machine: Machine,
) -> Result<()> {
    let anchors = &shaped.group.anchors;
    let mut is_done = vec![false; anchors.len()];
    // Sums that need no product come first, because the phase may read their results.
    for anchor in 0..anchors.len() {
        let is_sum = infer::is_reduction(plan.op(anchors[anchor].op));
        if is_sum && anchors[anchor].inputs.iter().all(|&input| plan.is_computable(input, &[])) {
            rows::add(shaped, plan, anchor)?;
            is_done[anchor] = true;
        }
    }
    let shape = roles.and_then(|roles| BackwardShape::new(plan, roles));
    if let Some(shape) = plan.taken(FastForm::AttentionBackward, weights, shape) {
        add_phase(plan, &shape, machine.level)?;
        shape.anchors().for_each(|anchor| is_done[anchor] = true);
    }
    let rest = (0..anchors.len()).filter(|&anchor| !is_done[anchor]);
    gemm::add_anchors(shaped, plan, rest, machine)
}

/// Bytes of a tile of scores.
fn tile_bytes(width: usize) -> usize {
    KEYS * QUERIES * width
}

/// Adds the phase.
fn add_phase(plan: &mut PlanBuilder<'_>, shape: &BackwardShape, level: Level) -> Result<()> {
    let mut lowering = BackwardLowering { plan, shape, level, arena: Arena::behind(0) };
    let operands = lowering.operands()?;
    let programs = lowering.programs()?;
    let of_programs = lowering.program_scratch(&programs);
    let (forms, places) = lowering.forms(&operands)?;
    let results = [lowering.result(0)?, lowering.result(1)?, lowering.result(2)?, lowering.stored_tiles()?];
    let phase = lowering.phase(&operands, programs, of_programs, forms, places, results);
    plan.push(Phase::AttentionBackward(Box::new(phase)), shape.flops(), true);
    Ok(())
}

/// Makes the phase.
struct BackwardLowering<'l, 'a> {
    plan: &'l mut PlanBuilder<'a>,
    shape: &'l BackwardShape,
    level: Level,
    /// The scratch of a thread.
    arena: Arena,
}

/// The tile programs, and the tiles that they take and make.
struct Programs {
    chain: TileChain,
    softmax: Option<BackwardSoftmax>,
    /// The tiles of S and of dP.
    scores: usize,
    gradients: usize,
    /// The tiles of P, of P as dV = Pᵀ·dO takes it, and of dS.
    weights: usize,
    p: Option<usize>,
    ds: Option<usize>,
    /// The tile that is stored as a whole.
    mask: Option<usize>,
}

/// Places of operands and sums in the scratch.
struct Places {
    group_step: usize,
    query_sums: usize,
    key_sums: usize,
    value_sums: usize,
    finite_keys: usize,
    typed_result: usize,
    pack: usize,
}

/// A store of a gradient: its tiles from index to index of the outer axes of the scores, and the scratch of
/// its program.
struct StoredGradient {
    result: BackwardResult,
    tiles: SmallVec<[usize; 6]>,
    scratch: usize,
}

/// A program that makes values, and by slot the tile of each of them.
type MadeTiles = (TileChain, [Option<usize>; SLOTS]);

/// A value that a program takes or makes, with its slot.
type Slotted = (ValueId, usize);

impl BackwardLowering<'_, '_> {
    /// The operands of the products.
    fn operands(&mut self) -> Result<[Option<Tokens>; OPERANDS]> {
        let Self { shape, .. } = *self;
        let mut operands: [Option<Tokens>; OPERANDS] = Default::default();
        let mut set = |operand: O, value: ValueId, is_transposed: bool| -> Result<()> {
            operands[operand as usize] = Some(Tokens::new(self.plan, value, is_transposed, &shape.dims)?);
            Ok(())
        };
        let of_products =
            [(O::Queries, O::Keys, Some(shape.roles.scores)), (O::Gradients, O::Values, shape.roles.dp)];
        for (left, right, product) in of_products {
            let Some(of) = product else { continue };
            set(left, of.left, of.transposes_left)?;
            set(right, of.right, !of.transposes_right)?;
        }
        let right = [O::DqKeys, O::DkQueries, O::DvGradients];
        for (operand, product) in right.into_iter().zip(&shape.roles.results) {
            let Some(of) = product else { continue };
            set(operand, of.right, of.transposes_right)?;
        }
        Ok(operands)
    }

    /// The tile programs.
    fn programs(&mut self) -> Result<Programs> {
        let Self { shape, .. } = *self;
        let scores = self.arena.take(tile_bytes(4));
        let gradients = self.arena.take(if shape.roles.dp.is_some() { tile_bytes(4) } else { 0 });
        let raw = [
            Some((shape.roles.scores.result, TileChain::SCORES, scores)),
            shape.roles.dp.map(|product| (product.result, TileChain::GRADIENTS, gradients)),
        ];
        let raw: SmallVec<[(ValueId, usize, usize); 3]> = raw.into_iter().flatten().collect();
        let made = [(shape.p, TileChain::P), (shape.ds, TileChain::DS), (shape.roles.mask, TileChain::MASK)];
        let made = made.into_iter().filter_map(|(value, slot)| value.map(|value| (value, slot)));
        let made: SmallVec<[Slotted; 3]> = made.collect();
        match shape.roles.softmax {
            None => {
                let first = [(shape.roles.weights, TileChain::LOGITS)];
                let wanted: SmallVec<[Slotted; 3]> = first.into_iter().chain(made).collect();
                let (chain, tiles) = self.chain(&raw, &wanted)?;
                Ok(Programs {
                    chain,
                    softmax: None,
                    scores,
                    gradients,
                    weights: tiles[TileChain::LOGITS].unwrap_or(scores),
                    p: tiles[TileChain::P],
                    ds: tiles[TileChain::DS],
                    mask: tiles[TileChain::MASK],
                })
            }
            Some(_) => self.around_softmax(&raw, &made, [scores, gradients]),
        }
    }

    /// The program before a SoftMax and its gradient, and the one behind both.
    fn around_softmax(
        &mut self,
        raw: &[(ValueId, usize, usize)],
        made: &[Slotted],
        [scores, gradients]: [usize; 2],
    ) -> Result<Programs> {
        let Self { shape, .. } = *self;
        let given = shape.roles.backward.map(|(_, [given, _])| given);
        let mut wanted: SmallVec<[Slotted; 3]> = smallvec![(shape.roles.logits, TileChain::LOGITS)];
        wanted.extend(given.map(|value| (value, TileChain::DP)));
        let (chain, tiles) = self.chain(raw, &wanted)?;
        let weights = tiles[TileChain::LOGITS].unwrap_or(scores);
        let of_gradient = tiles[TileChain::DP];
        let last = match (shape.roles.backward, shape.roles.dp) {
            (Some((_, [_, result])), _) => of_gradient.map(|tile| (result, TileChain::GRADIENTS, tile)),
            (None, Some(product)) => Some((product.result, TileChain::GRADIENTS, gradients)),
            (None, None) => None,
        };
        let mut supplied: SmallVec<[(ValueId, usize, usize); 3]> =
            smallvec![(shape.roles.weights, TileChain::SCORES, weights)];
        supplied.extend(last);
        supplied.extend(shape.needs_scores.then_some((shape.roles.scores.result, TileChain::LOGITS, scores)));
        let (behind, tiles) = self.chain(&supplied, made)?;
        let softmax = BackwardSoftmax {
            gradients: of_gradient.filter(|_| shape.roles.backward.is_some()),
            behind: Some(behind).filter(|behind| !behind.nest.program.roots.is_empty()),
            makes_logits: shape.roles.logits != shape.roles.scores.result,
            makes_gradients: given != shape.roles.dp.map(|product| product.result),
        };
        Ok(Programs {
            chain,
            softmax: Some(softmax),
            scores,
            gradients,
            weights,
            p: tiles[TileChain::P],
            ds: tiles[TileChain::DS],
            mask: tiles[TileChain::MASK],
        })
    }

    /// The scratch of the program before the SoftMax and of the one behind it.
    fn program_scratch(&mut self, programs: &Programs) -> [usize; 2] {
        let behind = programs.softmax.as_ref().and_then(|softmax| softmax.behind.as_ref());
        let behind = behind.map_or(0, |behind| behind.nest.program.scratch);
        [programs.chain.nest.program.scratch, behind].map(|bytes| self.arena.take(bytes))
    }

    /// The program that makes some values, each in its slot, from supplied ones, each with its slot and its
    /// tile. A value that is supplied, or was wanted before, has a tile already, which is reused.
    fn chain(&mut self, supplied: &[(ValueId, usize, usize)], wanted: &[Slotted]) -> Result<MadeTiles> {
        let group = self.plan.group();
        let width = |value: ValueId| group.values[value].data_type.size().unwrap_or(4);
        let mut slots: [Option<ChainSlot>; SLOTS] = [None; SLOTS];
        let mut tiles = [None; SLOTS];
        let mut targets: SmallVec<[Slotted; 3]> = SmallVec::new();
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
                let tile = self.arena.take(tile_bytes(4));
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
                let supplied = supplied.iter().map(|&(value, slot, _)| (value, slot));
                self.plan.slots_program(&space, &supplied.collect::<SmallVec<[Slotted; 3]>>(), &targets)?
            }
        };
        Ok((TileChain { nest, slots }, tiles))
    }

    fn slot(&mut self, value: ValueId, tile: usize, is_supplied: bool) -> Result<ChainSlot> {
        let data_type = self.plan.group().values[value].data_type;
        if data_type == DataType::F32 {
            return Ok(ChainSlot { tile, typed: None });
        }
        let [from, to] = if is_supplied { [DataType::F32, data_type] } else { [data_type, DataType::F32] };
        let (Some(kernels), Some(width)) = (convert(self.level, from, to), data_type.size()) else {
            return Err(self.refuse(data_type));
        };
        let place = self.arena.take(tile_bytes(width));
        Ok(ChainSlot { tile, typed: Some(TypedTile { place, width, convert: kernels.kernel }) })
    }

    fn refuse(&self, data_type: DataType) -> Error {
        let fault = format!("no kernel runs gradients of attention on {data_type}");
        self.plan.refuse(CompileFault::Unsupported(fault))
    }

    /// Bytes of a row of an operand in f32.
    fn row_of(&self, operand: O) -> usize {
        padded_row(match operand {
            O::Queries | O::Keys | O::DqKeys | O::DkQueries => self.shape.depth,
            O::Gradients | O::Values | O::DvGradients => self.shape.value_columns,
        })
    }

    /// The forms of the operands, and the places of operands and sums.
    fn forms(&mut self, operands: &[Option<Tokens>; OPERANDS]) -> Result<([OperandForm; OPERANDS], Places)> {
        let Self { shape, .. } = *self;
        // Scratch of one block of queries is contiguous, and repeats for each block of the group.
        let start = self.arena.take(0);
        let mut forms = [OperandForm::Unused; OPERANDS];
        for operand in OPERAND_ORDER {
            if let Some(of) = &operands[operand as usize]
                && !OF_KEYS.contains(&operand)
            {
                forms[operand as usize] = self.form_of_block(operand, of.data_type)?;
            }
        }
        let [of_dq, of_dk, of_dv] = shape.roles.results.map(|product| product.is_some());
        let query_sums = self.arena.take(if of_dq { shape.depth * QUERIES * 4 } else { 0 });
        let group_step = self.arena.take(0) - start;
        let blocks = shape.queries().div_ceil(shape.tile().columns).min(GROUP);
        self.arena.take(group_step.saturating_mul(blocks - 1));
        for operand in OF_KEYS {
            let Some(of) = &operands[operand as usize] else { continue };
            let is_same = operand == O::DqKeys && operands[O::Keys as usize].as_ref() == Some(of);
            forms[operand as usize] = match of.data_type {
                _ if is_same => OperandForm::Same(O::Keys),
                DataType::F32 => OperandForm::InPlace,
                other => self.rows(operand, other, shape.keys())?,
            };
        }
        let sums = |is_wanted: bool, columns: usize| match is_wanted {
            true => padded_row(columns).saturating_mul(shape.keys()),
            false => 0,
        };
        let (key_sums, value_sums) = (sums(of_dk, shape.depth), sums(of_dv, shape.value_columns));
        let of_mask = if shape.roles.mask.is_some() { QUERIES } else { 0 };
        let columns = shape.depth.max(shape.value_columns).max(of_mask);
        let places = Places {
            group_step,
            query_sums,
            key_sums: self.arena.take(key_sums),
            value_sums: self.arena.take(value_sums),
            finite_keys: self.arena.take(shape.keys().div_ceil(shape.tile().rows)),
            typed_result: self.arena.take(QUERIES.max(KEYS).saturating_mul(columns).saturating_mul(2)),
            pack: self.arena.take(pack::SCRATCH),
        };
        Ok((forms, places))
    }

    /// The form of an operand whose tokens are those of a block of queries.
    fn form_of_block(&mut self, operand: O, data_type: DataType) -> Result<OperandForm> {
        let depth = match operand {
            O::Queries => self.shape.depth,
            O::Gradients => self.shape.value_columns,
            _ => return self.rows(operand, data_type, QUERIES),
        };
        let pack = PackPanel::new(self.level, data_type, Form::F32, QUERIES);
        let pack = pack.ok_or_else(|| self.refuse(data_type))?;
        let panels = QUERIES.div_ceil(GemmKernel::new(self.level, Form::F32).panel_columns());
        Ok(OperandForm::Panels(pack, self.arena.take(pack.panel_bytes(depth).saturating_mul(panels))))
    }

    /// The form of an operand of which so many tokens become rows of f32.
    fn rows(&mut self, operand: O, data_type: DataType, tokens: usize) -> Result<OperandForm> {
        let pack = RowPack::new(self.level, data_type, DataType::F32);
        let pack = pack.ok_or_else(|| self.refuse(data_type))?;
        let bytes = self.row_of(operand).saturating_mul(tokens);
        Ok(OperandForm::Rows(pack, self.arena.take(bytes)))
    }

    /// The store of dQ, dK or dV; none if the gradient is not wanted.
    fn result(&mut self, place: usize) -> Result<Option<StoredGradient>> {
        let Self { shape, .. } = *self;
        let Some(product) = shape.roles.results[place] else { return Ok(None) };
        let (group, rank) = (self.plan.group(), shape.rank());
        let is_of_keys = place > 0;
        let (from, keeps_dims) = match shape.sums[place] {
            Some(sum) => {
                let anchor = &group.anchors[sum];
                (anchor.outputs[0], self.plan.op(anchor.op).bool_attr(Attr::KeepDims))
            }
            None => (product.result, true),
        };
        // For each axis of the scores, its place among the axes of the value; that of tokens and of their
        // elements last.
        let mut places: SmallVec<[Option<usize>; 6]> = SmallVec::new();
        let mut next = 0;
        for axis in 0..rank {
            let is_kept = keeps_dims || !shape.summed.contains(&axis);
            places.push(is_kept.then_some(next));
            next += usize::from(is_kept);
        }
        let is_needed_later = self.is_needed_later(from);
        let value = match is_needed_later {
            true => from,
            false => transposed(group, from, |order| {
                places.iter_mut().flatten().for_each(|place| *place = place_in(order, *place));
            }),
        };
        let data_type = group.values[value].data_type;
        let columns = if place < 2 { shape.depth } else { shape.value_columns };
        let space = DriverSpace::new(
            group.values[value].dims.clone(),
            [places[rank - 2], places[rank - 1]],
            Extent { rows: if is_of_keys { shape.tile().rows } else { shape.tile().columns }, columns },
            smallvec![slot_of(is_of_keys, data_type, columns)],
        );
        let nest = match is_needed_later {
            false => self.plan.result_program(&space, value)?,
            true => {
                let anchor = shape.sums[place].unwrap_or(product.anchor);
                let roots = self.plan.epilogue_roots(anchor, &[value], None);
                self.plan.epilogue(&space, &[(value, 0)], &roots)?
            }
        };
        let outer: SmallVec<[usize; 6]> = space.outer().collect();
        let of_loops = tiles_of_loops(&nest);
        let of_axis = |axis: usize| {
            let at = places[axis].and_then(|place| outer.iter().position(|&other| other == place));
            at.filter(|_| !(is_of_keys && shape.summed.contains(&axis))).map_or(0, |at| of_loops[at])
        };
        let tiles = (0..rank - 2).map(of_axis).collect();
        let round = rounding(self.plan, data_type)?;
        let scratch = self.arena.take(nest.program.scratch);
        let block_tiles = of_loops[nest.row_blocks];
        Ok(Some(StoredGradient { result: BackwardResult { nest, block_tiles, round }, tiles, scratch }))
    }

    /// The store of the tiles of a value that is needed as a whole, each at the place of its scores; none if
    /// no value is.
    fn stored_tiles(&mut self) -> Result<Option<StoredGradient>> {
        let Self { shape, .. } = *self;
        let Some(value) = shape.roles.mask else { return Ok(None) };
        let (rank, tile) = (shape.rank(), shape.tile());
        let data_type = self.plan.group().values[value].data_type;
        let space = DriverSpace::new(
            shape.dims.clone(),
            [Some(rank - 2), Some(rank - 1)],
            Extent { rows: tile.columns, columns: tile.rows },
            smallvec![slot_of(false, data_type, 0)],
        );
        let nest = self.plan.epilogue(&space, &[(value, 0)], &[value])?;
        let round = rounding(self.plan, data_type)?;
        let scratch = self.arena.take(nest.program.scratch);
        let result = BackwardResult { nest, block_tiles: 1, round };
        Ok(Some(StoredGradient { result, tiles: SmallVec::new(), scratch }))
    }

    /// True if anchors outside of the phase need a value.
    fn is_needed_later(&self, value: ValueId) -> bool {
        let anchors = &self.plan.group().anchors;
        let own: SmallVec<[usize; 8]> = self.shape.anchors().collect();
        let others = (0..anchors.len()).filter(|anchor| !own.contains(anchor));
        let mut inputs = others.flat_map(|other| &anchors[other].inputs);
        inputs.any(|&input| self.plan.depends(input, value, &[]))
    }

    /// The chain's nest with the accesses of the operands behind its own.
    fn attach(&self, mut nest: LoopNest, operands: &[Option<Tokens>; OPERANDS]) -> LoopNest {
        let (outer, tile) = (self.shape.rank() - 2, self.shape.tile());
        for operand in OPERAND_ORDER {
            // An unused operand is the queries again.
            let own = operands[operand as usize].as_ref();
            let Some(of) = own.or(operands[O::Queries as usize].as_ref()) else { continue };
            let is_of_keys = own.is_some() && OF_KEYS.contains(&operand);
            let tokens = if is_of_keys { tile.rows } else { tile.columns };
            nest.program.accesses.push(of.access());
            for index in 0..nest.loops.len() {
                let stride = match index {
                    _ if index < outer => of.outer[index],
                    _ if (index == nest.row_blocks) == is_of_keys => of.token.saturating_mul(tokens as isize),
                    _ => 0,
                };
                nest.loops[index].strides.push(stride);
            }
        }
        nest
    }

    /// The bound of the scores.
    fn score_bound(&self, operands: &[Option<Tokens>; OPERANDS]) -> Option<ScoreBound> {
        let Self { shape, .. } = self;
        let (dims, outer) = (&shape.dims, shape.rank() - 2);
        let bounded = |operand: O, axis: usize| {
            let tokens = operands[operand as usize].as_ref()?;
            tokens.bounded(dims, 0..outer, [dims[axis] as usize, shape.depth])
        };
        let [queries, keys] = [bounded(O::Queries, outer)?, bounded(O::Keys, outer + 1)?];
        Some(ScoreBound { operands: [queries, keys], depth: shape.depth })
    }

    /// The axes around the tiles of scores.
    fn axes(&self, results: &[Option<StoredGradient>; RESULTS]) -> SmallVec<[OuterAxis; 6]> {
        let Self { shape, .. } = self;
        let extents: SmallVec<[usize; 6]> =
            shape.dims[..shape.rank() - 2].iter().map(|&dim| dim as usize).collect();
        let axis = |axis: usize| OuterAxis {
            extent: extents[axis],
            is_summed: shape.summed.contains(&axis),
            places: extents[axis + 1..].iter().product(),
            result_tiles: [0, 1, 2].map(|place| results[place].as_ref().map_or(0, |of| of.tiles[axis])),
        };
        (0..extents.len()).map(axis).collect()
    }

    fn phase(
        self,
        operands: &[Option<Tokens>; OPERANDS],
        programs: Programs,
        [chain, behind]: [usize; 2],
        forms: [OperandForm; OPERANDS],
        places: Places,
        results: [Option<StoredGradient>; RESULTS],
    ) -> BackwardPhase {
        let shape = self.shape;
        let first_access = programs.chain.nest.program.next_access();
        let TileChain { nest, slots } = programs.chain;
        let nest = self.attach(nest, operands);
        let classified = ClassifiedScores {
            scores: shape.roles.scores.result,
            logits: shape.roles.logits,
            query_axis: shape.rank() - 2,
            key_axis: shape.rank() - 1,
            is_exponent: shape.roles.softmax.is_none(),
            divides: false,
            sums_left_out: &[],
        };
        let classes = self.plan.classify(classified, self.score_bound(operands));
        let type_of =
            |operand: O| operands[operand as usize].as_ref().map_or(DataType::F32, |of| of.data_type);
        let axes = self.axes(&results);
        let layout = BackwardScratch {
            chain,
            behind,
            results: results.each_ref().map(|stored| stored.as_ref().map_or(0, |of| of.scratch)),
            scores: programs.scores,
            gradients: programs.gradients,
            key_row: padded_row(shape.depth),
            value_row: padded_row(shape.value_columns),
            group_step: places.group_step,
            query_sums: places.query_sums,
            key_sums: places.key_sums,
            value_sums: places.value_sums,
            finite_keys: places.finite_keys,
            typed_result: places.typed_result,
            pack: places.pack,
            end: self.arena.bytes(),
        };
        BackwardPhase {
            chain: TileChain { nest, slots },
            first_access,
            operands: OPERAND_ORDER
                .map(|operand| PhaseOperand { data_type: type_of(operand), form: forms[operand as usize] }),
            softmax: programs.softmax,
            depth: shape.depth,
            value_columns: shape.value_columns,
            product: GemmKernel::new(self.level, Form::F32),
            kernels: AttentionKernels::new(self.level),
            weights: programs.weights,
            p: programs.p,
            ds: programs.ds,
            mask: programs.mask,
            classes,
            axes,
            results: results.map(|stored| stored.map(|of| of.result)),
            layout,
        }
    }
}

/// Bytes from token to token and from element to element of the slot from which a gradient is stored.
fn slot_of(is_of_keys: bool, data_type: DataType, columns: usize) -> (isize, isize) {
    let width = data_type.size().unwrap_or(4);
    match (is_of_keys, data_type) {
        (false, _) => (width as isize, (QUERIES * width) as isize),
        // Sums in f32 lie in padded rows.
        (true, DataType::F32) => (padded_row(columns) as isize, 4),
        (true, _) => ((columns * width) as isize, width as isize),
    }
}

#[cfg(test)]
mod tests;
