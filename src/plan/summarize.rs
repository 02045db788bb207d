//! Describes a plan for people and tools: each phase as loops, tiles and steps.

use super::ids::AccessId;
use super::register_fusion::RegisterFusionVerdict;
use super::summary::{
    FallbackSummary, LoopOver, LoopSummary, NestSummary, PlanSummary, StepOperand, StepSummary,
};
use super::{
    AttentionCore, AttentionOperand, BackwardOperand, BackwardPhase, Base, CLASS_TILE, ClassifyPhase, Dest,
    Fallback, FoldWork, FusedRows, GemmMethod, GemmOperand, GemmPhase, Instr, LeftForm, LookupPhase,
    LoopNest, Operand, PackPhase, PageTable, PagedPhase, Phase, Plan, PoolPhase, QuantizedTokens,
    RaggedPhase, RightForm, RowPlace, RowWork, RowsPhase, ScoreFactor, Step, TopKPhase,
};
use crate::error::OpRef;
use crate::kernels::gemm::Form;
use crate::kernels::rows::RowPass;
use crate::kernels::{InnerStride, StorePolicy};
use crate::types::id::{OpId, TensorId};
use crate::types::kind::{Level, OpKind, PhaseKind};

impl Plan {
    /// The fast forms that were not taken, given the ops of the partition.
    pub(crate) fn fallbacks_of(&self, ops: &[(OpKind, OpId)]) -> impl Iterator<Item = FallbackSummary> {
        self.fallbacks.iter().filter_map(|&Fallback { form, op, reason }| {
            let &(kind, id) = ops.get(op)?;
            Some(FallbackSummary { form, op: OpRef { kind, id }, reason })
        })
    }

    /// The plan in words, given the ids of the ports, inputs first, the ops of the partition, and the number
    /// of threads of each phase.
    pub(crate) fn summary(
        &self,
        ids: &[TensorId],
        ops: &[(OpKind, OpId)],
        bytes_written: usize,
        level: Level,
        threads: impl Fn(&Phase) -> usize,
    ) -> PlanSummary {
        let summary = |(index, (phase, &flops)): (usize, (&Phase, &usize))| NestSummary {
            flops,
            is_kept: self.preparation.phases.contains(&index),
            ..phase.summary(ids, threads(phase))
        };
        PlanSummary {
            level,
            scratch_per_thread: self.scratch,
            buffer_bytes: self.buffer_bytes(),
            bytes_read: self.cost.bytes.saturating_sub(bytes_written),
            bytes_written,
            flops: self.cost.flops,
            non_temporal_stores: self.stores == StorePolicy::NonTemporal,
            nests: self.phases.iter().zip(&self.phase_flops).enumerate().map(summary).collect(),
            fallbacks: self.fallbacks_of(ops).collect(),
        }
    }
}

impl Phase {
    fn summary(&self, ids: &[TensorId], threads: usize) -> NestSummary {
        let nest = match self {
            Self::Map(nest) => nest.summary(ids, threads),
            Self::Rows(rows) => rows.summary(ids, threads),
            Self::Pack(pack) => pack.summary(ids, threads),
            Self::Gemm(gemm) => gemm.summary(ids, threads),
            Self::Attention(attention) => {
                let weights = attention.weights.as_ref().map(|weights| &weights.nest);
                let beside = BesideCore {
                    weights,
                    factor: attention.factor.as_ref(),
                    is_integer: attention.integers().is_some(),
                };
                attention.core.summary(beside, ids, threads)
            }
            Self::Decode(decode) => decode.core.summary(BesideCore::default(), ids, threads),
            Self::AttentionBackward(backward) => backward.summary(ids, threads),
            Self::Classify(classify) => classify.summary(ids, threads),
            Self::Ragged(ragged) => ragged.summary(ids, threads),
            Self::Lookup(lookup) => lookup.summary(ids, threads),
            Self::TopK(top_k) => top_k.summary(ids, threads),
            Self::Pool(pool) => pool.summary(ids, threads),
            Self::Paged(paged) => paged.summary(ids, threads),
        };
        NestSummary { kind: self.kind(), tasks: self.tasks(), scratch: self.scratch(), ..nest }
    }
}

