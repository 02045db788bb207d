//! The report of a run, as data, as text and as JSON.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use sterna::{LogicalTensor, MaskTiles, Op, Partition, TensorId, TileClass, UNKNOWN_DIM};

/// Everything about one run.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) graph: PathBuf,
    pub(crate) ops: usize,
    pub(crate) threads: usize,
    pub(crate) partitions: Vec<PartitionReport>,
    /// The small results of a model, or of a graph whose inputs are written out.
    pub(crate) results: Vec<ResultReport>,
    /// The files written.
    pub(crate) written: Vec<Written>,
    /// Remarks that need no action.
    pub(crate) notes: Vec<String>,
    /// One sentence for each thing that failed; the run is fine if there is none.
    pub(crate) failures: Vec<String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Written {
    pub(crate) tensor: TensorId,
    pub(crate) name: Option<String>,
    pub(crate) file: PathBuf,
}

/// A result with its value.
#[derive(Debug, Serialize)]
pub(crate) struct ResultReport {
    /// Its name in the model, or by its port.
    pub(crate) name: String,
    pub(crate) tensor: PortReport,
    /// Its elements in brackets.
    pub(crate) value: String,
}

/// One partition and its outcome.
#[derive(Debug, Serialize)]
pub(crate) struct PartitionReport {
    pub(crate) id: usize,
    pub(crate) supported: bool,
    /// Why it is not supported.
    pub(crate) unsupported_reason: Option<String>,
    pub(crate) ops: Vec<OpReport>,
    pub(crate) inputs: Vec<PortReport>,
    pub(crate) outputs: Vec<PortReport>,
    /// Pairs of an input and the output that may take its place.
    pub(crate) inplace: Vec<[TensorId; 2]>,
    /// The runner of the partition; none if it failed.
    pub(crate) run_by: Option<Runner>,
    /// Why its results are made up, if they are.
    pub(crate) made_up: Option<String>,
    /// The outputs that `--fill` names, filled for the partitions that follow.
    pub(crate) filled: Vec<TensorId>,
    pub(crate) compile_seconds: Option<f64>,
    pub(crate) execution: Option<Execution>,
    /// The tiles of masked scores, if it has any.
    pub(crate) mask_tiles: Option<TilesReport>,
    pub(crate) checks: Vec<Check>,
    /// Why it did not run, or why it is not right.
    pub(crate) failure: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Runner {
    /// The compiled partition.
    Compiled,
    /// The reference interpreter.
    Reference,
    /// Nobody: its results are filled as inputs are.
    MadeUp,
    /// Nobody needs to: it has no outputs.
    Nothing,
}

#[derive(Debug, Serialize)]
pub(crate) struct OpReport {
    pub(crate) kind: &'static str,
    pub(crate) id: usize,
    pub(crate) name: String,
}

/// A port; dims and strides that are not known are null.
#[derive(Debug, Serialize)]
pub(crate) struct PortReport {
    pub(crate) id: TensorId,
    /// Of an input or output of the graph.
    pub(crate) name: Option<String>,
    pub(crate) dtype: &'static str,
    pub(crate) shape: Option<Vec<Option<i64>>>,
    pub(crate) strides: Option<Vec<i64>>,
    pub(crate) layout: &'static str,
    pub(crate) property: &'static str,
}

/// The executions of a partition.
#[derive(Debug, Serialize)]
pub(crate) struct Execution {
    pub(crate) repeat: usize,
    pub(crate) best_seconds: f64,
    pub(crate) median_seconds: f64,
    /// Bytes read and written by one execution, if they are known.
    pub(crate) bytes_moved: Option<usize>,
    /// By the best time, in 10⁹ bytes a second.
    pub(crate) gb_per_second: Option<f64>,
}

/// Numbers of tiles of 64 queries × 64 keys, by what enters SoftMax.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct TilesReport {
    /// Left out, since all scores are −∞.
    pub(crate) masked: usize,
    /// Of one finite number; left out if their weights are 0.
    pub(crate) constant: usize,
    /// Without a masked score.
    pub(crate) full: usize,
    pub(crate) partial: usize,
}

/// The comparison of one output with the reference.
#[derive(Debug, Serialize)]
pub(crate) struct Check {
    pub(crate) tensor: TensorId,
    /// Of an output of the graph.
    pub(crate) name: Option<String>,
    pub(crate) elements: i64,
    /// The units in the last place by which an element may differ; 0 means equal bits.
    pub(crate) ulps: u32,
    /// Whether each element has a bound of its own, as the results of sums have.
    pub(crate) is_bounded: bool,
    /// In what the reference departs from the ops run one by one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) note: Option<&'static str>,
    /// Whether the two agree; nothing if that would say little, or cannot be told.
    pub(crate) equal: Option<bool>,
    /// Why this is no check, if it is none.
    pub(crate) no_check: Option<String>,
    pub(crate) first_difference: Option<Difference>,
}

