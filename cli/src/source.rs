//! Graphs as the command line names them: from a file or from standard input, with other shapes where asked for.

use std::fmt::{self, Display, Formatter};
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use sterna::{Error, Graph, JsonFault, LogicalTensor, Op, TensorId};

use crate::Ending;
use crate::args;

/// Which graph.
#[derive(Debug, clap::Args)]
pub(crate) struct GraphArgs {
    /// The graph in JSON; `-` reads standard input.
    pub(crate) graph: PathBuf,
    /// Gives an input tensor another shape, such as 3=2x8x128x128; the shapes of all that is computed from it are
    /// inferred anew. `ID=` with nothing behind it is a scalar.
    #[arg(long, value_name = "ID=SHAPE", value_parser = args::id_and_shape)]
    pub(crate) override_shape: Vec<(TensorId, Vec<i64>)>,
}

impl GraphArgs {
    /// Where the graph comes from, in words.
    pub(crate) fn name(&self) -> String {
        match self.graph == Path::new("-") {
            true => "standard input".into(),
            false => self.graph.display().to_string(),
        }
    }

    /// The graph, finalized.
    pub(crate) fn load(&self) -> Result<Graph, Ending> {
        args::once("--override-shape", self.override_shape.iter().map(|(id, _)| *id))
            .map_err(Ending::usage)?;
        let text = read(&self.graph).map_err(Ending::usage)?;
        let (graph, notes) = Graph::from_json_with_notes(&text).map_err(|error| {
            let said = format!("cannot read a graph from {}", self.name());
            Ending::failed(match &error {
                Error::Json(fault) => anyhow!("{said}: {error}{}", Pointer::to(&text, fault)),
                _ => anyhow!(error).context(said),
            })
        })?;
        notes.iter().for_each(|note| crate::say("note", note));
        let mut graph = with_shapes(graph, &self.override_shape)?;
        graph.finalize().map_err(Ending::failed)?;
        Ok(graph)
    }
}

fn read(path: &Path) -> Result<String> {
    if path == Path::new("-") {
        return io::read_to_string(io::stdin()).context("cannot read a graph from standard input");
    }
    let mut text = String::new();
    let mut file = fs::File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    file.read_to_string(&mut text).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(text)
}

/// The line of a text at fault, with a mark below the column; of a long line the part around it.
struct Pointer<'a> {
    line: &'a str,
    number: usize,
    /// From 0, in characters.
    column: usize,
}

/// Characters shown before the column and from it on, where a line is longer.
const BEFORE: usize = 60;
const FROM: usize = 40;

impl<'a> Pointer<'a> {
    fn to(text: &'a str, fault: &JsonFault) -> Self {
        let line = text.lines().nth(fault.line - 1).unwrap_or_default();
        Self { line, number: fault.line, column: fault.column - 1 }
    }
}

impl Display for Pointer<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.line.trim().is_empty() {
            return Ok(());
        }
        let first = self.column.saturating_sub(BEFORE);
        let cut = if first > 0 { "…" } else { "" };
        // One sign each, so that the mark stands below its column, and a terminal is told nothing by a text.
        let plain = |c: char| if c.is_control() { ' ' } else { c };
        let shown: String = self.line.chars().skip(first).take(BEFORE + FROM).map(plain).collect();
        let goes_on = if self.line.chars().nth(first + BEFORE + FROM).is_some() { "…" } else { "" };
        let (number, margin) = (self.number, " ".repeat(self.number.to_string().len()));
        let gap = " ".repeat(cut.chars().count() + self.column - first);
        write!(f, "\n{margin} |\n{number} | {cut}{shown}{goes_on}\n{margin} | {gap}^")
    }
}

/// The graph with other shapes for some of its inputs. What ops produce then loses its shape, to be inferred anew.
pub(crate) fn with_shapes(graph: Graph, shapes: &[(TensorId, Vec<i64>)]) -> Result<Graph, Ending> {
    if shapes.is_empty() {
        return Ok(graph);
    }
    let inputs = ids(graph.inputs());
    for (id, _) in shapes {
        check_id("--override-shape", *id, &inputs, "an input of the graph").map_err(Ending::usage)?;
    }
    let redescribed = |desc: &LogicalTensor| -> Result<LogicalTensor> {
        let (id, data_type) = (desc.id(), desc.data_type());
        match shapes.iter().find(|(given, _)| *given == id) {
            Some((_, dims)) => {
                Ok(LogicalTensor::strided(id, data_type, dims)?.with_property(desc.property())?)
            }
            None if inputs.contains(&id) => Ok(desc.clone()),
            None => Ok(LogicalTensor::unknown(id, data_type).with_property(desc.property())?),
        }
    };
    let rebuilt = |op: &Op| -> Result<Op> {
        let mut rebuilt = Op::new(op.id(), op.kind()).named(op.name());
        for (attr, value) in op.attrs() {
            rebuilt = rebuilt.attr(attr, value.clone());
        }
        for input in op.inputs() {
            rebuilt = rebuilt.input(redescribed(input)?);
        }
        for output in op.outputs() {
            rebuilt = rebuilt.output(redescribed(output)?);
        }
        Ok(rebuilt)
    };
    let mut reshaped = Graph::new();
    reshaped.set_fpmath(graph.fpmath()).map_err(Ending::failed)?;
    for op in graph.ops() {
        let op =
            rebuilt(op).context("--override-shape gives a shape that cannot be").map_err(Ending::usage)?;
        reshaped.add_op(op).map_err(Ending::failed)?;
    }
    Ok(reshaped)
}

/// The ids of tensors.
pub(crate) fn ids<'a>(tensors: impl IntoIterator<Item = &'a LogicalTensor>) -> Vec<TensorId> {
    tensors.into_iter().map(LogicalTensor::id).collect()
}

/// Checks that a tensor that an option names is among those that it may name.
pub(crate) fn check_id(option: &str, id: TensorId, known: &[TensorId], what: &str) -> Result<()> {
    if known.contains(&id) {
        return Ok(());
    }
    let known: Vec<String> = known.iter().map(TensorId::to_string).collect();
    bail!("{option} names tensor {id}, which is not {what}; choose from {}", known.join(", "))
}
