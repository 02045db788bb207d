//! Ops: a kind, attributes, inputs and outputs.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

use super::logical_tensor::LogicalTensor;
use super::row::Schema;
use crate::error::{Direction, OpRef, PortRef};
use crate::types::id::{OpId, TensorId};
use crate::types::kind::{Attr, AutoBroadcast, OpKind};

/// The value of an attribute.
///
/// ```
/// use sterna::{Attr, AttrValue, Op, OpKind};
/// let op = Op::new(0, OpKind::Clamp).attr(Attr::Min, -1.0f32).attr(Attr::Max, 1.0f32);
/// assert_eq!(op.get_attr(Attr::Max), Some(&AttrValue::F32(1.0)));
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum AttrValue {
    /// A boolean.
    Bool(bool),
    /// An integer.
    S64(i64),
    /// A floating-point number.
    F32(f32),
    /// A word.
    String(String),
    /// A list of integers.
    S64s(Vec<i64>),
    /// A list of floating-point numbers.
    F32s(Vec<f32>),
}

impl AttrValue {
    /// The name of the value's type, as JSON writes it: `bool`, `s64`, `f32`, `string`, `s64[]` or `f32[]`.
    #[must_use]
    pub const fn type_name(&self) -> &'static str {
        match self {
            Self::Bool(_) => "bool",
            Self::S64(_) => "s64",
            Self::F32(_) => "f32",
            Self::String(_) => "string",
            Self::S64s(_) => "s64[]",
            Self::F32s(_) => "f32[]",
        }
    }
}

impl fmt::Display for AttrValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(value) => write!(f, "{value}"),
            Self::S64(value) => write!(f, "{value}"),
            Self::F32(value) => write!(f, "{value}"),
            Self::String(value) => f.write_str(value),
            Self::S64s(values) => write!(f, "{values:?}"),
            Self::F32s(values) => write!(f, "{values:?}"),
        }
    }
}

/// Numbers are equal if their bits are, so that a NaN equals itself and the cache can hold any value.
impl PartialEq for AttrValue {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Bool(a), Self::Bool(b)) => a == b,
            (Self::S64(a), Self::S64(b)) => a == b,
            (Self::F32(a), Self::F32(b)) => a.to_bits() == b.to_bits(),
            (Self::String(a), Self::String(b)) => a == b,
            (Self::S64s(a), Self::S64s(b)) => a == b,
            (Self::F32s(a), Self::F32s(b)) => a.iter().map(|x| x.to_bits()).eq(b.iter().map(|x| x.to_bits())),
            _ => false,
        }
    }
}

impl Eq for AttrValue {}

impl Hash for AttrValue {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.type_name().hash(state);
        match self {
            Self::Bool(value) => value.hash(state),
            Self::S64(value) => value.hash(state),
            Self::F32(value) => value.to_bits().hash(state),
            Self::String(value) => value.hash(state),
            Self::S64s(values) => values.hash(state),
            Self::F32s(values) => {
                values.len().hash(state);
                values.iter().for_each(|value| value.to_bits().hash(state));
            }
        }
    }
}

macro_rules! attr_value_from {
    ($( $Type:ty => $Variant:ident, )*) => {
        $(
            impl From<$Type> for AttrValue {
                fn from(value: $Type) -> Self {
                    Self::$Variant(value.into())
                }
            }
        )*
    };
}

attr_value_from! {
    bool => Bool,
    i64 => S64,
    f32 => F32,
    &str => String,
    String => String,
    Vec<i64> => S64s,
    &[i64] => S64s,
    Vec<f32> => F32s,
    &[f32] => F32s,
}

impl From<AutoBroadcast> for AttrValue {
    fn from(mode: AutoBroadcast) -> Self {
        mode.name().into()
    }
}

/// One op of a graph: kind, attributes, inputs and outputs.
///
/// Building an op checks nothing; [`Graph::add_op`](crate::Graph::add_op) checks it against the
/// [schema](crate::Schema) of its kind.
///
/// ```
/// use sterna::{AutoBroadcast, DataType, LogicalTensor, Op};
/// let mask = LogicalTensor::strided(0, DataType::Boolean, &[1, 1, 128])?;
/// let scores = LogicalTensor::strided(1, DataType::F32, &[8, 128, 128])?;
/// let fill = LogicalTensor::strided(2, DataType::F32, &[])?;
/// let masked = LogicalTensor::strided(3, DataType::F32, &[8, 128, 128])?;
/// let op = Op::select(0, mask, scores, fill, masked).auto_broadcast(AutoBroadcast::Numpy);
/// assert_eq!(op.inputs().len(), 3);
/// # Ok::<(), sterna::Error>(())
/// ```
#[derive(Clone)]
pub struct Op {
    /// Shared by clones until one of them changes: an op passes many stages from a file to its partition.
    parts: Arc<OpParts>,
}

