//! Graphs as the command line names them: from a file or from standard input, in JSON or as a model of ONNX
//! or OpenVINO, with what options change of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display, Formatter};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use sterna::reference::Value;
use sterna::{
    DataType, Error, FpMath, Graph, JsonFault, LogicalTensor, Model, ModelPort, OpId, OpKind, Policy,
    Property, Rewrite, TensorId,
};
use sterna_import::{
    Constant, Imported, Limits, ModelFile, Options, open_plain, open_stream, read_at_most,
    refuse_other_formats,
};

use crate::command_error::CommandError;
use crate::edit::{self, AttrEdit, Edits};
use crate::given::{Given, GivenInput, expanded};
use crate::named::Named;
use crate::names::{NamedTensor, Names, PortScope, is_op, op_of};
use crate::needed::{self, ModelPorts, hint, read_with_values};
use crate::shapes::{ShapeEdit, in_memory, settle_edited};
use crate::words::{listed, plain};
use crate::{minibatch, parse};

/// Which graph, and what of it options change.
#[derive(Debug, clap::Args)]
pub(crate) struct GraphArgs {
    /// The graph in JSON, or a model of ONNX or OpenVINO; `-` reads standard input.
    pub(crate) graph: PathBuf,
    #[command(flatten)]
    pub(crate) options: GraphOptions,
}

/// The options that change a graph, the same for each command that reads one.
///
/// Tensors go by NAME: inputs and outputs by that of the model or, in a graph in JSON, by the port of the
/// first op that takes an input, or of the op that computes an output, such as cond and dst; and every tensor
/// by its id. Ops go by id or by name.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "What is read and changed")]
pub(crate) struct GraphOptions {
    /// Takes the value of an input from an .npy file, from the array of this name of an .npz file (or from
    /// another one as FILE.npz:ARRAY), from a .pb file as the test data of ONNX has them, or from a small
    /// value such as [[1,0],[0,1]]. Type and shape must be those of the tensor. FILE.npz and FILE.pb alone
    /// give the inputs that they name.
    #[arg(long, value_name = "NAME=FILE|NAME=VALUE", value_parser = parse::named_given)]
    pub(crate) input: Vec<Named<Given>>,
    /// Gives a tensor another shape, such as x=2x8x128x128; the shapes of all that is computed from it are
    /// inferred anew. `NAME=` with nothing behind it is a scalar. A layout may follow, or stand alone: a tag
    /// as in x=2x8x4*acb or x=*acb, which lists the dims from the outermost to the innermost, or strides as
    /// in x=*32x1x8. A tensor that an op produces needs a shape only if it does not follow from those of the
    /// op's inputs.
    #[arg(
        long,
        visible_alias = "override-shape",
        value_name = "NAME=SHAPE",
        value_parser = parse::named_shape
    )]
    pub(crate) shape: Vec<Named<ShapeEdit>>,
    /// Gives a length to the dims of a model that have a name, such as seq=128.
    #[arg(long = "dim", value_name = "NAME=LENGTH", value_parser = parse::named_length)]
    pub(crate) dims: Vec<(String, i64)>,
    /// Gives the inputs that have samples, as their first dim, another number of them; the rest of their
    /// shapes is that of the graph, or of --shape.
    #[arg(long, value_name = "N", value_parser = parse::whole(0, u32::MAX))]
    pub(crate) mb: Option<u32>,
    /// Gives a tensor another type, such as x=bf16; f32, bf16 or f16 alone give it to all data of one of
    /// these types, except scales and shifts of norms and the like.
    #[arg(long = "type", value_name = "NAME=TYPE|TYPE", value_parser = edit::type_edit)]
    pub(crate) types: Vec<Named<DataType>>,
    /// Gives an op another value of an attribute, such as 3.transpose_b=true; lists are numbers joined by x,
    /// and undef takes the attribute away.
    #[arg(long = "attr", value_name = "OP.ATTRIBUTE=VALUE", value_parser = edit::attr_edit)]
    pub(crate) attrs: Vec<Named<AttrEdit>>,
    /// Makes an op one of another kind, such as 0=Maximum, with the same inputs and outputs; undef takes the
    /// op away and puts its input in place of its output.
    #[arg(long = "op-kind", value_name = "OP=KIND", value_parser = edit::kind_edit)]
    pub(crate) kinds: Vec<Named<Option<OpKind>>>,
    /// Gives a tensor another property: undef, variable, constant or host_scalar.
    #[arg(long = "property", value_name = "NAME=PROPERTY", value_parser = named_property)]
    pub(crate) properties: Vec<Named<Property>>,
    /// Gives the graph another floating-point math mode: strict, bf16, f16, tf32 or any, and with :true
    /// behind it for integers too.
    #[arg(long, value_name = "MODE", value_parser = edit::fpmath)]
    pub(crate) fpmath: Option<FpMath>,
    /// The constants of a model of OpenVINO; unless given, the file beside it that ends in .bin.
    #[arg(long, value_name = "FILE.bin")]
    pub(crate) weights: Option<PathBuf>,
    /// Takes a model although layers of it cannot be mapped: each of them becomes a Wildcard op.
    #[arg(long)]
    pub(crate) partial: bool,
    /// Which ops share a partition: those that gain from it (fusion, the default), or none (debug).
    #[arg(long, value_name = "POLICY", value_parser = policies())]
    pub(crate) policy: Option<Policy>,
    /// Leaves out a rewrite of forms that exporters write, such as scale-to-queries; may be given more than
    /// once.
    #[arg(long = "no-rewrite", value_name = "REWRITE", value_parser = rewrites())]
    pub(crate) no_rewrite: Vec<Rewrite>,
}