impl RowsPhase {
    /// The work on rows as one step, between the steps of its prologue and of its epilogue.
    fn summary(&self, ids: &[TensorId], threads: usize) -> NestSummary {
        let accessed = |place: RowPlace| match place {
            RowPlace::Access(access) => Some(self.nest.accessed(access, ids)),
            RowPlace::Program => Some(StepOperand::Phase),
            RowPlace::Unused => None,
        };
        let places = self.operands.iter().map(|operand| operand.place);
        let places = places.chain(self.parameters.iter().map(|parameter| parameter.operand.place));
        let places = places.chain(self.given.iter().map(|numbers| numbers.place));
        let measured = self.measured.map(|measured| RowPlace::Access(measured.access));
        let is_measuring = self.pass() == RowPass::Measure;
        let places = places.chain(measured.filter(|_| !is_measuring));
        let written = self.result.iter().map(|result| result.place);
        let written = written.chain(measured.filter(|_| is_measuring));
        let mut written =
            written.chain(self.numbers.iter().map(|numbers| numbers.place)).filter_map(accessed);
        let packed = self.operands.iter().chain(&self.result).any(|operand| operand.packed.is_some());
        let form = match self.work {
            RowWork::Fold(FoldWork { by_columns: true, .. }) => " by columns",
            RowWork::Merge { .. } => " of parts",
            RowWork::ChannelNorm { .. } if is_measuring => ", numbers of parts by channels",
            RowWork::ChannelNorm { .. } => " by channels",
            _ if is_measuring => ", numbers of parts",
            _ if measured.is_some() => " by parts",
            _ if packed => " of packed rows",
            _ => "",
        };
        let work = StepSummary {
            tasks: vec![format!("{}{form}", self.name)],
            operands: places.filter_map(accessed).collect(),
            output: written.clone().find_map(|to| match to {
                StepOperand::Tensor(id) => Some(id),
                _ => None,
            }),
            buffer: written.find_map(|to| match to {
                StepOperand::Buffer(buffer) => Some(buffer),
                _ => None,
            }),
            varies_by_row: true,
            varies_by_column: true,
            lazy_branches: false,
            register_fusion: RegisterFusionVerdict::NoPartner,
        };
        let mut summary = self.nest.summary(ids, threads);
        let mut add = |steps: Vec<StepSummary>| {
            let first = summary.steps.len();
            summary.steps.extend(steps.into_iter().map(|mut step| {
                for operand in &mut step.operands {
                    if let StepOperand::Step(step) = operand {
                        *step += first;
                    }
                }
                step
            }));
        };
        let of_program = |fused: &Option<FusedRows>| {
            fused.as_ref().map_or_else(Vec::new, |fused| fused.nest.summary(ids, threads).steps)
        };
        add(of_program(&self.prologue));
        add(vec![work]);
        add(of_program(&self.epilogue));
        summary.columns = self.length;
        summary.tile_columns = self.part.min(self.length);
        summary.tiles = self.tasks();
        summary
    }
}

/// An item that starts at a base.
fn accessed(base: Base, ids: &[TensorId]) -> StepOperand {
    match base {
        Base::Port(port) => StepOperand::Tensor(ids[port]),
        Base::Constant(_) => StepOperand::Constant,
        Base::Index => StepOperand::Index,
        Base::Buffer(buffer) => StepOperand::Buffer(buffer),
        Base::Driver(_) => StepOperand::Phase,
    }
}

impl LoopNest {
    fn accessed(&self, access: AccessId, ids: &[TensorId]) -> StepOperand {
        accessed(self.program.accesses[access].base, ids)
    }

    fn summary(&self, ids: &[TensorId], threads: usize) -> NestSummary {
        let over = |index: usize| match index {
            _ if index == self.row_blocks => LoopOver::RowBlocks,
            _ if index == self.column_blocks => LoopOver::ColumnBlocks,
            _ => LoopOver::Dims,
        };
        let turning = self.loops.iter().enumerate().filter(|(_, l)| l.extent != 1);
        // The phase and the plan fill in what the loops do not tell.
        NestSummary {
            kind: PhaseKind::Map,
            is_kept: false,
            tasks: self.tiles(),
            flops: 0,
            scratch: self.program.scratch,
            loops: turning.map(|(index, l)| LoopSummary { extent: l.extent, over: over(index) }).collect(),
            rows: self.space.rows,
            columns: self.space.columns,
            tile_rows: self.tile.rows,
            tile_columns: self.tile.columns,
            tiles: self.tiles(),
            threads,
            steps: self.program.steps.iter().map(|step| self.step_summary(step, ids)).collect(),
        }
    }

