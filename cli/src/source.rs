//! Graphs as the command line names them: from a file or from standard input, in JSON or as a model of ONNX
//! or OpenVINO, with the shapes that options give.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use sterna::reference::Value;
use sterna::{DataType, Error, Graph, JsonFault, LogicalTensor, TensorId};
use sterna_import::{Fault, Imported, Options, Port, onnx, openvino};

use crate::ending::Ending;
use crate::given::Given;
use crate::parse::{self, Key};
use crate::shapes::settle;

/// Which graph.
#[derive(Debug, clap::Args)]
pub(crate) struct GraphArgs {
    /// The graph in JSON, or a model of ONNX or OpenVINO; `-` reads standard input.
    pub(crate) graph: PathBuf,
    /// Gives a tensor another shape, such as 3=2x8x128x128; the shapes of all that is computed from it are
    /// inferred anew. `ID=` with nothing behind it is a scalar. A tensor that an op produces needs this only
    /// if its shape does not follow from those of the op's inputs.
    #[arg(long, visible_alias = "shape", value_name = "ID=SHAPE", value_parser = parse::key_and_shape)]
    pub(crate) override_shape: Vec<(Key, Vec<i64>)>,
    /// The constants of a model of OpenVINO; unless given, the file beside it that ends in .bin.
    #[arg(long, value_name = "FILE.bin")]
    pub(crate) weights: Option<PathBuf>,
    /// Takes a model although layers of it cannot be mapped: each of them becomes a Wildcard op.
    #[arg(long)]
    pub(crate) partial: bool,
}

/// A graph that was read.
pub(crate) struct Loaded {
    /// Finalized, with every shape settled that can be before it runs.
    pub(crate) graph: Graph,
    /// The values of a model's constants.
    pub(crate) constants: BTreeMap<TensorId, Value>,
    /// The inputs and outputs of a model by name; nothing of a graph in JSON, whose tensors have no names.
    pub(crate) named: Option<Named>,
    /// Remarks for the reader.
    pub(crate) notes: Vec<String>,
}

/// The inputs and outputs of a model.
pub(crate) struct Named {
    pub(crate) inputs: Vec<Port>,
    pub(crate) outputs: Vec<Port>,
}

/// The place of the tensors that an option may name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Inputs,
    Outputs,
    /// Inputs first.
    Both,
}

impl Loaded {
    /// A graph in memory, whose tensors have no names.
    fn unnamed(graph: Graph) -> Self {
        Self { graph, constants: BTreeMap::new(), named: None, notes: Vec::new() }
    }

    /// The ids of the tensors that an option names, each once.
    pub(crate) fn resolve<T: Clone>(
        &self,
        option: &str,
        named: &[(Key, T)],
        side: Side,
    ) -> Result<Vec<(TensorId, T)>> {
        let resolved = named.iter().map(|(key, value)| Ok((self.tensor(key, side)?, value.clone())));
        let resolved: Vec<(TensorId, T)> = resolved.collect::<Result<_>>()?;
        parse::once(option, resolved.iter().map(|(id, _)| *id))?;
        Ok(resolved)
    }

    fn tensor(&self, key: &str, side: Side) -> Result<TensorId> {
        let Some(named) = &self.named else { return id_of(key) };
        let ports = match side {
            Side::Inputs => &named.inputs[..],
            Side::Outputs => &named.outputs[..],
            Side::Both => &[&named.inputs[..], &named.outputs[..]].concat(),
        };
        match Port::find(ports, "tensor", key) {
            Ok(port) => Ok(port.tensor.id()),
            Err(error @ sterna_import::Error::Name { .. }) => id_of(key).or(Err(error.into())),
            Err(error) => Err(error.into()),
        }
    }
}

fn id_of(key: &str) -> Result<TensorId> {
    key.parse().map_err(|_| anyhow!("{key:?} is no tensor id; write a whole number before the `=`"))
}