#[derive(Clone)]
struct OpParts {
    id: OpId,
    kind: OpKind,
    /// Written when it is asked for, unless somebody gives it.
    name: OnceLock<String>,
    attrs: BTreeMap<Attr, AttrValue>,
    inputs: Vec<LogicalTensor>,
    outputs: Vec<LogicalTensor>,
    /// The op is known to fit its row of the schema, with all defaults.
    is_verified: bool,
}

impl OpParts {
    /// The name of an op to which nobody gives one.
    fn own_name(&self) -> String {
        format!("{}_{}", self.kind, self.id)
    }

    fn name(&self) -> &str {
        self.name.get_or_init(|| self.own_name())
    }
}

type OpSaid<'a> =
    (OpId, OpKind, &'a str, &'a BTreeMap<Attr, AttrValue>, &'a [LogicalTensor], &'a [LogicalTensor]);

impl PartialEq for Op {
    fn eq(&self, other: &Self) -> bool {
        self.is_same(other) || self.said() == other.said()
    }
}

impl Eq for Op {}

impl fmt::Debug for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (id, kind, name, attrs, inputs, outputs) = self.said();
        let mut shown = f.debug_struct("Op");
        shown.field("id", &id).field("kind", &kind).field("name", &name).field("attrs", attrs);
        shown.field("inputs", &inputs).field("outputs", &outputs).finish()
    }
}

impl Op {
    /// An op without attributes, inputs or outputs. Its name is `Kind_id`.
    #[must_use]
    pub fn new(id: impl Into<OpId>, kind: OpKind) -> Self {
        let (id, name) = (id.into(), OnceLock::new());
        let (attrs, inputs, outputs) = (BTreeMap::new(), Vec::new(), Vec::new());
        Self { parts: Arc::new(OpParts { id, kind, name, attrs, inputs, outputs, is_verified: false }) }
    }

    /// `dst[i] = cond[i] != 0 ? then[i] : else[i]`, with broadcasting by `auto_broadcast` (`numpy` unless
    /// set).
    ///
    /// `cond` is boolean; `then`, `else_` and `dst` share one type of
    /// [`DataType::WHOLE`](crate::DataType::WHOLE).
    #[must_use]
    pub fn select(
        id: impl Into<OpId>,
        cond: LogicalTensor,
        then: LogicalTensor,
        else_: LogicalTensor,
        dst: LogicalTensor,
    ) -> Self {
        Self::new(id, OpKind::Select).inputs_from([cond, then, else_]).output(dst)
    }