/// The first difference of two values, and the bits of both.
#[derive(Debug, Serialize)]
pub(crate) struct Difference {
    pub(crate) index: Vec<i64>,
    pub(crate) computed: String,
    pub(crate) reference: String,
}

impl Report {
    /// Names the inputs and outputs of the graph.
    pub(crate) fn name_ports(&mut self, names: &BTreeMap<TensorId, String>) {
        let partitions = self.partitions.iter_mut();
        let ports =
            partitions.flat_map(|partition| partition.inputs.iter_mut().chain(&mut partition.outputs));
        name_ports(ports, names);
        name_ports(self.results.iter_mut().map(|result| &mut result.tensor), names);
    }

    pub(crate) fn to_json(&self) -> serde_json::Result<String> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }
}

/// Names those of the ports that are inputs and outputs of the graph.
pub(crate) fn name_ports<'a>(
    ports: impl IntoIterator<Item = &'a mut PortReport>,
    names: &BTreeMap<TensorId, String>,
) {
    ports.into_iter().for_each(|port| port.name = names.get(&port.id).cloned());
}

impl PartitionReport {
    /// The facts before the run.
    pub(crate) fn of(partition: &Partition) -> Self {
        Self {
            id: partition.id(),
            supported: partition.is_supported(),
            unsupported_reason: partition.unsupported_reason(),
            ops: partition.ops().iter().map(OpReport::of).collect(),
            inputs: partition.inputs().iter().map(PortReport::of).collect(),
            outputs: partition.outputs().iter().map(PortReport::of).collect(),
            inplace: Vec::new(),
            run_by: None,
            made_up: None,
            filled: Vec::new(),
            compile_seconds: None,
            execution: None,
            mask_tiles: None,
            checks: Vec::new(),
            failure: None,
        }
    }
}

impl PartitionReport {
    /// The kinds and ids of its ops.
    pub(crate) fn kinds(&self) -> String {
        let ops: Vec<String> = self.ops.iter().map(|op| format!("{} (op {})", op.kind, op.id)).collect();
        ops.join(", ")
    }
}

impl OpReport {
    fn of(op: &Op) -> Self {
        Self { kind: op.kind().name(), id: op.id(), name: op.name().into() }
    }
}

impl PortReport {
    pub(crate) fn of(desc: &LogicalTensor) -> Self {
        let known = |&dim: &i64| (dim != UNKNOWN_DIM).then_some(dim);
        Self {
            id: desc.id(),
            name: None,
            dtype: desc.data_type().name(),
            shape: desc.dims().map(|dims| dims.iter().map(known).collect()),
            strides: desc.strides().map(<[i64]>::to_vec),
            layout: desc.layout().name(),
            property: desc.property().name(),
        }
    }
}

impl Execution {
    /// The facts of executions that took so long.
    pub(crate) fn of(mut times: Vec<Duration>, bytes_moved: Option<usize>) -> Option<Self> {
        times.sort_unstable();
        let best_seconds = times.first()?.as_secs_f64();
        let gb_per_second = |bytes| (best_seconds > 0.0).then(|| bytes as f64 / best_seconds / 1e9);
        Some(Self {
            repeat: times.len(),
            best_seconds,
            median_seconds: times[times.len() / 2].as_secs_f64(),
            bytes_moved,
            gb_per_second: bytes_moved.and_then(gb_per_second),
        })
    }
}

impl TilesReport {
    pub(crate) fn of(tiles: &MaskTiles) -> Self {
        Self {
            masked: tiles.count(TileClass::Masked),
            constant: tiles.count(TileClass::Constant),
            full: tiles.count(TileClass::Full),
            partial: tiles.count(TileClass::Partial),
        }
    }
}

impl Display for TilesReport {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { masked, constant, full, partial } = self;
        let all = masked + constant + full + partial;
        write!(f, "{masked} of {all} tiles skipped, {full} full, {partial} partial")?;
        match constant {
            0 => Ok(()),
            _ => write!(f, ", {constant} constant"),
        }
    }
}

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (ops, partitions, threads) = (self.ops, self.partitions.len(), self.threads);
        writeln!(f, "{}: ops {ops}, partitions {partitions}, threads {threads}", self.graph.display())?;
        self.partitions.iter().try_for_each(|partition| write!(f, "\n{partition}"))?;
        if !self.results.is_empty() || !self.written.is_empty() {
            writeln!(f)?;
        }
        self.results.iter().try_for_each(|result| writeln!(f, "{result}"))?;
        let mut written = self.written.iter();
        written.try_for_each(|Written { tensor, name, file }| {
            writeln!(f, "wrote tensor {tensor}{} to {}", InBrackets(name), file.display())
        })
    }
}