impl GraphArgs {
    /// The origin of the graph, in words.
    pub(crate) fn name(&self) -> String {
        match self.graph == Path::new("-") {
            true => "standard input".into(),
            false => self.graph.display().to_string(),
        }
    }

    /// The graph. `given` are the values of inputs, from which a model takes types and shapes that it does
    /// not say.
    pub(crate) fn load(&self, given: &[(Key, Given)]) -> Result<Loaded, Ending> {
        let bytes = read(&self.graph).map_err(Ending::usage)?;
        if is_onnx(&self.graph, &bytes) {
            if self.weights.is_some() {
                return Err(Ending::usage(anyhow!("--weights goes with a model of OpenVINO")));
            }
            let is_stdin = self.graph == Path::new("-");
            return self.model(
                &|options| match is_stdin {
                    true => onnx::read_under(&bytes, options),
                    // Constants may have their elements in files beside it.
                    false => onnx::read_file(&self.graph, options),
                },
                given,
                true,
            );
        }
        let text = String::from_utf8(bytes).ok().with_context(|| format!("{} is no text", self.name()));
        let text = text.map_err(Ending::usage)?;
        if text.trim_start_matches('\u{feff}').trim_start().starts_with('<') {
            let weights = self.weights_of().map_err(Ending::usage)?;
            return self.model(&|options| openvino::read_with(&text, &weights, options), given, false);
        }
        if let Some(option) =
            [("--weights", self.weights.is_some()), ("--partial", self.partial)].iter().find(|o| o.1)
        {
            return Err(Ending::usage(anyhow!("{} goes with a model; this is a graph in JSON", option.0)));
        }
        let (graph, notes) = Graph::from_json_with_notes(&text).map_err(|error| {
            let said = format!("cannot read a graph from {}", self.name());
            Ending::failed(match &error {
                Error::Json(fault) => anyhow!("{said}: {error}{}", Pointer::to(&text, fault)),
                _ => anyhow!(error).context(said),
            })
        })?;
        notes.iter().for_each(|note| crate::terminal::say("note", note));
        let loaded = Loaded::unnamed(graph);
        let shapes =
            loaded.resolve("--override-shape", &self.override_shape, Side::Inputs).map_err(Ending::usage)?;
        Ok(Loaded { graph: settle(loaded.graph, &shapes)?, ..Loaded::unnamed(Graph::new()) })
    }

    /// A model. If `takes_values`, its reader computes what follows from the values of inputs.
    fn model(
        &self,
        read: &dyn Fn(&Options) -> Result<Imported, sterna_import::Error>,
        given: &[(Key, Given)],
        takes_values: bool,
    ) -> Result<Loaded, Ending> {
        let failed = |error| Ending::failed(anyhow!("cannot read a model from {}: {error}", self.name()));
        // The names of its inputs, even if parts of it cannot be mapped as they are.
        let survey = read(&Options { partial: true, ..Options::default() }).map_err(failed)?;
        let survey = loaded(survey);
        let Some(named) = &survey.named else { unreachable!("a model has names") };
        let input = |id: TensorId| named.inputs.iter().find(|port| port.tensor.id() == id);

        let mut options = Options { partial: self.partial, ..Options::default() };
        let mut inner = Vec::new();
        let shapes = survey.resolve("--override-shape", &self.override_shape, Side::Inputs);
        for (id, dims) in shapes.map_err(Ending::usage)? {
            match input(id) {
                Some(port) => drop(options.shapes.insert(port.name().into(), dims)),
                None => inner.push((id, dims)),
            }
        }
        let mut values = BTreeMap::new();
        for (id, given) in survey.resolve("--input", given, Side::Inputs).map_err(Ending::usage)? {
            let Some(port) = input(id) else { continue };
            let (data_type, dims) = given.description().map_err(Ending::usage)?;
            if takes_values {
                let desc = LogicalTensor::strided(id, port.tensor.data_type(), &dims);
                let value = desc.map_err(Into::into).and_then(|desc| given.value(&desc));
                values.insert(port.name().to_owned(), value.map_err(Ending::usage)?);
            }
            options.types.extend(data_type.map(|data_type| (port.name().to_owned(), data_type)));
            if port.tensor.known_dims().is_none() {
                options.shapes.entry(port.name().into()).or_insert(dims);
            }
        }
        let as_it_stands = options.shapes.is_empty() && options.types.is_empty();
        let mut loaded = match as_it_stands && (self.partial || survey.notes.is_empty()) {
            true => survey,
            false => {
                let open: Vec<String> = named
                    .inputs
                    .iter()
                    .filter(|port| port.tensor.known_dims().is_none())
                    .filter(|port| !options.shapes.contains_key(port.name()))
                    .map(|port| format!("--shape {}=...", port.name()))
                    .collect();
                drop(survey);
                loaded(read_with_values(read, &mut options, &values).map_err(|error| match &error {
                    sterna_import::Error::Layer { fault, .. }
                        if matches!(**fault, Fault::UnknownShape { .. }) && !open.is_empty() =>
                    {
                        let (name, open) = (self.name(), open.join(" "));
                        Ending::failed(anyhow!(
                            "cannot read a model from {name}: {error}; {open} gives a shape"
                        ))
                    }
                    _ => failed(error),
                })?)
            }
        };
        loaded.graph = settle(loaded.graph, &inner)?;
        Ok(loaded)
    }