    /// The same op with a name for people; an empty one becomes `Kind_id`.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.set_name(name.into());
        self
    }

    fn set_name(&mut self, mut name: String) {
        if name.is_empty() {
            name = self.parts.own_name();
        }
        self.parts_mut().name = name.into();
    }

    /// Adds the next input.
    #[must_use]
    pub fn input(mut self, tensor: LogicalTensor) -> Self {
        self.change().inputs.push(tensor);
        self
    }

    /// Adds the next inputs.
    #[must_use]
    pub fn inputs_from(mut self, tensors: impl IntoIterator<Item = LogicalTensor>) -> Self {
        self.change().inputs.extend(tensors);
        self
    }

    /// Adds the next output.
    #[must_use]
    pub fn output(mut self, tensor: LogicalTensor) -> Self {
        self.change().outputs.push(tensor);
        self
    }

    /// The same op with other outputs in place of all that it has.
    ///
    /// ```
    /// use sterna::{DataType, LogicalTensor, Op, OpKind};
    /// let tensor = |id| LogicalTensor::unknown(id, DataType::F32);
    /// let exp = Op::new(0, OpKind::Exp).input(tensor(0)).output(tensor(1));
    /// let known = LogicalTensor::strided(1, DataType::F32, &[2])?;
    /// assert_eq!(exp.with_outputs([known.clone()]).outputs(), [known]);
    /// # Ok::<(), sterna::Error>(())
    /// ```
    #[must_use]
    pub fn with_outputs(mut self, tensors: impl IntoIterator<Item = LogicalTensor>) -> Self {
        let (is_verified, outputs) = (self.is_verified(), tensors.into_iter().collect());
        let before = std::mem::replace(&mut self.change().outputs, outputs);
        // A schema row says nothing of the dims of outputs.
        let is_alike = |(was, is): (&LogicalTensor, &LogicalTensor)| {
            (was.data_type(), was.property()) == (is.data_type(), is.property())
        };
        let outputs = self.outputs();
        if is_verified && before.len() == outputs.len() && before.iter().zip(outputs).all(is_alike) {
            self.note_verified();
        }
        self
    }

    /// Sets an attribute; a later value replaces an earlier one.
    #[must_use]
    pub fn attr(mut self, attr: Attr, value: impl Into<AttrValue>) -> Self {
        self.set_attr(attr, value.into());
        self
    }

    fn set_attr(&mut self, attr: Attr, value: AttrValue) {
        self.change().attrs.insert(attr, value);
    }

    /// Sets `auto_broadcast`: how the shapes of the inputs combine.
    #[must_use]
    pub fn auto_broadcast(self, mode: AutoBroadcast) -> Self {
        self.attr(Attr::AutoBroadcast, mode)
    }

    /// Sets `axis`. On `Select` it needs `pdpd`: the dim of `then` at which the other operands start.
    #[must_use]
    pub fn axis(self, axis: i64) -> Self {
        self.attr(Attr::Axis, axis)
    }

    /// The id, unique in a graph.
    #[must_use]
    pub fn id(&self) -> OpId {
        self.parts.id
    }

    /// The computation of the op.
    #[must_use]
    pub fn kind(&self) -> OpKind {
        self.parts.kind
    }

    /// The name for people.
    #[must_use]
    pub fn name(&self) -> &str {
        self.parts.name()
    }

    /// The inputs, by index.
    #[must_use]
    pub fn inputs(&self) -> &[LogicalTensor] {
        &self.parts.inputs
    }

    /// The outputs, by index.
    #[must_use]
    pub fn outputs(&self) -> &[LogicalTensor] {
        &self.parts.outputs
    }

    /// The attributes that are set; for an op in a graph, defaults are among them.
    pub fn attrs(&self) -> impl ExactSizeIterator<Item = (Attr, &AttrValue)> {
        self.parts.attrs.iter().map(|(&attr, value)| (attr, value))
    }

    /// One attribute, if set.
    #[must_use]
    pub fn get_attr(&self, attr: Attr) -> Option<&AttrValue> {
        self.parts.attrs.get(&attr)
    }

    /// An attribute of type s64, if set.
    /// True if the op gives a tensor.
    pub(crate) fn gives(&self, tensor: TensorId) -> bool {
        self.outputs().iter().any(|output| output.id() == tensor)
    }

    pub(crate) fn s64_attr(&self, attr: Attr) -> Option<i64> {
        match self.parts.attrs.get(&attr) {
            Some(&AttrValue::S64(value)) => Some(value),
            _ => None,
        }
    }

    /// An attribute of type f32, if set.
    pub(crate) fn f32_attr(&self, attr: Attr) -> Option<f32> {
        match self.parts.attrs.get(&attr) {
            Some(&AttrValue::F32(value)) => Some(value),
            _ => None,
        }
    }

    /// An attribute of type bool; false if not set.
    pub(crate) fn bool_attr(&self, attr: Attr) -> bool {
        matches!(self.parts.attrs.get(&attr), Some(AttrValue::Bool(true)))
    }

    /// An attribute of type s64[]; empty if not set.
    pub(crate) fn s64s_attr(&self, attr: Attr) -> &[i64] {
        match self.parts.attrs.get(&attr) {
            Some(AttrValue::S64s(values)) => values,
            _ => &[],
        }
    }

    /// An attribute of type f32[]; empty if it is not set.
    pub(crate) fn f32s_attr(&self, attr: Attr) -> &[f32] {
        match self.parts.attrs.get(&attr) {
            Some(AttrValue::F32s(values)) => values,
            _ => &[],
        }
    }

    /// An attribute of type string, if set.
    pub(crate) fn str_attr(&self, attr: Attr) -> Option<&str> {
        match self.parts.attrs.get(&attr) {
            Some(AttrValue::String(value)) => Some(value),
            _ => None,
        }
    }

    /// How the shapes of the inputs combine; `numpy` if not set.
    pub(crate) fn broadcast_mode(&self) -> AutoBroadcast {
        self.str_attr(Attr::AutoBroadcast).and_then(|mode| mode.parse().ok()).unwrap_or(AutoBroadcast::Numpy)
    }

    /// The same op on other tensors.
    pub(crate) fn with_tensors(
        &self,
        inputs: impl IntoIterator<Item = LogicalTensor>,
        outputs: impl IntoIterator<Item = LogicalTensor>,
    ) -> Self {
        self.on(inputs.into_iter().collect(), outputs.into_iter().collect())
    }

    fn on(&self, inputs: Vec<LogicalTensor>, outputs: Vec<LogicalTensor>) -> Self {
        // An op on its own tensors is the op.
        if self.inputs() == inputs && self.outputs() == outputs {
            return self.clone();
        }
        let OpParts { id, kind, ref name, ref attrs, .. } = *self.parts;
        let (name, attrs) = (name.clone(), attrs.clone());
        Self { parts: Arc::new(OpParts { id, kind, name, attrs, inputs, outputs, is_verified: false }) }
    }

    /// The same op under another id.
    pub(crate) fn with_id(mut self, id: OpId) -> Self {
        if id != self.id() {
            // The name stays that of the other id.
            let _ = self.name();
            self.parts_mut().id = id;
        }
        self
    }

    /// True if both are one op in memory, which two equal ops need not be.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.parts, &other.parts)
    }

    /// True if an op has the id and kind of another, and tensors of the same ids.
    pub(crate) fn is_linked_as(&self, other: &Self) -> bool {
        let same = |own: &[LogicalTensor], other: &[LogicalTensor]| {
            own.len() == other.len() && own.iter().zip(other).all(|(own, other)| own.id() == other.id())
        };
        (self.id(), self.kind()) == (other.id(), other.kind())
            && same(self.inputs(), other.inputs())
            && same(self.outputs(), other.outputs())
    }

    /// True if the op is known to fit its row of the schema.
    pub(super) fn is_verified(&self) -> bool {
        self.parts.is_verified
    }

    /// Notes that the op fits its row of the schema, unless a clone would be parted from it for that.
    pub(super) fn note_verified(&mut self) {
        if let Some(parts) = Arc::get_mut(&mut self.parts) {
            parts.is_verified = true;
        }
    }

    /// Everything that makes two ops equal.
    fn said(&self) -> OpSaid<'_> {
        let OpParts { id, kind, name: _, attrs, inputs, outputs, is_verified: _ } = &*self.parts;
        (*id, *kind, self.name(), attrs, inputs, outputs)
    }

    /// The parts, for a change that no clone sees.
    fn change(&mut self) -> &mut OpParts {
        let parts = self.parts_mut();
        parts.is_verified = false;
        parts
    }

    /// The parts, of this op alone.
    // Many ops are made in many ways; copying shared parts is code enough to have it once.
    #[inline(never)]
    fn parts_mut(&mut self) -> &mut OpParts {
        Arc::make_mut(&mut self.parts)
    }

    /// Replaces the description of an input, and returns the old one.
    #[cfg(feature = "json")]
    pub(crate) fn replace_input(&mut self, index: usize, tensor: LogicalTensor) -> LogicalTensor {
        std::mem::replace(&mut self.change().inputs[index], tensor)
    }

    /// Every tensor, inputs first.
    #[cfg(feature = "json")]
    pub(crate) fn tensors_mut(&mut self) -> impl Iterator<Item = &mut LogicalTensor> {
        let OpParts { inputs, outputs, .. } = self.change();
        inputs.iter_mut().chain(outputs)
    }

    /// Sets an attribute unless it is set.
    pub(crate) fn default_attr(&mut self, attr: Attr, value: AttrValue) {
        if self.get_attr(attr).is_none() {
            self.change().attrs.insert(attr, value);
        }
    }

    /// Kind and id, for messages.
    pub(crate) fn op_ref(&self) -> OpRef {
        OpRef { kind: self.parts.kind, id: self.parts.id }
    }

    /// One input, for messages.
    pub(crate) fn input_ref(&self, index: usize) -> PortRef {
        let name = Schema::of(self.parts.kind).input(index).name;
        PortRef { direction: Direction::Input, index, name, tensor: self.parts.inputs[index].id() }
    }

    /// One output, for messages.
    pub(crate) fn output_ref(&self, index: usize) -> PortRef {
        let name = Schema::of(self.parts.kind).output(index).name;
        PortRef { direction: Direction::Output, index, name, tensor: self.parts.outputs[index].id() }
    }
}
