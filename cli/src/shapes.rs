//! The shape and layout of each tensor of a graph: resolved once, before anything runs, for every command
//! alike.

use std::collections::{HashMap, HashSet};
use std::str::FromStr;

use anyhow::{Context, Result, bail, ensure};
use sterna::{
    Attr, AttrValue, Graph, Layout, LogicalTensor, MAX_RANK, Op, OpId, OpKind, Policy, TensorId, reference,
};

use crate::command_error::CommandError;
use crate::edit::over_and_over;
use crate::words::check_id;

/// Another shape, another layout, or both, for a tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ShapeEdit {
    /// None keeps the dims.
    pub(crate) dims: Option<Vec<i64>>,
    /// None makes the layout dense, with the last dim innermost.
    pub(crate) layout: Option<LayoutEdit>,
}

/// The layout of a tensor in an option.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LayoutEdit {
    /// Dense: the dims from the outermost to the innermost.
    Order(Vec<usize>),
    Strides(Vec<i64>),
}

impl From<Vec<i64>> for ShapeEdit {
    fn from(dims: Vec<i64>) -> Self {
        Self { dims: Some(dims), layout: None }
    }
}

impl FromStr for ShapeEdit {
    type Err = String;

    /// Reads `2x3`, `2x3*ba`, `2x3*1x2`, `*ba`, `scalar` and nothing, which is a scalar as well.
    fn from_str(text: &str) -> Result<Self, String> {
        let (dims, layout) = match text.split_once('*') {
            None => (text, None),
            Some((dims, layout)) => (dims, Some(layout.parse()?)),
        };
        Ok(match (dims, layout) {
            ("", Some(layout)) => Self { dims: None, layout: Some(layout) },
            ("" | "scalar" | "-", layout) => Self { dims: Some(Vec::new()), layout },
            (dims, layout) => Self { dims: Some(numbers(dims)?), layout },
        })
    }
}

/// Numbers joined by `x`.
fn numbers(text: &str) -> Result<Vec<i64>, String> {
    let number = |number: &str| match number.parse() {
        Ok(number @ 0..) => Ok(number),
        _ => Err(format!("{number:?} is no dim; write a shape as dims joined by x, such as 2x8x128x128")),
    };
    text.split('x').map(number).collect()
}

impl FromStr for LayoutEdit {
    type Err = String;

    /// Reads a tag such as `acdb`, or strides such as `1x16x4`.
    fn from_str(text: &str) -> Result<Self, String> {
        if !text.starts_with(|c: char| c.is_ascii_lowercase()) {
            return Ok(Self::Strides(numbers(text)?));
        }
        let order: Vec<usize> = text.bytes().map(|letter| usize::from(letter.wrapping_sub(b'a'))).collect();
        let mut sorted = order.clone();
        sorted.sort_unstable();
        match sorted.iter().copied().eq(0..order.len()) && order.len() <= MAX_RANK {
            true => Ok(Self::Order(order)),
            false => Err(format!(
                "{text:?} is no layout; write each letter from a on once, such as acdb for 4 dims, or \
                 strides such as 1x16x4"
            )),
        }
    }
}

impl LayoutEdit {
    /// The strides of a tensor of these dims.
    pub(crate) fn strides(&self, dims: &[i64]) -> Result<Vec<i64>> {
        let (given, what) = match self {
            Self::Strides(strides) => (strides.len(), "strides"),
            Self::Order(order) => (order.len(), "letters of a layout"),
        };
        ensure!(given == dims.len(), "{given} {what} are given for the {} dims {dims:?}", dims.len());
        let order = match self {
            Self::Strides(strides) => return Ok(strides.clone()),
            Self::Order(order) => order,
        };
        let (mut strides, mut next) = (vec![0; dims.len()], 1i64);
        for &axis in order.iter().rev() {
            strides[axis] = next;
            next = next.checked_mul(dims[axis].max(1)).context("it is larger than the address space")?;
        }
        Ok(strides)
    }
}

/// Finalizes a graph, with other shapes for some of its tensors, and with each shape that follows from the
/// rules of the ops.
///
/// A tensor keeps the shape that the graph gives it, unless something that it is computed from has another
/// shape now.
pub(crate) fn settle<S>(graph: Graph, overrides: &[(TensorId, S)]) -> Result<Graph, CommandError>
where
    S: Into<ShapeEdit> + Clone,
{
    let overrides: Vec<(TensorId, ShapeEdit)> =
        overrides.iter().map(|(id, shape)| (*id, shape.clone().into())).collect();
    settle_edited(graph, &overrides, &HashSet::new())
}

