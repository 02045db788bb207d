//! A plan in words and numbers, for people and tools.

use std::fmt::{self, Display, Formatter};

use super::register_fusion::RegisterFusionVerdict;
use crate::error::OpRef;
use crate::types::fallback::{FallbackReason, FastForm, MaskedKeys};
use crate::types::id::TensorId;
use crate::types::kind::{Level, PhaseKind};

/// The work of an execution of a compiled partition: loops after merging, tiles, steps and memory.
///
/// Each call of [`CompiledPartition::plan`](crate::CompiledPartition::plan) makes it anew. Its content may
/// change from version to version. [`Display`] writes it as text.
///
/// ```
/// use sterna::{DataType, Engine, LogicalTensor, Op, Partition};
/// let dense = |id, data_type| LogicalTensor::strided(id, data_type, &[64, 128]);
/// let select = Op::select(
///     0,
///     dense(0, DataType::Boolean)?,
///     dense(1, DataType::F32)?,
///     dense(2, DataType::F32)?,
///     dense(3, DataType::F32)?,
/// );
/// let partition = Partition::from_op(select)?;
/// let plan = partition.compile(&Engine::new())?.plan();
/// assert_eq!((plan.bytes_read, plan.bytes_written), (64 * 128 * 9, 64 * 128 * 4));
/// let [nest] = &plan.nests[..] else { unreachable!("one shape is one nest") };
/// assert_eq!((nest.rows, nest.columns), (1, 64 * 128), "both dims became one loop");
/// assert_eq!(nest.steps[0].tasks, ["Select"]);
/// # Ok::<(), sterna::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlanSummary {
    /// The CPU level of the kernels.
    pub level: Level,
    /// Scratch memory of each thread, in bytes.
    pub scratch_per_thread: usize,
    /// Bytes of the internal buffers, through which nests hand tensors to later ones.
    pub buffer_bytes: usize,
    /// Bytes of the distinct elements that are read.
    pub bytes_read: usize,
    /// Bytes of the elements that are written.
    pub bytes_written: usize,
    /// Floating-point operations: two for each multiplication with its addition in a product, one for each
    /// other function of an element. Those of branches that a tile may skip count; moves, comparisons and
    /// selects do not.
    pub flops: usize,
    /// True if results are written with non-temporal stores, which bypass the caches.
    pub non_temporal_stores: bool,
    /// The loop nests, in the order in which they run: one for each phase, which begins when the one before
    /// it has ended.
    pub nests: Vec<NestSummary>,
    /// The fast forms that the plan did not take, each once for an op.
    pub fallbacks: Vec<FallbackSummary>,
}

impl PlanSummary {
    /// The part of masked keys: [`Skipped`](MaskedKeys::Skipped), unless attention or its gradients are among
    /// the [`fallbacks`](Self::fallbacks), so that their ops run one by one.
    #[must_use]
    pub fn masked_keys(&self) -> MaskedKeys {
        let is_of_attention = |form| matches!(form, FastForm::Attention | FastForm::AttentionBackward);
        match self.fallbacks.iter().any(|fallback| is_of_attention(fallback.form)) {
            true => MaskedKeys::Multiplied,
            false => MaskedKeys::Skipped,
        }
    }
}