/// The names of rewrites.
fn rewrites() -> impl TypedValueParser<Value = Rewrite> {
    PossibleValuesParser::new(Rewrite::ALL.iter().map(|rewrite| rewrite.name()))
        .try_map(|name| name.parse::<Rewrite>())
}

/// The names of policies.
pub(crate) fn policies() -> impl TypedValueParser<Value = Policy> {
    PossibleValuesParser::new(Policy::ALL.iter().map(|policy| policy.name()))
        .try_map(|name| name.parse::<Policy>())
}

fn named_property(text: &str) -> Result<Named<Property>, String> {
    Named::parse(text, "NAME=PROPERTY, such as 3=constant", edit::property)
}

/// A graph that was read.
#[derive(Default)]
pub(crate) struct Loaded {
    /// Finalized, with every shape settled that can be before it runs.
    pub(crate) graph: Graph,
    /// The values of a model's constants.
    pub(crate) constants: BTreeMap<TensorId, Constant>,
    /// The inputs and outputs by name.
    pub(crate) names: Names,
    /// It is a model, whose inputs and outputs have names of their own.
    pub(crate) is_model: bool,
    /// The types of the layers of a model that became `Wildcard` ops.
    pub(crate) skipped_kinds: BTreeMap<OpId, String>,
    /// The inputs of a model whose given values became constants of the graph.
    pub(crate) folded: BTreeMap<String, Value>,
    /// The values of inputs that options give.
    pub(crate) given: Vec<(TensorId, Given)>,
    /// Remarks for the reader.
    pub(crate) notes: Vec<String>,
}

/// The values of inputs by id.
type GivenById = Vec<(TensorId, Given)>;

impl Loaded {
    /// The ids of the tensors that an option names, each once.
    pub(crate) fn resolve<T: Clone>(
        &self,
        option: &str,
        named: &[Named<T>],
        side: PortScope,
    ) -> Result<Vec<(TensorId, T)>> {
        let resolved = named.iter().filter_map(|named| {
            let (key, value) = self.names.split(named);
            Some(self.names.find(option, key?, side).map(|id| (id, value.clone())))
        });
        let resolved: Vec<(TensorId, T)> = resolved.collect::<Result<_>>()?;
        self.names.once(option, resolved.iter().map(|(id, _)| *id))?;
        Ok(resolved)
    }