/// Settles a graph as [`settle`] does, in which ops were edited: what they compute may have other shapes than
/// before.
pub(crate) fn settle_edited(
    mut graph: Graph,
    overrides: &[(TensorId, ShapeEdit)],
    edited: &HashSet<OpId>,
) -> Result<Graph, CommandError> {
    graph.finalize().map_err(CommandError::failed)?;
    let mut shapes = Shapes::given(&graph, overrides, edited)?;
    let mut ops: HashMap<OpId, Op> = HashMap::new();
    // Partitions of one op each come in an order in which each op stands behind those that it depends on.
    for partition in graph.partitions(Policy::Debug).map_err(CommandError::failed)? {
        for op in partition.ops() {
            ops.insert(op.id(), shapes.resolved(op).map_err(CommandError::failed)?);
        }
    }
    if graph.ops().iter().all(|op| ops.get(&op.id()) == Some(op)) {
        return Ok(graph);
    }
    let mut resolved = Graph::new();
    resolved.set_fpmath(graph.fpmath()).map_err(CommandError::failed)?;
    for op in graph.ops() {
        resolved.add_op(ops.remove(&op.id()).unwrap_or_else(|| op.clone())).map_err(CommandError::failed)?;
    }
    resolved.finalize().map_err(CommandError::failed)?;
    Ok(resolved)
}

/// The descriptions of a graph's tensors, and which of them have another shape than in the graph.
struct Shapes<'a> {
    known: HashMap<TensorId, LogicalTensor>,
    changed: HashSet<TensorId>,
    /// Layouts of computed tensors whose dims follow from rules.
    layouts: HashMap<TensorId, &'a LayoutEdit>,
    edited: &'a HashSet<OpId>,
}

impl<'a> Shapes<'a> {
    /// The inputs of the graph, and the tensors that are given another shape.
    fn given(
        graph: &Graph,
        overrides: &'a [(TensorId, ShapeEdit)],
        edited: &'a HashSet<OpId>,
    ) -> Result<Self, CommandError> {
        let produced = graph.ops().iter().flat_map(Op::outputs);
        let all: Vec<&LogicalTensor> = graph.inputs().into_iter().chain(produced).collect();
        let mut mentions: HashMap<TensorId, Vec<&LogicalTensor>> = HashMap::new();
        all.iter().for_each(|&tensor| mentions.entry(tensor.id()).or_default().push(tensor));
        let mut known: HashMap<TensorId, LogicalTensor> =
            graph.inputs().into_iter().map(|input| (input.id(), input.clone())).collect();
        let (mut changed, mut layouts) = (HashSet::new(), HashMap::new());
        for (id, edit) in overrides {
            let Some(mentions) = mentions.get(id) else {
                let ids: Vec<TensorId> = all.iter().map(|tensor| tensor.id()).collect();
                check_id("--shape", *id, &ids, "a tensor of the graph").map_err(CommandError::usage)?;
                continue;
            };
            let is_input = known.contains_key(id);
            for tensor in mentions {
                match (edit, tensor.dims()) {
                    // Known once its op is resolved.
                    (ShapeEdit { dims: None, layout: Some(layout) }, _) if !is_input => {
                        layouts.insert(*id, layout);
                    }
                    (edit, dims) => {
                        let described = described(tensor, edit)
                            .with_context(|| format!("--shape gives tensor {id} what cannot be"))
                            .map_err(CommandError::usage)?;
                        if described.dims() != dims {
                            changed.insert(*id);
                        }
                        known.insert(*id, described);
                    }
                }
            }
        }
        Ok(Self { known, changed, layouts, edited })
    }

    /// An op between tensors whose shapes are resolved, as far as they can be.
    fn resolved(&mut self, op: &Op) -> Result<Op> {
        let mut resolved = Op::new(op.id(), op.kind()).named(op.name());
        for (attr, value) in op.attrs() {
            resolved = resolved.attr(attr, self.linked(op, attr).unwrap_or_else(|| value.clone()));
        }
        for input in op.inputs() {
            resolved = resolved.input(self.known.get(&input.id()).unwrap_or(input).clone());
        }
        let inferred = self.inferred(op);
        let depends_on_changed = self.edited.contains(&op.id())
            || op.inputs().iter().any(|input| self.changed.contains(&input.id()));
        for (index, output) in op.outputs().iter().enumerate() {
            let dims = inferred.as_ref().and_then(|shapes| shapes.get(index));
            let described = match (self.known.get(&output.id()), output.dims(), dims) {
                (Some(overridden), ..) => overridden.clone(),
                (None, Some(_), _) if !depends_on_changed => output.clone(),
                (None, Some(given), Some(dims)) if given == &dims[..] => output.clone(),
                (None, None, Some(dims)) if !depends_on_changed => with_dims(output, dims)?,
                (None, _, Some(dims)) => LogicalTensor::any(output.id(), output.data_type(), dims)?
                    .with_property(output.property())?,
                (None, _, None) if !depends_on_changed => output.clone(),
                (None, _, None) => LogicalTensor::unknown(output.id(), output.data_type())
                    .with_property(output.property())?,
            };
            let described = match (self.layouts.get(&output.id()), described.dims()) {
                (Some(layout), Some(dims)) => laid_out(&described, dims, layout)
                    .with_context(|| format!("--shape gives tensor {} what cannot be", output.id()))?,
                _ => described,
            };
            if described.partial_dims() != output.partial_dims() {
                self.changed.insert(output.id());
            }
            self.known.insert(output.id(), described.clone());
            resolved = resolved.output(described);
        }
        Ok(resolved)
    }