    fn step_summary(&self, step: &Step, ids: &[TensorId]) -> StepSummary {
        let operand = |operand| match operand {
            Operand::Access(access) => self.accessed(access, ids),
            Operand::Step(step) => StepOperand::Step(step.0),
        };
        let output = match step.to {
            Dest::Access(access) => Some(self.accessed(access, ids)),
            Dest::Scratch(..) => None,
        };
        StepSummary {
            tasks: step.labels.iter().map(ToString::to_string).collect(),
            operands: step.instr.operands().into_iter().map(operand).collect(),
            output: output.and_then(StepOperand::tensor),
            buffer: output.and_then(StepOperand::buffer),
            varies_by_row: step.space.rows,
            varies_by_column: step.space.columns == InnerStride::Contiguous,
            lazy_branches: matches!(&step.instr, Instr::Select(select) if select.classify_mask.is_some()),
            register_fusion: step.register_fusion,
        }
    }
}

impl PackPhase {
    fn summary(&self, ids: &[TensorId], threads: usize) -> NestSummary {
        let accessed = |access: AccessId| self.nest.accessed(access, ids);
        let task = "pack the right operand of a product".to_owned();
        let pack = driver_step(task, vec![accessed(Self::FROM)], accessed(Self::TO));
        NestSummary { steps: vec![pack], ..self.nest.summary(ids, threads) }
    }
}

impl GemmPhase {
    fn summary(&self, ids: &[TensorId], threads: usize) -> NestSummary {
        let accessed = |operand: GemmOperand| self.nest.accessed(self.first_access + operand as usize, ids);
        let mut operands = vec![accessed(GemmOperand::Left), accessed(GemmOperand::Right)];
        if self.bias.is_some() {
            operands.push(accessed(GemmOperand::Bias));
        }
        let algorithm = match self.method {
            _ if self.dequantized.is_some_and(|of| of.in_registers) => "f32 in registers".to_owned(),
            GemmMethod::Dots { .. } if self.dequantized.is_some() => {
                "dot products, columns in f32".to_owned()
            }
            GemmMethod::Dots { .. } => "dot products".to_owned(),
            GemmMethod::Depthwise { group: 1, .. } => "channel by channel".to_owned(),
            GemmMethod::Depthwise { .. } => "group by group".to_owned(),
            GemmMethod::Planes { is_depthwise: true, .. } => "channel by channel in planes".to_owned(),
            GemmMethod::Planes { .. } => "planes of the image".to_owned(),
            GemmMethod::Tiles { kernel, depth_block, right, .. } => {
                let right = match right {
                    RightForm::InPlace | RightForm::Streams => "rows in place",
                    RightForm::Packed => "packed panels",
                    RightForm::PackedInTile(_) => "panels packed in tiles",
                    RightForm::Windows(_) => "windows gathered in tiles",
                    RightForm::Dequantized(_) => "panels dequantised in tiles",
                };
                let form = match kernel.form() {
                    Form::F32 | Form::Holes => "f32",
                    Form::F64 => "f64",
                    Form::Bf16Pairs => "pairs of bf16",
                    Form::Bf16Tiles => "pairs of bf16 in AMX tiles",
                    Form::Bf16 => "f32 from bf16",
                    Form::F16 => "f32 from f16",
                    Form::S8Quads => "s32 from quads of 8 bits",
                    Form::S8Tiles => "s32 from quads of 8 bits in AMX tiles",
                    Form::S16Pairs => "s32 from pairs of 16 bits",
                };
                format!("{form}, {right}, blocks of {}", depth_block.min(self.depth))
            }
        };
        let left = match self.left {
            LeftForm::Columns(_) => ", left columns copied in tiles",
            LeftForm::Windows(_) => ", windows gathered in tiles",
            LeftForm::InPlace | LeftForm::Rows(_) => "",
        };
        let task = format!("product of depth {} ({algorithm}{left})", self.depth);
        let product = driver_step(task, operands, accessed(GemmOperand::Result));
        let nest = self.nest.summary(ids, threads);
        NestSummary { steps: [vec![product], nest.steps].concat(), ..nest }
    }
}

impl ClassifyPhase {
    /// The search for classes as one step; a tile of it is a row of the table of classes.
    fn summary(&self, ids: &[TensorId], threads: usize) -> NestSummary {
        let mut operands: Vec<StepOperand> = Vec::new();
        for base in self.reads().chain(self.reads_of_scores()) {
            let operand = accessed(base, ids);
            if !operands.contains(&operand) {
                operands.push(operand);
            }
        }
        let task = format!("classes of tiles of {CLASS_TILE} × {CLASS_TILE}, {} planes", self.planes);
        let [rows, columns] = [self.query_axis, self.key_axis].map(|axis| self.dims[axis] as usize);
        let step = driver_step(task, operands, accessed(self.table, ids));
        NestSummary {
            tile_rows: CLASS_TILE.min(rows),
            tiles: self.tasks(),
            ..driver_nest([rows, columns], step, threads)
        }
    }
}