    /// The values that options give, by id, and what there is to say about files that hold more than that.
    fn inputs(&self, inputs: &[Named<Given>]) -> Result<(GivenById, Vec<String>)> {
        let inputs = expanded(inputs.iter().map(|named| self.names.split(named)))?;
        let named = self.names.inputs.iter().map(|input| input.id);
        let known: BTreeSet<TensorId> =
            named.chain(self.graph.inputs().into_iter().map(LogicalTensor::id)).collect();
        let (mut resolved, mut passed, mut is_any_named) = (Vec::new(), Vec::new(), false);
        for GivenInput { key, given, is_named_by_file } in &inputs {
            if self.folded.contains_key(&**key)
                && self.names.inputs.iter().all(|input| input.name() != &**key)
            {
                continue;
            }
            match (self.names.find("--input", key, PortScope::Inputs), is_named_by_file) {
                (Ok(id), true) if known.contains(&id) => {
                    is_any_named = true;
                    resolved.push((id, given.clone()));
                }
                (_, true) => passed.push(format!("`{}`", plain(key))),
                (found, false) => resolved.push((found?, given.clone())),
            }
        }
        self.names.once("--input", resolved.iter().map(|(id, _)| *id))?;
        if passed.is_empty() {
            return Ok((resolved, Vec::new()));
        }
        let inputs = listed(self.names.inputs.iter().map(|input| format!("`{}`", plain(input.name()))));
        if !is_any_named {
            bail!("--input: the file holds {}, and none is an input; there are {inputs}", listed(passed));
        }
        let note = format!("--input: the file holds {} as well, which is no input", listed(passed));
        Ok((resolved, vec![note]))
    }

    /// The values that options give.
    pub(crate) fn given_values(&self) -> Result<Vec<(TensorId, Value)>> {
        let inputs: BTreeMap<TensorId, &LogicalTensor> =
            self.graph.inputs().into_iter().map(|input| (input.id(), input)).collect();
        let given = self.given.iter().filter_map(|(id, given)| {
            let input = inputs.get(id)?;
            let value = self.in_memory(input).and_then(|desc| given.value(&desc, &self.names.shown(*id)));
            Some(value.map(|value| (*id, value)))
        });
        given.collect()
    }

    /// The graph as a model whose inputs and outputs have their names.
    fn named_model(&mut self) -> Result<Model> {
        let graph = std::mem::take(&mut self.graph);
        let tensors = graph.ops().iter().flat_map(|op| op.inputs().iter().chain(op.outputs()));
        let tensors: BTreeMap<TensorId, LogicalTensor> =
            tensors.map(|tensor| (tensor.id(), tensor.clone())).collect();
        let port = |named: &NamedTensor| Some(ModelPort::new(named.name(), tensors.get(&named.id)?.clone()));
        let ports = |named: &[NamedTensor]| named.iter().filter_map(port).collect::<Vec<_>>();
        let (inputs, outputs) = (ports(&self.names.inputs), ports(&self.names.outputs));
        Ok(Model::with_ports(graph, inputs, outputs)?)
    }

    /// A tensor as it lies in memory.
    ///
    /// # Errors
    ///
    /// Its shape is not known.
    pub(crate) fn in_memory(&self, tensor: &LogicalTensor) -> Result<LogicalTensor> {
        if tensor.dims().is_some() {
            return in_memory(tensor);
        }
        let id = tensor.id();
        let input = if self.names.is_input(id) { "input " } else { "" };
        let (shown, key) = (self.names.shown(id), self.names.key(id));
        bail!("the shape of {input}{shown} is not known; give it with --shape {key}=...")
    }
}

impl GraphOptions {
    pub(crate) fn policy(&self) -> Policy {
        self.policy.unwrap_or(Policy::Fusion)
    }

    /// Adds to shapes what --mb changes, and says so if that is nothing.
    fn with_samples(&self, loaded: &Loaded, shapes: &mut Vec<(TensorId, ShapeEdit)>) -> Option<String> {
        let samples = self.mb?;
        let is_constant = |id| loaded.constants.contains_key(&id);
        (!minibatch::apply(&loaded.graph, is_constant, samples.into(), shapes))
            .then(|| "--mb: no input has samples as its first dim".into())
    }

    /// The values of inputs with defaults that are no tensors of the graph, as all that follows from them was
    /// worked out: the model is read anew with these.
    fn defaults_anew(&self, model: &Imported) -> Result<BTreeMap<String, Value>> {
        let in_graph: BTreeSet<TensorId> = model.graph.inputs().into_iter().map(LogicalTensor::id).collect();
        let names = Names::of_model(model);
        let mut values = BTreeMap::new();
        for GivenInput { key, given, .. } in expanded(self.input.iter().map(|named| names.split(named)))? {
            let tensor = model.defaults.get(&key).filter(|tensor| !in_graph.contains(&tensor.id()));
            let Some(tensor) = tensor else { continue };
            let desc = LogicalTensor::strided(tensor.id(), tensor.data_type(), &given.description()?.1)?;
            values.insert(key.clone(), given.value(&desc, &format!("`{}`", plain(&key)))?);
        }
        Ok(values)
    }