impl Display for ResultReport {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} = ", self.name)?;
        f.write_str(&self.value)
    }
}

impl Display for PartitionReport {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.unsupported_reason {
            None => writeln!(f, "partition {}: supported", self.id)?,
            Some(reason) => writeln!(f, "partition {}: not supported, {reason}", self.id)?,
        }
        for op in &self.ops {
            writeln!(f, "  op       {} {} {:?}", op.kind, op.id, op.name)?;
        }
        self.inputs.iter().try_for_each(|port| writeln!(f, "  in       {port}"))?;
        self.outputs.iter().try_for_each(|port| writeln!(f, "  out      {port}"))?;
        for [input, output] in &self.inplace {
            writeln!(f, "  in place {output} may take the place of {input}")?;
        }
        if let Some(seconds) = self.compile_seconds {
            writeln!(f, "  compile  {}", Time(seconds))?;
        }
        if let Some(execution) = &self.execution {
            let by = if self.run_by == Some(Runner::Reference) { "reference, " } else { "" };
            writeln!(f, "  execute  {by}{execution}")?;
        }
        if let Some(tiles) = &self.mask_tiles {
            writeln!(f, "  mask     {tiles}")?;
        }
        if self.run_by == Some(Runner::Nothing) {
            writeln!(f, "  execute  nothing, it has no outputs")?;
        }
        if let Some(reason) = &self.made_up {
            writeln!(f, "  made up  {reason}")?;
        }
        for tensor in &self.filled {
            writeln!(f, "  filled   tensor {tensor}, as --fill asks for")?;
        }
        self.checks.iter().try_for_each(|check| writeln!(f, "  check    {check}"))?;
        match &self.failure {
            Some(failure) => writeln!(f, "  failed   {failure}"),
            None => Ok(()),
        }
    }
}

impl Display for PortReport {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.id)?;
        if let Some(name) = &self.name {
            write!(f, "{name} ")?;
        }
        write!(f, "{} ", self.dtype)?;
        match &self.shape {
            None => f.write_str("of unknown rank")?,
            Some(dims) => braced(f, dims.iter().copied())?,
        }
        match &self.strides {
            Some(strides) => {
                f.write_str(" strides ")?;
                braced(f, strides.iter().copied().map(Some))?;
            }
            None => write!(f, " layout {}", self.layout)?,
        }
        if self.property != "undef" {
            write!(f, " {}", self.property)?;
        }
        Ok(())
    }
}

/// Writes dims as `{2,3,?}`, with `?` for one that is not known.
fn braced(f: &mut Formatter<'_>, dims: impl Iterator<Item = Option<i64>>) -> fmt::Result {
    let dims: Vec<String> = dims.map(|dim| dim.map_or("?".into(), |dim| dim.to_string())).collect();
    write!(f, "{{{}}}", dims.join(","))
}

impl Display for Execution {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Time(self.best_seconds))?;
        if self.repeat > 1 {
            write!(f, " best, {} median of {}", Time(self.median_seconds), self.repeat)?;
        }
        if let Some(bytes) = self.bytes_moved {
            write!(f, ", {bytes} bytes moved")?;
        }
        if let Some(rate) = self.gb_per_second {
            write!(f, ", {rate:.2} GB/s")?;
        }
        Ok(())
    }
}

impl Display for Check {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "tensor {}{}: ", self.tensor, InBrackets(&self.name))?;
        let elements = self.elements;
        match &self.first_difference {
            None if self.no_check.is_some() => {
                write!(f, "no check, {}", self.no_check.as_deref().unwrap_or_default())
            }
            None if self.is_bounded => {
                write!(f, "all {elements} elements are within their bounds")?;
                self.note.map_or(Ok(()), |note| write!(f, "; {note}"))
            }
            None if self.ulps == 0 => write!(f, "all {elements} elements equal the reference"),
            None => write!(f, "all {elements} elements are within {} ulp of the reference", self.ulps),
            Some(difference) => write!(f, "{difference}"),
        }
    }
}

/// A name behind an id, if there is one.
struct InBrackets<'a>(&'a Option<String>);

impl Display for InBrackets<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0.as_ref().map_or(Ok(()), |name| write!(f, " ({name})"))
    }
}

impl Display for Difference {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { index, computed, reference } = self;
        write!(f, "the first difference is at {index:?}, computed {computed}, reference {reference}")
    }
}

/// Seconds in a unit that suits.
struct Time(f64);

impl Display for Time {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            s if s < 1e-3 => write!(f, "{:.2} µs", s * 1e6),
            s if s < 1.0 => write!(f, "{:.2} ms", s * 1e3),
            s => write!(f, "{s:.2} s"),
        }
    }
}
