//! `sterna inspect`: a graph, its partitions and plans, for people.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Result, anyhow};
use clap::ValueEnum;
use sterna::reference::Value;
use sterna::{ArenaPlan, Engine, Graph, LogicalTensor, OpId, Session, TensorId};
use sterna_import::Constant;
use sterna_inspect::{Arena, Inspection, Subject};

use crate::command_error::CommandError;
use crate::given::Given;
use crate::parse::{self, EXIT_CODES, join};
use crate::source::{GraphArgs, Loaded};
use crate::words::shown;
use crate::{endings, trace, whole};

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
    let engine = match args.threads {
        Some(threads) => Engine::builder().threads(threads.into()).build(),
        None => Engine::new(),
    };
    let subject = LoadedSubject::new(&loaded);
    let mut inspection = Inspection::new(&name, &subject, policy, &engine).map_err(CommandError::failed)?;
    let strange = profile.map_or(0, |steps| inspection.take_times(&steps));
    let arena = || Arena::of(&subject, policy, &inspection);
    let text = match format {
        Format::Text => sterna_inspect::text(&inspection, &arena()),
        Format::Dot => sterna_inspect::dot(&inspection),
        Format::Svg => sterna_inspect::svg(&inspection).map_err(CommandError::failed)?,
        Format::Html => sterna_inspect::page(&inspection, &arena()).map_err(CommandError::failed)?,
        Format::Arena => arena().svg(),
    };
    let failures = inspection.failures();
    let mut notes = [loaded.notes, inspection.notes()].concat();
    if strange > 0 {
        notes.push(format!("--profile: {strange} steps of the profile have ops that are none of this graph"));
    }
    Ok(Shown { text, failures, notes })
}

/// A graph that was read, with the values that options give.
struct LoadedSubject<'a> {
    loaded: &'a Loaded,
    given: BTreeMap<TensorId, Given>,
}

impl<'a> LoadedSubject<'a> {
    fn new(loaded: &'a Loaded) -> Self {
        Self { loaded, given: loaded.given.iter().cloned().collect() }
    }
}

impl Subject for LoadedSubject<'_> {
    fn graph(&self) -> &Graph {
        &self.loaded.graph
    }

    fn names(&self) -> BTreeMap<TensorId, String> {
        self.loaded.names.by_id()
    }

    fn skipped_kind(&self, op: OpId) -> Option<&str> {
        self.loaded.skipped_kinds.get(&op).map(String::as_str)
    }

    fn in_memory(&self, tensor: &LogicalTensor) -> Result<LogicalTensor> {
        self.loaded.in_memory(tensor)
    }

    fn given(&self, input: &LogicalTensor) -> Result<Option<Value>> {
        let given = self.given.get(&input.id());
        given.map(|given| given.value(input, &shown(None, input.id()))).transpose()
    }

    fn constant(&self, input: &LogicalTensor) -> Result<Option<Value>> {
        Ok(self.loaded.constants.get(&input.id()).map(Constant::to_value).transpose()?)
    }

    fn remedy(&self, input: TensorId) -> Option<String> {
        let key = sterna_inspect::harmless(&self.loaded.names.key(input));
        Some(format!("--input {key}=FILE.npy draws them"))
    }

    fn arena_plan(&self, engine: &Engine) -> Result<Option<ArenaPlan>> {
        let loaded = self.loaded;
        let is_given = |id| self.given.contains_key(&id);
        let constants = whole::shared(&loaded.graph, loaded.constants.clone(), is_given);
        let outputs: Vec<_> = loaded.names.outputs.iter().map(|port| port.id).collect();
        let outputs = if loaded.is_model { outputs } else { Vec::new() };
        let model = whole::model(&loaded.graph, &constants, &outputs)?;
        Ok(Session::builder(model).fallback(true).build(engine)?.arena_plan())
    }
}