    /// The edits of a graph whose tensors and ops the options name.
    fn edits(&self, loaded: &Loaded) -> Result<Edits> {
        let mut edits = Edits { fpmath: self.fpmath, ..Edits::default() };
        let known: BTreeSet<TensorId> = {
            let ops = loaded.graph.ops().iter();
            ops.flat_map(|op| op.inputs().iter().chain(op.outputs())).map(LogicalTensor::id).collect()
        };
        // An input of a model that no op uses is no tensor of the graph.
        let idle: BTreeSet<TensorId> = loaded.names.inputs.iter().map(|input| input.id).collect();
        let tensor = |option: &str, key: &str| {
            let id = loaded.names.find(option, key, PortScope::Both)?;
            if !known.contains(&id) && !idle.contains(&id) {
                bail!("{option} names tensor {id}, which is not a tensor of the graph");
            }
            Ok(id)
        };
        for named in &self.types {
            let (key, data_type) = loaded.names.split(named);
            match key {
                None if edits.all.is_some() => bail!("--type names a type for all tensors more than once"),
                None => edits.all = Some(*data_type),
                Some(key) => edits.types.push((tensor("--type", key)?, *data_type)),
            }
        }
        for named in &self.properties {
            let (Some(key), property) = loaded.names.split(named) else { continue };
            edits.properties.push((tensor("--property", key)?, *property));
        }
        for named in &self.attrs {
            let (Some(op), AttrEdit { attr, value }) = named.split(|key| is_op(key, &loaded.graph)) else {
                continue;
            };
            let id = op_of("--attr", op, &loaded.graph)?;
            if edits.attrs.iter().any(|(other, name, _)| *other == id && name == attr) {
                bail!("--attr names the attribute {} of op {id} more than once; keep one", plain(attr));
            }
            edits.attrs.push((id, attr.clone(), value.clone()));
        }
        for named in &self.kinds {
            let (Some(op), kind) = named.split(|key| is_op(key, &loaded.graph)) else { continue };
            let id = op_of("--op-kind", op, &loaded.graph)?;
            if edits.kinds.iter().any(|(other, _)| *other == id) {
                bail!("--op-kind names op {id} more than once; keep one");
            }
            edits.kinds.push((id, *kind));
        }
        loaded.names.once("--type", edits.types.iter().map(|(id, _)| *id))?;
        loaded.names.once("--property", edits.properties.iter().map(|(id, _)| *id))?;
        Ok(edits)
    }
}

impl GraphArgs {
    /// The origin of the graph, in words.
    pub(crate) fn name(&self) -> String {
        match self.graph == Path::new("-") {
            true => "standard input".into(),
            false => self.graph.display().to_string(),
        }
    }

    /// The graph, with what options change of it. A model takes types and shapes that it does not say from
    /// the values of inputs.
    pub(crate) fn load(&self) -> Result<Loaded, CommandError> {
        match self.read(&Options::default())? {
            Opened::Json(text) => self.json(&text),
            Opened::OpenVino(model) => self.model(&model, false),
            Opened::Onnx(model) => self.model(&model, true),
        }
    }

    /// The model for inputs of any lengths, with the names of its inputs and outputs, and the values that
    /// options give.
    pub(crate) fn load_open(&self) -> Result<(Model, Loaded), CommandError> {
        let GraphOptions { dims, types, attrs, kinds, properties, no_rewrite, mb, fpmath, .. } =
            &self.options;
        let dims = dims.iter().cloned().collect();
        let options = Options { partial: self.options.partial, dims, ..Options::default() };
        let mut folded = BTreeMap::new();
        let (model, notes) = match self.read(&options)? {
            Opened::Json(text) => {
                let mut loaded = self.json(&text)?;
                (loaded.named_model().map_err(CommandError::failed)?, loaded.notes)
            }
            Opened::OpenVino(model) | Opened::Onnx(model) => {
                let edits = [
                    ("--type", !types.is_empty()),
                    ("--attr", !attrs.is_empty()),
                    ("--op-kind", !kinds.is_empty()),
                    ("--property", !properties.is_empty()),
                    ("--no-rewrite", !no_rewrite.is_empty()),
                    ("--mb", mb.is_some()),
                    ("--fpmath", fpmath.is_some()),
                ];
                if let Some((option, _)) = edits.iter().find(|(_, is_given)| *is_given) {
                    let why = "changes one graph; with --state there is a graph for each step";
                    return Err(CommandError::usage(anyhow!("{option} {why}")));
                }
                let (model, values) = self.with_values(model, options)?;
                folded = values;
                let notes = folded.keys().map(|name| needed::note(name)).collect();
                (Model::try_from(*model).map_err(CommandError::failed)?, notes)
            }
        };
        let names = Names::of_ports(model.inputs(), model.outputs());
        let mut loaded = Loaded { names, is_model: true, notes, folded, ..Loaded::default() };
        let (given, more) = loaded.inputs(&self.options.input).map_err(CommandError::usage)?;
        loaded.given = given;
        loaded.notes.extend(more);
        Ok((model, loaded))
    }