impl RaggedPhase {
    /// The search for blocks as one step.
    fn summary(&self, ids: &[TensorId], threads: usize) -> NestSummary {
        let operands = self.reads().map(|base| accessed(base, ids)).collect();
        let task = "blocks of queries that begin with sequences".to_owned();
        let step = driver_step(task, operands, accessed(self.list.buffer, ids));
        driver_nest([self.list.queries, 1], step, threads)
    }
}

impl LookupPhase {
    /// A tile is a part of the places.
    fn summary(&self, ids: &[TensorId], threads: usize) -> NestSummary {
        let operands = self.reads().map(|base| accessed(base, ids)).collect();
        let task = match self.row.count {
            1 => format!("{} of single elements", self.name),
            count => format!("{} of rows of {count} elements", self.name),
        };
        let step = driver_step(task, operands, accessed(self.written(), ids));
        driver_nest([self.places(), self.row.count], step, threads)
    }
}

impl PagedPhase {
    /// A tile is a row of all heads.
    fn summary(&self, ids: &[TensorId], threads: usize) -> NestSummary {
        let operands = self.reads().map(|base| accessed(base, ids)).collect();
        let task = format!("{} of pages of {} rows", self.name, self.cache.page);
        driver_nest(self.extent(), driver_step(task, operands, accessed(self.written(), ids)), threads)
    }
}

impl TopKPhase {
    /// A tile is one line, or lines side by side.
    fn summary(&self, ids: &[TensorId], threads: usize) -> NestSummary {
        let task = format!("{}, the first {} of lines of {}", self.name, self.count, self.length);
        let written = accessed(self.indices.base, ids);
        let step = driver_step(task, vec![accessed(self.source.base, ids)], written);
        driver_nest([self.all_lines(), self.length], step, threads)
    }
}

impl PoolPhase {
    /// A tile is a row of the result.
    fn summary(&self, ids: &[TensorId], threads: usize) -> NestSummary {
        let task = format!("{} of rows of {} times {} elements", self.name, self.width, self.inner);
        let operands = self.reads().map(|base| accessed(base, ids)).collect();
        let step = driver_step(task, operands, accessed(self.written(), ids));
        driver_nest([self.rows(), self.outputs * self.inner], step, threads)
    }
}

/// A phase of one step of its driver over rows and columns. The phase fills in what it knows of itself.
fn driver_nest([rows, columns]: [usize; 2], step: StepSummary, threads: usize) -> NestSummary {
    NestSummary {
        kind: PhaseKind::Map,
        is_kept: false,
        tasks: 0,
        flops: 0,
        scratch: 0,
        loops: Vec::new(),
        rows,
        columns,
        tile_rows: 1,
        tile_columns: columns,
        tiles: rows,
        threads,
        steps: vec![step],
    }
}

/// The parts of an attention phase beside its core.
#[derive(Clone, Copy, Default)]
struct BesideCore<'a> {
    /// The nest of the program on weights.
    weights: Option<&'a LoopNest>,
    /// The factor on all scores.
    factor: Option<&'a ScoreFactor>,
    /// True if both products are of 8-bit integers.
    is_integer: bool,
}

