//! `sterna inspect`: a graph, its partitions and plans, for people.

mod arena;
mod attrs;
mod digest;
mod dot;
mod layers;
mod layout;
mod model;
mod page;
mod picture;
mod text;
mod tiles;

use std::path::PathBuf;

use anyhow::anyhow;
use clap::ValueEnum;

use self::arena::Arena;
use self::model::Inspection;
use crate::command_error::CommandError;
use crate::endings;
use crate::parse::{self, EXIT_CODES, join};
use crate::source::GraphArgs;
use crate::trace;

/// The arguments of `sterna inspect`.
#[derive(Debug, clap::Args)]
#[command(after_help = join(&[INSPECT_EXAMPLES, EXIT_CODES]))]
pub(crate) struct InspectArgs {
    #[command(flatten)]
    pub(crate) source: GraphArgs,
    /// In which form; unless given, the ending of the output file says it, and otherwise it is text.
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub(crate) format: Option<Format>,
    /// Writes to a file instead of standard output.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Threads to compile for; as many as the machine runs at once unless given.
    #[arg(long, value_name = "N", value_parser = parse::threads)]
    pub(crate) threads: Option<u16>,
    /// Colours partitions by the time that they took in a run, from a file that `sterna run --profile` wrote.
    #[arg(long, value_name = "FILE.json")]
    pub(crate) profile: Option<PathBuf>,
}

const INSPECT_EXAMPLES: &str = "Examples:
  sterna inspect graph.json
  sterna inspect graph.json -o graph.html
  sterna inspect graph.json --format dot | dot -Tpdf > graph.pdf
  sterna inspect model.onnx --dim seq=128 --format arena -o arena.svg
  sterna inspect model.onnx --profile trace.json -o model.html
  sterna inspect - --format svg < graph.json > graph.svg
  sterna inspect graph.json --shape then=2x8x128x128
  sterna inspect graph.json --input cond=mask.npy
  sterna inspect graph.json --policy debug
  sterna inspect model.xml --partial";

/// The forms in which a graph is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Text for a terminal.
    Text,
    /// The language of Graphviz.
    Dot,
    /// A picture.
    Svg,
    /// A page with the picture, in which a click on a partition shows its plan.
    Html,
    /// A picture of the memory of a run: each buffer a bar, over the steps that need it.
    Arena,
}

/// The endings of files, by the form that they stand for.
const ENDINGS: [(&str, Format); 6] = [
    ("txt", Format::Text),
    ("dot", Format::Dot),
    ("gv", Format::Dot),
    ("svg", Format::Svg),
    ("html", Format::Html),
    ("htm", Format::Html),
];

impl InspectArgs {
    /// The form that `--format` names, or else the ending of the output file.
    ///
    /// # Errors
    ///
    /// The ending is that of another form, and those that are known.
    pub(crate) fn format(&self) -> Result<Format, String> {
        let Some(path) = self.output.as_deref().filter(|_| self.format.is_none()) else {
            return Ok(self.format.unwrap_or(Format::Text));
        };
        let endings = ENDINGS.map(|(ending, _)| ending);
        endings::known(path, &endings)
            .map_err(|why| format!("--output: {why}, or name a form with --format"))?;
        let ending = endings::ending_of(path);
        let row = ENDINGS.iter().find(|(known, _)| ending.as_deref() == Some(known));
        Ok(row.map_or(Format::Text, |(_, format)| *format))
    }
}

/// The output, and remarks for the reader.
pub(crate) struct Shown {
    pub(crate) text: String,
    /// Why partitions cannot be compiled: an error of the user, or a shape that only an execution tells.
    pub(crate) failures: Vec<String>,
    pub(crate) notes: Vec<String>,
}

/// Shows a graph in one of the forms.
pub(crate) fn inspect(args: &InspectArgs) -> Result<Shown, CommandError> {
    let format = args.format().map_err(|why| CommandError::usage(anyhow!(why)))?;
    let loaded = args.source.load()?;
    let (name, policy) = (args.source.name(), args.source.options.policy());
    let profile = args.profile.as_deref().map(trace::read).transpose().map_err(CommandError::usage)?;
    let mut inspection = Inspection::new(&name, &loaded, policy, args.threads.map(Into::into))
        .map_err(CommandError::failed)?;
    let strange = profile.map_or(0, |steps| inspection.take_times(&steps));
    let arena = || Arena::of(&loaded, policy, &inspection);
    let text = match format {
        Format::Text => text::text(&inspection, &arena()),
        Format::Dot => dot::dot(&inspection),
        Format::Svg => picture::file(&inspection).map_err(CommandError::failed)?,
        Format::Html => page::page(&inspection, &arena()).map_err(CommandError::failed)?,
        Format::Arena => arena().file(),
    };
    let failures = inspection.failures();
    let mut notes = [loaded.notes, inspection.notes()].concat();
    if strange > 0 {
        notes.push(format!("--profile: {strange} steps of the profile have ops that are none of this graph"));
    }
    Ok(Shown { text, failures, notes })
}