    /// A model whose steps run, with those values of inputs that its reader needs, if they are whole numbers
    /// or lists of them: other values may differ from step to step.
    fn with_values(
        &self,
        model: Box<ModelFile>,
        options: Options,
    ) -> Result<(Box<ModelFile>, BTreeMap<String, Value>), CommandError> {
        // Standard input is read once.
        if self.options.input.is_empty() || self.graph == Path::new("-") {
            return Ok((model, BTreeMap::new()));
        }
        // Whatever else is wrong is said when the steps are planned.
        let folded = self.model(&model, true).map(|loaded| loaded.folded).unwrap_or_default();
        if folded.is_empty() || !folded.values().all(needed::is_list_value) {
            return Ok((model, BTreeMap::new()));
        }
        match self.read(&Options { values: folded.clone(), ..options })? {
            Opened::Onnx(model) | Opened::OpenVino(model) => Ok((model, folded)),
            Opened::Json(_) => Ok((model, BTreeMap::new())),
        }
    }

    /// The graph or model as it stands.
    fn read(&self, options: &Options) -> Result<Opened, CommandError> {
        let model = match self.source().map_err(CommandError::usage)? {
            Source::Text(text) => {
                if !text.trim_start_matches('\u{feff}').trim_start().starts_with('<') {
                    return Ok(Opened::Json(text));
                }
                let weights = self.weights().map_err(CommandError::usage)?;
                let model = ModelFile::openvino_with_file(&text, weights.as_deref(), options);
                return Ok(Opened::OpenVino(Box::new(model.map_err(|error| self.unread(&error))?)));
            }
            _ if self.options.weights.is_some() => {
                return Err(CommandError::usage(anyhow!("--weights goes with a model of OpenVINO")));
            }
            Source::Onnx(bytes) => ModelFile::onnx(&bytes, options),
            // Constants may have their elements in files beside it.
            Source::OnnxFile => ModelFile::open_with(&self.graph, None, options),
        };
        Ok(Opened::Onnx(Box::new(model.map_err(|error| self.unread(&error))?)))
    }

    /// A graph in JSON.
    fn json(&self, text: &str) -> Result<Loaded, CommandError> {
        let of_models = [
            ("--weights", self.options.weights.is_some()),
            ("--partial", self.options.partial),
            ("--dim", !self.options.dims.is_empty()),
        ];
        if let Some(option) = of_models.iter().find(|option| option.1) {
            return Err(CommandError::usage(anyhow!(
                "{} goes with a model; this is a graph in JSON",
                option.0
            )));
        }
        let (mut graph, notes) = Graph::from_json_with_notes(text).map_err(|error| {
            let said = format!("cannot read a graph from {}", self.name());
            CommandError::failed(match &error {
                Error::Json(fault) => anyhow!("{said}: {error}{}", Pointer::to(text, fault)),
                _ => anyhow!(error).context(said),
            })
        })?;
        graph.finalize().map_err(CommandError::failed)?;
        let notes = notes.iter().map(ToString::to_string).collect();
        let mut loaded = Loaded { names: Names::of_graph(&graph), graph, notes, ..Loaded::default() };
        let mut shapes =
            loaded.resolve("--shape", &self.options.shape, PortScope::Both).map_err(CommandError::usage)?;
        let note = self.options.with_samples(&loaded, &mut shapes);
        loaded.notes.extend(note);
        self.changed(loaded, &shapes)
    }