/// A fast form that a plan did not take, and the reason.
///
/// ```
/// use sterna::{
///     Attr, DataType, Engine, FallbackReason, FastForm, Graph, LogicalTensor, MaskedKeys, Op, OpKind,
///     Policy,
/// };
/// let tensor = |id, dims: &[i64]| LogicalTensor::strided(id, DataType::F32, dims);
/// let mut graph = Graph::new();
/// let product = |id| Op::new(id, OpKind::MatMul);
/// let (scores, weights) = (tensor(2, &[64, 64])?, tensor(4, &[64, 64])?);
/// graph.add_op(product(0).input(tensor(0, &[64, 8])?).input(tensor(1, &[8, 64])?).output(scores.clone()))?;
/// graph.add_op(Op::new(1, OpKind::SoftMax).input(scores).output(weights.clone()).attr(Attr::Axis, 0i64))?;
/// graph.add_op(product(2).input(weights).input(tensor(5, &[64, 8])?).output(tensor(6, &[64, 8])?))?;
/// graph.finalize()?;
/// let plan = graph.partitions(Policy::Fusion)?[0].compile(&Engine::new())?.plan();
/// assert_eq!(plan.fallbacks[0].form, FastForm::Attention);
/// assert_eq!(plan.fallbacks[0].reason, FallbackReason::SoftmaxAxis);
/// assert_eq!(plan.masked_keys(), MaskedKeys::Multiplied);
/// # Ok::<(), sterna::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct FallbackSummary {
    /// The form.
    pub form: FastForm,
    /// The op that would have had the form.
    pub op: OpRef,
    /// The reason.
    pub reason: FallbackReason,
}

impl Display for FallbackSummary {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { form, op, reason } = self;
        write!(f, "no {form} at {op}: {reason}, {}", reason.text())
    }
}

/// Loops around tiles, and the steps of each tile.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NestSummary {
    /// The computation of its phase.
    pub kind: PhaseKind,
    /// True if its phase reads constant inputs alone, so that the compiled partition
    /// [keeps](crate::EngineBuilder::constant_cache_capacity) the result and later executions skip the phase.
    pub is_kept: bool,
    /// Number of tasks, which may run in any order and on any thread.
    pub tasks: usize,
    /// Floating-point operations, as in [`PlanSummary::flops`].
    pub flops: usize,
    /// Bytes of scratch that a thread needs for it. [`PlanSummary::scratch_per_thread`] is the most that a
    /// phase needs.
    pub scratch: usize,
    /// The loops around the tiles, the outermost first, without those of one iteration.
    pub loops: Vec<LoopSummary>,
    /// Iterations of the second innermost loop after merging.
    pub rows: usize,
    /// Iterations of the innermost loop after merging.
    pub columns: usize,
    /// Rows of a tile; the last tile of a column of tiles may have fewer.
    pub tile_rows: usize,
    /// Columns of a tile; the last tile of a row of tiles may have fewer.
    pub tile_columns: usize,
    /// Number of tiles.
    pub tiles: usize,
    /// Number of threads that run the tiles.
    pub threads: usize,
    /// The steps, each after those whose results it uses.
    pub steps: Vec<StepSummary>,
}

/// A loop around tiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct LoopSummary {
    /// Its iterations.
    pub extent: usize,
    /// The range that it iterates over.
    pub over: LoopOver,
}

/// The range that a loop around tiles iterates over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LoopOver {
    /// One dim, or several merged ones.
    Dims,
    /// Blocks of rows, one tile each.
    RowBlocks,
    /// Blocks of columns, one tile each.
    ColumnBlocks,
}

/// One step of a tile.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StepSummary {
    /// Its operations: one, or several that hand values on in registers.
    pub tasks: Vec<String>,
    /// Its operands.
    pub operands: Vec<StepOperand>,
    /// The tensor that it writes; `None` if the result goes to scratch or to an internal buffer.
    pub output: Option<TensorId>,
    /// The internal buffer that it writes, by its index.
    pub buffer: Option<usize>,
    /// True if the result differs from row to row.
    pub varies_by_row: bool,
    /// True if the result differs along a row.
    pub varies_by_column: bool,
    /// True if it tests the condition of a tile first, and computes a branch only if an element selects it.
    pub lazy_branches: bool,
    /// The number of operations fused in registers, or why there is but one.
    pub register_fusion: RegisterFusionVerdict,
}

/// An operand of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StepOperand {
    /// A tensor of the partition, by its id.
    Tensor(TensorId),
    /// The result of another step, by its index in the nest.
    Step(usize),
    /// A constant element.
    Constant,
    /// The index of each element along a dim.
    Index,
    /// An internal buffer of the plan, by its index.
    Buffer(usize),
    /// A value that the phase itself computes, such as a tile of a product.
    Phase,
}

