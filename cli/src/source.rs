//! Graphs as the command line names them: from a file or from standard input, with the shapes that options give.

use std::fmt::{self, Display, Formatter};
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use sterna::{Error, Graph, JsonFault, TensorId};

use crate::ending::Ending;
use crate::parse;
use crate::shapes::settle;

/// Which graph.
#[derive(Debug, clap::Args)]
pub(crate) struct GraphArgs {
    /// The graph in JSON; `-` reads standard input.
    pub(crate) graph: PathBuf,
    /// Gives a tensor another shape, such as 3=2x8x128x128; the shapes of all that is computed from it are inferred
    /// anew. `ID=` with nothing behind it is a scalar. A tensor that an op produces needs this only if its shape does
    /// not follow from those of the op's inputs.
    #[arg(long, value_name = "ID=SHAPE", value_parser = parse::id_and_shape)]
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

    /// The graph, finalized, with every shape settled that can be before it runs.
    pub(crate) fn load(&self) -> Result<Graph, Ending> {
        parse::once("--override-shape", self.override_shape.iter().map(|(id, _)| *id))
            .map_err(Ending::usage)?;
        let text = read(&self.graph).map_err(Ending::usage)?;
        let (graph, notes) = Graph::from_json_with_notes(&text).map_err(|error| {
            let said = format!("cannot read a graph from {}", self.name());
            Ending::failed(match &error {
                Error::Json(fault) => anyhow!("{said}: {error}{}", Pointer::to(&text, fault)),
                _ => anyhow!(error).context(said),
            })
        })?;
        notes.iter().for_each(|note| crate::terminal::say("note", note));
        settle(graph, &self.override_shape)
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

/// Characters shown of a longer line, before the column and from it on.
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