    /// A graph with what options change of it.
    fn changed(&self, mut loaded: Loaded, shapes: &[(TensorId, ShapeEdit)]) -> Result<Loaded, CommandError> {
        let edits = self.options.edits(&loaded).map_err(CommandError::usage)?;
        let graph = std::mem::take(&mut loaded.graph);
        let reshaped = shapes.iter().filter(|(_, edit)| edit.dims.is_some()).map(|(id, _)| *id).collect();
        let edited = edits.apply(graph, &mut loaded.constants, &reshaped).map_err(CommandError::usage)?;
        loaded.graph = settle_edited(edited.graph, shapes, &edited.ops)?;
        self.options.no_rewrite.iter().for_each(|&rewrite| loaded.graph.set_rewrite(rewrite, false));
        let (given, notes) = loaded.inputs(&self.options.input).map_err(CommandError::usage)?;
        loaded.given = given;
        loaded.notes.extend(notes);
        Ok(loaded)
    }

    /// A model with the names of its inputs, even if parts of it cannot be mapped as they are, and how it was
    /// read: with the values that options give in place of defaults.
    fn survey(&self, model: &ModelFile) -> Result<(Imported, Options), CommandError> {
        let dims = self.options.dims.iter().cloned().collect();
        let mut options = Options { partial: true, dims, ..Options::default() };
        let mut survey = model.import(&options).map_err(|error| self.unread(&error))?;
        options.values = self.options.defaults_anew(&survey).map_err(CommandError::usage)?;
        if !options.values.is_empty() {
            survey = model.import(&options).map_err(|error| self.unread(&error))?;
        }
        Ok((survey, options))
    }

    /// A model. If `takes_values`, its reader computes what follows from the values of inputs.
    fn model(&self, model: &ModelFile, takes_values: bool) -> Result<Loaded, CommandError> {
        let (survey, of_survey) = self.survey(model)?;
        let ports: ModelPorts = survey
            .inputs
            .iter()
            .map(|port| (port.tensor.id(), (port.name().to_owned(), port.tensor.clone())))
            .collect();
        let survey = loaded(survey);

        let mut options = Options { partial: self.options.partial, ..of_survey };
        // The edits that the reader of the model does not take, by name.
        let mut later: Vec<Named<ShapeEdit>> = Vec::new();
        let mut shapes =
            survey.resolve("--shape", &self.options.shape, PortScope::Both).map_err(CommandError::usage)?;
        let note = self.options.with_samples(&survey, &mut shapes);
        for (index, (id, edit)) in shapes.into_iter().enumerate() {
            let key = self.options.shape.get(index).and_then(|named| survey.names.split(named).0.cloned());
            let key = key.unwrap_or_else(|| survey.names.key(id));
            if let (Some((name, _)), Some(dims)) = (ports.get(&id), &edit.dims) {
                options.shapes.insert(name.clone(), dims.clone());
            }
            if !ports.contains_key(&id) || edit.layout.is_some() {
                later.push(Named::Splits(vec![(key, edit)]));
            }
        }
        let mut values = BTreeMap::new();
        for (id, given) in survey.inputs(&self.options.input).map_err(CommandError::usage)?.0 {
            let Some((name, tensor)) = ports.get(&id) else { continue };
            let (data_type, dims) = given.description().map_err(CommandError::usage)?;
            // An input of a type that no tensor has is refused when the model is read.
            if takes_values && tensor.data_type() != DataType::Undef {
                let desc = LogicalTensor::strided(id, tensor.data_type(), &dims);
                let value =
                    desc.map_err(Into::into).and_then(|desc| given.value(&desc, &survey.names.shown(id)));
                // A value of the type that an option gives is no constant of the model.
                match self.options.types.is_empty() {
                    true => drop(values.insert(name.clone(), value.map_err(CommandError::usage)?)),
                    false => values.extend(value.ok().map(|value| (name.clone(), value))),
                }
            }
            options.types.extend(data_type.map(|data_type| (name.clone(), data_type)));
            if tensor.dims().is_none() {
                options.shapes.entry(name.clone()).or_insert(dims);
            }
        }
        for named in &self.options.types {
            let (Some(key), data_type) = survey.names.split(named) else { continue };
            let id = survey.names.find("--type", key, PortScope::Both).map_err(CommandError::usage)?;
            options.types.extend(ports.get(&id).map(|(name, _)| (name.clone(), *data_type)));
        }
        let as_it_stands = options.shapes.is_empty() && options.types.is_empty();
        let mut loaded = match as_it_stands && (self.options.partial || survey.notes.is_empty()) {
            true => survey,
            false => {
                drop(survey);
                let read = read_with_values(model, &mut options, &values);
                let is_given = |option: &str, name: &str| match option {
                    "--shape" => options.shapes.contains_key(name),
                    _ => !takes_values || values.contains_key(name),
                };
                let hinted = |error| {
                    let hint = hint(&error, &ports, is_given);
                    CommandError::failed(anyhow!("cannot read a model from {}: {error}{hint}", self.name()))
                };
                loaded(read.map_err(hinted)?)
            }
        };
        loaded.folded = options.values;
        loaded.notes.extend(note);
        let shapes = loaded.resolve("--shape", &later, PortScope::Both).map_err(CommandError::usage)?;
        self.changed(loaded, &shapes)
    }