impl StepOperand {
    pub(super) fn tensor(self) -> Option<TensorId> {
        if let Self::Tensor(id) = self { Some(id) } else { None }
    }

    pub(super) fn buffer(self) -> Option<usize> {
        if let Self::Buffer(buffer) = self { Some(buffer) } else { None }
    }
}

impl Display for PlanSummary {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { level, bytes_read, bytes_written, scratch_per_thread, buffer_bytes, flops, .. } = self;
        let stores = if self.non_temporal_stores { ", non-temporal stores" } else { "" };
        writeln!(f, "kernels  {level}")?;
        writeln!(f, "memory   {bytes_read} bytes in, {bytes_written} bytes out{stores}")?;
        writeln!(f, "flops    {flops}")?;
        writeln!(f, "scratch  {scratch_per_thread} bytes a thread")?;
        if *buffer_bytes > 0 {
            writeln!(f, "buffers  {buffer_bytes} bytes")?;
        }
        self.fallbacks.iter().try_for_each(|fallback| writeln!(f, "slower   {fallback}"))?;
        self.nests.iter().try_for_each(|nest| write!(f, "{nest}"))
    }
}

impl Display for NestSummary {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { kind, flops, scratch, rows, columns, tile_rows, tile_columns, tiles, threads, .. } = self;
        let kept = if self.is_kept { "; kept for later executions" } else { "" };
        writeln!(f, "phase    {kind}: {flops} FLOPs, {scratch} bytes of scratch a thread{kept}")?;
        f.write_str("loops    ")?;
        for LoopSummary { extent, over } in &self.loops {
            let over = match over {
                LoopOver::Dims => "",
                LoopOver::RowBlocks => " blocks of rows",
                LoopOver::ColumnBlocks => " blocks of columns",
            };
            write!(f, "{extent}{over} × ")?;
        }
        writeln!(f, "tile {tile_rows} × {tile_columns}, of {rows} rows × {columns} columns")?;
        let shared = if *threads > 1 { format!(", shared by {threads} threads") } else { String::new() };
        let tasks = if self.tasks == *tiles { String::new() } else { format!(" in {} tasks", self.tasks) };
        writeln!(f, "tiles    {tiles}{tasks}{shared}")?;
        for (index, step) in self.steps.iter().enumerate() {
            writeln!(f, "step {index:<3} {step}")?;
        }
        Ok(())
    }
}

impl Display for StepSummary {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.tasks.join(", "))?;
        for (index, operand) in self.operands.iter().enumerate() {
            write!(f, "{}{operand}", if index == 0 { " of " } else { ", " })?;
        }
        match (self.output, self.buffer) {
            (Some(id), _) => write!(f, " to tensor {id}")?,
            (None, Some(buffer)) => write!(f, " to buffer {buffer}")?,
            (None, None) => f.write_str(" to scratch")?,
        }
        f.write_str(self.once())?;
        if self.lazy_branches {
            f.write_str("; skips a branch that no element of a tile chooses")?;
        }
        if self.register_fusion.is_refusal() {
            write!(f, "; not fused: {}", self.register_fusion)?;
        }
        Ok(())
    }
}

impl StepSummary {
    /// How often the step runs in a tile, unless it runs for each element.
    fn once(&self) -> &'static str {
        match (self.varies_by_row, self.varies_by_column) {
            (true, true) => "",
            (true, false) => ", once a row",
            (false, true) => ", one row for all",
            (false, false) => ", one element for all",
        }
    }
}

impl Display for StepOperand {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tensor(id) => write!(f, "tensor {id}"),
            Self::Step(step) => write!(f, "step {step}"),
            Self::Constant => f.write_str("a constant"),
            Self::Index => f.write_str("indices"),
            Self::Buffer(buffer) => write!(f, "buffer {buffer}"),
            Self::Phase => f.write_str("the phase's own result"),
        }
    }
}