    /// The value of an attribute that follows the shape of an input: scales and zero points of channels
    /// are repeated if the number of channels changed, or if another number was given.
    fn linked(&self, op: &Op, attr: Attr) -> Option<AttrValue> {
        let input = op.inputs().first()?;
        let is_quantized = matches!(op.kind(), OpKind::Quantize | OpKind::Dequantize);
        let is_other = self.changed.contains(&input.id()) || self.edited.contains(&op.id());
        if !is_quantized || !is_other || !matches!(attr, Attr::Scales | Attr::Zps) {
            return None;
        }
        if op.get_attr(Attr::Qtype) != Some(&AttrValue::from("per_channel")) {
            return None;
        }
        let dims = self.known.get(&input.id())?.dims()?;
        let axis = match op.get_attr(Attr::Axis) {
            Some(&AttrValue::S64(axis)) => axis,
            _ => 1,
        };
        let axis = if axis < 0 { axis + dims.len() as i64 } else { axis };
        let count = usize::try_from(*dims.get(usize::try_from(axis).ok()?)?).ok()?;
        // As many as a tensor of this shape in memory could have channels.
        if count > MAX_CHANNELS {
            return None;
        }
        over_and_over(op.get_attr(attr)?, count)
    }

    /// The shapes that follow from the rule of an op. What contradicts the rule is found when the op is
    /// compiled or interpreted, and told there.
    fn inferred(&self, op: &Op) -> Option<Vec<sterna::Dims>> {
        let dims = |input: &LogicalTensor| self.known.get(&input.id())?.dims().map(<[i64]>::to_vec);
        let inputs = op.inputs().iter().map(dims).collect::<Option<Vec<Vec<i64>>>>()?;
        let inputs: Vec<&[i64]> = inputs.iter().map(Vec::as_slice).collect();
        reference::output_shapes(op, &inputs).ok().flatten()
    }
}

/// The most channels whose scales are made up.
const MAX_CHANNELS: usize = 1 << 20;

/// A tensor as an option describes it.
fn described(tensor: &LogicalTensor, edit: &ShapeEdit) -> Result<LogicalTensor> {
    let Some(dims) = edit.dims.as_deref().or(tensor.dims()) else {
        bail!("its dims are not known; write them before the layout, such as 2x3*ba");
    };
    match &edit.layout {
        None => Ok(LogicalTensor::strided(tensor.id(), tensor.data_type(), dims)?
            .with_property(tensor.property())?),
        Some(layout) => laid_out(tensor, dims, layout),
    }
}

/// A tensor of known dims in another layout.
fn laid_out(tensor: &LogicalTensor, dims: &[i64], layout: &LayoutEdit) -> Result<LogicalTensor> {
    let strides = layout.strides(dims)?;
    Ok(LogicalTensor::with_strides(tensor.id(), tensor.data_type(), dims, &strides)?
        .with_property(tensor.property())?)
}

/// A tensor whose shape is no longer open, in the layout that it has.
fn with_dims(tensor: &LogicalTensor, dims: &[i64]) -> Result<LogicalTensor> {
    let layout = match tensor.layout() {
        Layout::Strided(_) => Layout::Strided(dims.iter().map(|_| None).collect()),
        other => other.clone(),
    };
    let dims: Vec<Option<i64>> = dims.iter().copied().map(Some).collect();
    Ok(LogicalTensor::with_layout(tensor.id(), tensor.data_type(), Some(&dims), layout)?
        .with_property(tensor.property())?)
}

/// A tensor as it lies in memory: as the graph says, or row by row if the graph gives no strides.
///
/// # Errors
///
/// Its shape is not known.
pub(crate) fn in_memory(tensor: &LogicalTensor) -> Result<LogicalTensor> {
    let id = tensor.id();
    let dims = tensor.dims();
    ensure!(dims.is_some(), "the shape of tensor {id} is not known; give it with --shape {id}=...");
    Ok(match (dims, tensor.strides()) {
        (Some(dims), None) => {
            LogicalTensor::strided(id, tensor.data_type(), dims)?.with_property(tensor.property())?
        }
        _ => tensor.clone(),
    })
}