    /// The bytes of the constants; none if there is no file of them.
    fn weights_of(&self) -> Result<Vec<u8>> {
        let beside = self.graph.with_extension("bin");
        let path = match &self.weights {
            Some(path) => path,
            None if beside.is_file() => &beside,
            None => return Ok(Vec::new()),
        };
        fs::read(path).with_context(|| format!("cannot read {}", path.display()))
    }
}

/// Reads a model; if a node of it needs a constant, with the values of inputs that are lists of whole
/// numbers, as shapes and axes are, and if that is not enough with all that are given.
fn read_with_values(
    read: &dyn Fn(&Options) -> Result<Imported, sterna_import::Error>,
    options: &mut Options,
    values: &BTreeMap<String, Value>,
) -> Result<Imported, sterna_import::Error> {
    let is_list =
        |value: &Value| matches!(value.data_type(), DataType::S32 | DataType::S64) && value.dims().len() <= 1;
    let mut imported = read(options);
    for takes_all in [false, true] {
        let wants_constant = |error: &sterna_import::Error| match error {
            sterna_import::Error::Layer { fault, .. } => matches!(**fault, Fault::NotConstant { .. }),
            _ => false,
        };
        if !imported.as_ref().is_err_and(wants_constant) || values.is_empty() {
            break;
        }
        let taken = values.iter().filter(|(_, value)| takes_all || is_list(value));
        options.values = taken.map(|(name, value)| (name.clone(), value.clone())).collect();
        imported = read(options);
    }
    imported
}

/// Whether a file is a model of ONNX, by its name or, as standard input has none, by its first field.
fn is_onnx(path: &Path, bytes: &[u8]) -> bool {
    path.extension().is_some_and(|extension| extension == "onnx") || bytes.first() == Some(&8)
}

fn loaded(imported: Imported) -> Loaded {
    let note = |error: &sterna_import::Error| format!("{error}; it became a Wildcard op");
    Loaded {
        notes: imported.skipped.iter().map(note).collect(),
        named: Some(Named { inputs: imported.inputs, outputs: imported.outputs }),
        constants: imported.weights,
        graph: imported.graph,
    }
}

fn read(path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if path == Path::new("-") {
        io::stdin().read_to_end(&mut bytes).context("cannot read a graph from standard input")?;
        return Ok(bytes);
    }
    let mut file = fs::File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    file.read_to_end(&mut bytes).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(bytes)
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