    /// The file of the constants of a model of OpenVINO, if there is one.
    fn weights(&self) -> Result<Option<PathBuf>> {
        let beside = self.graph.with_extension("bin");
        let path = match &self.options.weights {
            Some(path) => path.clone(),
            None if beside.exists() => beside,
            None => return Ok(None),
        };
        open_plain(&path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(Some(path))
    }

    /// The file or standard input: a model of ONNX, or a text.
    fn source(&self) -> Result<Source> {
        let limits = Limits::default();
        let most = limits.text_bytes.saturating_add(limits.constant_bytes);
        let mut bytes = Vec::new();
        if self.graph == Path::new("-") {
            io::stdin().read_to_end(&mut bytes).context("cannot read a graph from standard input")?;
        } else {
            let path = &self.graph;
            let mut file = open_stream(path).with_context(|| format!("cannot open {}", path.display()))?;
            let is_plain = file.metadata().is_ok_and(|metadata| metadata.is_file());
            let start = file.by_ref().take(FORMAT_BYTES).read_to_end(&mut bytes);
            start.with_context(|| format!("cannot read {}", path.display()))?;
            refuse_other_formats(&bytes).with_context(|| format!("cannot read {}", path.display()))?;
            // A model stays where it is; a FIFO is read once.
            if is_plain && is_onnx(path, &bytes) {
                return Ok(Source::OnnxFile);
            }
            bytes = whole(io::Cursor::new(bytes).chain(file), most, path)?;
        }
        if is_onnx(&self.graph, &bytes) {
            return Ok(Source::Onnx(bytes));
        }
        let text = String::from_utf8(bytes).ok().with_context(|| format!("{} is no text", self.name()))?;
        Ok(Source::Text(text))
    }

    /// The error of a model that cannot be read.
    fn unread(&self, error: &sterna_import::Error) -> CommandError {
        CommandError::failed(anyhow!("cannot read a model from {}: {error}", self.name()))
    }
}

/// The bytes of a file that tell a model of ONNX.
const FORMAT_BYTES: u64 = 256;

/// A graph or a model that was read.
enum Opened {
    Json(String),
    OpenVino(Box<ModelFile>),
    Onnx(Box<ModelFile>),
}

/// The source of a graph.
enum Source {
    /// A model that is a plain file.
    OnnxFile,
    Onnx(Vec<u8>),
    Text(String),
}

/// True if a file is a model of ONNX, by its first field or else by its name. JSON and XML start otherwise
/// than any model, whatever their name.
fn is_onnx(path: &Path, bytes: &[u8]) -> bool {
    let is_named_so = path.extension().is_some_and(|extension| extension == "onnx");
    bytes.first() == Some(&8) || (is_named_so && !matches!(bytes.first(), Some(b'{' | b'<')))
}

fn loaded(imported: Imported) -> Loaded {
    let note = |error: &sterna_import::Error| format!("{error}; it became a Wildcard op");
    Loaded {
        notes: imported.skipped.iter().map(note).collect(),
        names: Names::of_model(&imported),
        is_model: true,
        skipped_kinds: imported.skipped_kinds,
        folded: BTreeMap::new(),
        constants: imported.weights,
        graph: imported.graph,
        given: Vec::new(),
    }
}

/// All of a file, which has no more than so many bytes.
fn whole(file: impl Read, most: usize, path: &Path) -> Result<Vec<u8>> {
    let bytes = read_at_most(file, most).with_context(|| format!("cannot read {}", path.display()))?;
    bytes.with_context(|| format!("cannot read {}: it has more than {most} bytes", path.display()))
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