impl AttentionCore {
    fn summary(&self, beside: BesideCore<'_>, ids: &[TensorId], threads: usize) -> NestSummary {
        let BesideCore { weights, factor, is_integer } = beside;
        let accessed = |operand: AttentionOperand| self.nest.accessed(self.access(operand), ids);
        let [queries, keys, values] =
            [AttentionOperand::Queries, AttentionOperand::Keys, AttentionOperand::Values].map(accessed);
        let mut dequantized = Vec::new();
        for (tokens, (name, operand)) in self.quantized.iter().zip([("keys", &keys), ("values", &values)]) {
            if let Some(QuantizedTokens { group, .. }) = tokens.as_deref() {
                let task = format!("{name} in f32, a scale for {} x {} elements", group.rows, group.columns);
                dequantized.push(driver_step(task, vec![*operand], StepOperand::Phase));
            }
        }
        let of_pages = |table: &Option<PageTable>| match table {
            Some(table) => format!(", in pages of {}", table.page),
            None => String::new(),
        };
        let [pages_of_keys, pages_of_values] = self.pages.each_ref().map(of_pages);
        let scaled = match factor {
            None => "",
            Some(ScoreFactor { divides: false, .. }) => " times a number",
            Some(ScoreFactor { divides: true, .. }) => " over a number",
        };
        let form = if is_integer { " in s32 from quads of 8 bits" } else { "" };
        let scores = format!("scores, products of depth {}{form}{scaled}{pages_of_keys}", self.depth);
        let number = factor.map(|factor| self.nest.accessed(factor.number, ids));
        let operands = [queries, keys].into_iter().chain(number).collect();
        let first = driver_step(scores, operands, StepOperand::Phase);
        let (task, to) = match self.has_stats {
            true => ("SoftMax along keys, with statistics", accessed(AttentionOperand::Stats)),
            false => ("SoftMax along keys", StepOperand::Phase),
        };
        let softmax = driver_step(task.to_owned(), vec![StepOperand::Phase], to);
        let second = driver_step(
            format!("sums of {} columns of values{form}{pages_of_values}", self.value_columns),
            vec![StepOperand::Phase, values],
            StepOperand::Phase,
        );
        let mut summary = self.nest.summary(ids, threads);
        let shifted = |steps: Vec<StepSummary>, by: usize| {
            let shift = move |mut step: StepSummary| {
                for operand in &mut step.operands {
                    if let StepOperand::Step(step) = operand {
                        *step += by;
                    }
                }
                step
            };
            steps.into_iter().map(shift).collect::<Vec<_>>()
        };
        let chain = shifted(std::mem::take(&mut summary.steps), dequantized.len() + 1);
        let mut steps = [dequantized, vec![first], chain, vec![softmax]].concat();
        if is_integer {
            let task = "weights rounded to 8 bits".to_owned();
            steps.push(driver_step(task, vec![StepOperand::Phase], StepOperand::Phase));
        }
        if let Some(weights) = weights {
            let by = steps.len();
            steps.extend(shifted(weights.summary(ids, threads).steps, by));
        }
        steps.push(second);
        let by = steps.len();
        steps.extend(shifted(self.result.nest.summary(ids, threads).steps, by));
        summary.steps = steps;
        summary.tiles = self.nest.tiles();
        summary
    }
}

impl BackwardPhase {
    fn summary(&self, ids: &[TensorId], threads: usize) -> NestSummary {
        use BackwardOperand as O;
        let accessed = |operand: O| self.chain.nest.accessed(self.access(operand), ids);
        let product = |task: String, operands: &[O]| {
            let tile = StepOperand::Phase;
            let operands = operands.iter().map(|&operand| accessed(operand));
            let operands = if operands.len() == 1 {
                [tile].into_iter().chain(operands).collect()
            } else {
                operands.collect()
            };
            driver_step(task, operands, tile)
        };
        let (depth, columns) = (self.depth, self.value_columns);
        let mut steps = vec![product(format!("scores, products of depth {depth}"), &[O::Queries, O::Keys])];
        let of_weights = format!("gradients of weights, products of depth {columns}");
        let add = |steps: &mut Vec<StepSummary>, nest: &LoopNest| {
            let by = steps.len();
            let mut chain = nest.summary(ids, threads).steps;
            for step in &mut chain {
                for operand in &mut step.operands {
                    if let StepOperand::Step(step) = operand {
                        *step += by;
                    }
                }
            }
            steps.extend(chain);
        };
        if self.ds.or(self.mask).is_some() {
            steps.push(product(of_weights, &[O::Gradients, O::Values]));
        }
        add(&mut steps, &self.chain.nest);
        if let Some(softmax) = &self.softmax {
            let task = "SoftMax along keys, and its gradient".to_owned();
            steps.push(driver_step(task, vec![StepOperand::Phase], StepOperand::Phase));
            softmax.behind.iter().for_each(|chain| add(&mut steps, &chain.nest));
        }
        let right = [O::DqKeys, O::DkQueries, O::DvGradients];
        let names = ["queries", "keys", "values"];
        for ((result, operand), name) in self.results.iter().zip(right).zip(names) {
            if let Some(result) = result {
                steps.push(product(format!("sums of the gradients of {name}"), &[operand]));
                add(&mut steps, &result.nest);
            }
        }
        if let [.., Some(tiles)] = &self.results {
            add(&mut steps, &tiles.nest);
        }
        NestSummary { tiles: self.chain.nest.tiles(), steps, ..self.chain.nest.summary(ids, threads) }
    }
}

/// The work of the driver of a phase.
fn driver_step(task: String, operands: Vec<StepOperand>, output: StepOperand) -> StepSummary {
    StepSummary {
        tasks: vec![task],
        operands,
        output: output.tensor(),
        buffer: output.buffer(),
        varies_by_row: true,
        varies_by_column: true,
        lazy_branches: false,
        register_fusion: RegisterFusionVerdict::NoPartner,
    }
}
