//! The vocabulary of the schema table: what a row can say about an op kind, and constructors of rows.

use crate::types::dtype::DataType;
use crate::types::kind::{Attr, OpKind};

use DataType as D;

/// The schema of one op kind.
///
/// ```
/// use sterna::{Attr, AttrType, DataType, OpKind, Schema};
/// let select = Schema::of(OpKind::Select);
/// assert!(select.input_count.allows(3) && !select.input_count.allows(2));
/// assert!(select.types.contains(&("T1", &[DataType::Boolean])));
/// let axis = select.attributes.iter().find(|row| row.attr == Attr::Axis);
/// assert!(axis.is_some_and(|row| row.value_type == AttrType::S64 && !row.required));
/// ```
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Schema {
    /// The kind.
    pub kind: OpKind,
    /// The inputs, by index; for a variadic kind, the last one describes all that follow.
    pub inputs: &'static [Port],
    /// The outputs, by index; for a variadic kind, the last one describes all that follow.
    pub outputs: &'static [Port],
    /// The allowed numbers of inputs.
    pub input_count: Count,
    /// The allowed numbers of outputs.
    pub output_count: Count,
    /// The data types of each type variable; ports of one variable share one type. A variable that is not
    /// listed takes every type, and may differ from port to port.
    pub types: &'static [(&'static str, &'static [DataType])],
    /// The attributes; any other is an error.
    pub attributes: &'static [AttrRow],
    /// How output shapes follow from input shapes.
    pub shape_rule: ShapeRule,
    /// Conditions that the columns above do not express.
    pub checks: &'static [Check],
}

/// One input or output of an op kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Port {
    /// Its name in the op specification.
    pub name: &'static str,
    /// Its type variable.
    pub type_variable: &'static str,
    /// True if the op uses the shape of the tensor alone, and never its data.
    pub shape_only: bool,
}

/// How many inputs or outputs an op may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Count {
    /// One of these.
    OneOf(&'static [usize]),
    /// At least the first; at most the second, if there is one.
    Between(usize, Option<usize>),
}

impl Count {
    /// True if this number is allowed.
    #[must_use]
    pub fn allows(self, count: usize) -> bool {
        match self {
            Self::OneOf(counts) => counts.contains(&count),
            Self::Between(least, most) => count >= least && most.is_none_or(|most| count <= most),
        }
    }
}

impl std::fmt::Display for Count {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::OneOf([one]) => write!(f, "{one}"),
            Self::OneOf(counts) => {
                for (i, count) in counts.iter().enumerate() {
                    let before = if i == 0 { "" } else { " or " };
                    write!(f, "{before}{count}")?;
                }
                Ok(())
            }
            Self::Between(least, Some(most)) => write!(f, "{least} to {most}"),
            Self::Between(least, None) => write!(f, "{least} or more"),
        }
    }
}

/// One attribute of an op kind.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AttrRow {
    /// The attribute.
    pub attr: Attr,
    /// The type of its value.
    pub value_type: AttrType,
    /// True if it must be set.
    pub required: bool,
    /// Its value if it is not set.
    pub default: Option<AttrDefault>,
    /// The allowed words; empty if any value is allowed.
    pub allowed: &'static [&'static str],
}

/// The type of an attribute's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttrType {
    /// A boolean.
    Bool,
    /// An integer.
    S64,
    /// A floating-point number.
    F32,
    /// A word.
    String,
    /// A list of integers.
    S64s,
    /// A list of floating-point numbers.
    F32s,
}

impl AttrType {
    /// The name, as JSON writes it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::S64 => "s64",
            Self::F32 => "f32",
            Self::String => "string",
            Self::S64s => "s64[]",
            Self::F32s => "f32[]",
        }
    }
}

/// The value of an optional attribute that is not set.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum AttrDefault {
    /// A boolean.
    Bool(bool),
    /// An integer.
    S64(i64),
    /// A floating-point number.
    F32(f32),
    /// A word.
    String(&'static str),
    /// A list of integers.
    S64s(&'static [i64]),
}

impl AttrDefault {
    pub(super) const fn value_type(&self) -> AttrType {
        match self {
            Self::Bool(_) => AttrType::Bool,
            Self::S64(_) => AttrType::S64,
            Self::F32(_) => AttrType::F32,
            Self::String(_) => AttrType::String,
            Self::S64s(_) => AttrType::S64s,
        }
    }
}

/// How the shapes of an op's outputs follow from those of its inputs, named after the families of the op set.
/// Rules without a description are not implemented: the shapes of their outputs are those that a graph gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the names are those of the op set, and all that can be said here")]
pub enum ShapeRule {
    /// The output has the shape of the first input.
    Identity,
    /// The inputs broadcast to each other: aligned on the right, each dim is equal or 1. Under
    /// `auto_broadcast` = `none` both have one shape.
    ElemwiseArithmetic,
    /// The first input with the number of windows in the place of each spatial dim: as many as there are
    /// `strides` in what the padded dim has beyond `dilations` · (`kernel` − 1) + 1 elements, rounded as
    /// `rounding_type` says, and one more.
    Pool,
    /// The shape of `src`, whose windows are those of `diff_dst`. Without `src` it is the attribute
    /// `src_shape`, or that of the output.
    PoolBwd,
    /// The first output has the shape of the first two inputs. All other tensors hold one number for each
    /// channel.
    BnBwd,
    /// The first output has the shape of the first input. All other tensors hold one number for each channel.
    BnFwdTrain,
    /// The output has the shape of the first input. The bias holds one number for each of its channels.
    BiasAdd,
    /// The output holds one number for each channel of the input.
    BiasBackprop,
    /// The inputs have one shape but for the dim `axis`, which is their sum in the output.
    Concat,
    /// The batch of `src`, the output channels of the weights, and in each spatial dim the number of windows,
    /// of which there is at least one. The input channels of the weights are those of `src`, divided by
    /// `groups`, which divides the output channels too. `bias` holds one number for each output channel.
    Conv,
    /// The attribute `dst_shape`, which an input can stand for; else the shape that the graph gives, else the
    /// one that follows from the windows. A convolution of that shape gives the shape of `diff_dst`.
    ConvBpropData,
    /// The attribute `weights_shape`, which an input can stand for; else the shape that the graph gives. A
    /// convolution of `src` by such weights gives the shape of `diff_dst`.
    ConvBpropFilters,
    /// The batch of `src`, the output channels of the weights times `groups`, and in each spatial dim what
    /// the windows cover, without the padding and with `output_padding`. `bias` holds one number for each
    /// channel of the output.
    Convtranspose,
    /// The batch of `diff_dst`, the input channels of the weights, and in each spatial dim the number of
    /// windows. The output channels of the weights are those of `diff_dst`, divided by `groups`.
    ConvtransposeBpropData,
    /// The attribute `weights_shape`, which an input can stand for; else the shape that the graph gives. A
    /// convolution of `diff_dst` by such weights gives the shape of `src`.
    ConvtransposeBpropFilters,
    Dummy,
    /// The shape of the first input, with the attribute `sizes` as spatial dims, or with the product of each
    /// spatial dim and its number in `scales`, rounded towards 0.
    Interpolate,
    /// The first output has the shape of the first input, the statistics its dims before `begin_norm_axis`.
    /// `gamma` and `beta` broadcast onto the dims from there on.
    Norm,
    /// The gradient of the first input has its shape. The gradients of `gamma` and `beta` have the shape of
    /// `gamma`.
    NormBprop,
    /// `[.., m, k]` and `[.., k, n]`, transposed or not, give `[.., m, n]`. Leading dims broadcast. An input
    /// of rank 1 is a row on the left and a column on the right, and its dim is missing in the output. The
    /// bias broadcasts onto the output.
    Matmul,
    /// Each gradient has the shape of the input whose gradient it is. A slope of rank 1 stands along the dim
    /// of channels, of a source of rank 1 along its only dim, whatever `data_format` says.
    PreluBwd,
    /// The output has the shape of the first input without the dims in `axes`; with `keep_dims` each of them
    /// is 1.
    Reduce,
    /// The first output has the shape of the input. The statistics have 1 along `axis`.
    Softmax,
    /// The attribute `shape`, in which −1 stands for what is left, and 0 under `special_zero` for the dim of
    /// the input.
    StaticReshape,
    /// The dims of the input in the order of the attribute `order`.
    StaticTranspose,
    Unsupported,
    /// Under `numpy`, `then` and `else` broadcast to each other, and `cond` onto their shape. Under `none`
    /// all three have one shape. Under `pdpd` the output has the shape of `then`, and the others broadcast
    /// onto it, from the dim `axis` on. Under `multidirectional` all three broadcast to each other.
    Select,
    /// The first output has the shape of the first input. The statistics have a number for each group of each
    /// element of the first dim. `gamma` and `beta` hold one number for each channel.
    Groupnorm,
    /// The output has the shape of the first input. All other inputs hold one number for each channel.
    BatchNorm,
    /// The shape of the first input. The second one has the shape that `Interpolate` gives the first one.
    InterpolateBackward,
    /// The outputs have the shape of the first input. The seed, the offset and the probability are one number
    /// each.
    Dropout,
    /// All inputs have one shape, which is that of the outputs.
    SameShapes,
    /// Along each of `axes`, the elements of a range.
    Slice,
    /// The output has the shape of the input, and `axis` is one of its dims.
    AlongAxis,
    /// The dims of the first input, with the dims of `indices` from `batch_dims` on in place of the dim
    /// `axis`. The first `batch_dims` dims of both are equal, and `axis` is none of them.
    Gather,
    /// The shape of `indices`, each dim of which but `axis` is at most that of the first input.
    GatherElements,
    /// The dims of `indices` but the last, then those of the first input behind the dims that an index names:
    /// as many as the last dim of `indices` has elements, behind `batch_dims` dims that both share.
    GatherNd,
    /// The attribute `src_shape`. The first input has the shape that `Gather` gives a source
    /// of that shape.
    GatherBackward,
    /// The shape of the first input. `updates` has that of `indices`, each dim of which but `axis` is at most
    /// that of the first input.
    ScatterElements,
    /// The shape of the first input. `updates` has the shape that `GatherNd` gives.
    ScatterNd,
    /// Both outputs have the shape of the input, with `k` along `axis`, which is at most the dim.
    TopK,
    /// The shape of the input without the dim `axis`, which has an element; with `keep_dims` it is 1.
    PlaceAlongAxis,
    /// The first input has dims [pages, heads, rows of a page, elements], `block_table` [sequences, pages of
    /// each], `lengths` `[sequences]`; the output has [sequences, heads, rows of the pages of each,
    /// elements].
    PagedLoad,
    /// The shape of the first input, of dims [pages, heads, rows of a page, elements]. `rows` has dims
    /// [tokens, heads, elements], `slots` `[tokens]`.
    CacheStore,
    /// The first input has the shape of the output, and the slope broadcasts one way onto it. A slope of rank
    /// 1 stands along the last dim if `per_channel_broadcast` is false or the first input has rank 1,
    /// whatever `data_format` says, else along that of channels; it may be one number for all.
    Prelu,
    /// The attribute `shape`.
    Fill,
    /// Both inputs and the output have one shape, and `axis` is one of its dims.
    SoftmaxBackward,
    /// The shape of the first input. The scales and zero points divide each of its dims into groups. Scales
    /// per channel that are an attribute can be those of all groups of the weights of a transposed
    /// convolution, which have along `axis` the output channels of one: of `IOX`, and of `XOI` with one
    /// output channel in a group. They can also be those of the last of three or more dims if `axis` names a
    /// dim of one element, such as a spatial one of `XIO`.
    Quantization,
}

/// A condition on an op that numbers of ports, types and attributes do not express.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Check {
    /// `pads_begin` and `pads_end` have no negative value.
    NonNegativePads,
    /// The statistics and affine inputs may be bf16 only if `src` is bf16.
    NormTypes,
    /// `per_tensor`: one scale. `zps`, if given, has the length of `scales`; Dequantize from an f8 type takes
    /// no `zps`.
    QuantParams,
    /// `per_tensor`: one scale, one zero point. `per_channel`: one zero point or as many as scales.
    /// `per_group`: scales and zero points of rank 2 or more and of equal shape. Unknown dims are not
    /// checked.
    DynamicQuantParams,
    /// Exactly one of the attributes `sizes` and `scales` is set.
    SizesOrScales,
    /// Three outputs if `keep_stats` is true.
    KeepStatsOutputs,
    /// Three outputs if `use_affine` is true.
    UseAffineOutputs,
    /// The output has the type of the first input, or f32.
    OutputTypeOrF32,
    /// The output has the type of the input, unless one of the two is f32.
    OneF32OrSameType,
    /// `dilations` has as many entries as `kernel`; the default of twelve ones fits any kernel.
    DilationsOfKernel,
    /// `axes` as an attribute or as the second input, not both.
    AxesOnce,
    /// The two types differ, and one of them is f32.
    CastTypes,
    /// `axis` needs `auto_broadcast` = `pdpd`, and is at least −1.
    AxisNeedsPdpd,
    /// `ends`, and `steps` and `axes` if given, have as many entries as `starts`, and no step is 0.
    SliceRanges,
    /// `shape` is a possible shape: at most twelve dims, none negative.
    ShapeOfTensor,
    /// `src_shape` is a possible shape, at most twelve dims, none negative.
    SrcShapeOfTensor,
    /// A `reduction` other than `none` is of numbers: no truth values and no type of 8 bits with a fraction.
    ReductionTypes,
}

/// The parts of a row beside its ports.
impl Schema {
    pub(super) const fn types(self, types: &'static [(&'static str, &'static [DataType])]) -> Self {
        Self { types, ..self }
    }

    pub(super) const fn attrs(self, attributes: &'static [AttrRow]) -> Self {
        Self { attributes, ..self }
    }

    pub(super) const fn input_count(self, input_count: Count) -> Self {
        Self { input_count, ..self }
    }

    pub(super) const fn output_count(self, output_count: Count) -> Self {
        Self { output_count, ..self }
    }

    pub(super) const fn shape(self, shape_rule: ShapeRule) -> Self {
        Self { shape_rule, ..self }
    }

    pub(super) const fn checks(self, checks: &'static [Check]) -> Self {
        Self { checks, ..self }
    }
}

/// A row with the named inputs and outputs, one type variable `T` of [`FLOATS`], no attributes, and the shape
/// of the first input.
pub(super) const fn op(kind: OpKind, inputs: &'static [Port], outputs: &'static [Port]) -> Schema {
    const fn all_of(ports: &[Port]) -> Count {
        match ports.len() {
            0 => Count::OneOf(&[0]),
            1 => Count::OneOf(&[1]),
            2 => Count::OneOf(&[2]),
            3 => Count::OneOf(&[3]),
            4 => Count::OneOf(&[4]),
            _ => Count::OneOf(&[5]),
        }
    }
    Schema {
        kind,
        inputs,
        outputs,
        input_count: all_of(inputs),
        output_count: all_of(outputs),
        types: &[("T", FLOATS)],
        attributes: &[],
        shape_rule: ShapeRule::Identity,
        checks: &[],
    }
}

/// A row of a comparison of two numbers of one type.
pub(super) const fn comparison(kind: OpKind) -> Schema {
    const SRCS: &[Port] = &[p("src_0", "T1"), p("src_1", "T1")];
    const DST: &[Port] = &[p("dst", "T2")];
    op(kind, SRCS, DST)
        .types(&[("T1", DataType::NUMERIC), ("T2", BOOLEAN)])
        .attrs(&[AUTO_BROADCAST])
        .shape(ShapeRule::ElemwiseArithmetic)
}

/// A port whose data the op uses.
pub(super) const fn p(name: &'static str, type_variable: &'static str) -> Port {
    Port { name, type_variable, shape_only: false }
}

/// A shape-only port.
pub(super) const fn shape_of(name: &'static str, type_variable: &'static str) -> Port {
    Port { name, type_variable, shape_only: true }
}

pub(super) const fn optional(attr: Attr, value_type: AttrType) -> AttrRow {
    AttrRow { attr, value_type, required: false, default: None, allowed: &[] }
}

pub(super) const fn required(attr: Attr, value_type: AttrType) -> AttrRow {
    AttrRow { required: true, ..optional(attr, value_type) }
}

pub(super) const fn default(attr: Attr, value: AttrDefault) -> AttrRow {
    AttrRow { default: Some(value), ..optional(attr, value.value_type()) }
}

pub(super) const fn word(attr: Attr, value: &'static str, allowed: &'static [&'static str]) -> AttrRow {
    AttrRow { allowed, ..default(attr, AttrDefault::String(value)) }
}

pub(super) const fn required_word(attr: Attr, allowed: &'static [&'static str]) -> AttrRow {
    AttrRow { allowed, ..required(attr, AttrType::String) }
}

pub(super) const FLOATS: &[DataType] = &[D::F32, D::Bf16, D::F16];
pub(super) const WITH_F64: &[DataType] = &[D::F32, D::Bf16, D::F16, D::F64];
pub(super) const WITH_F64_INTEGERS: &[DataType] = &[D::F32, D::Bf16, D::F16, D::F64, D::S32, D::S64];
pub(super) const BOOLEAN: &[DataType] = &[D::Boolean];
pub(super) const AUTO_BROADCAST: AttrRow = word(Attr::AutoBroadcast, "numpy", &["none", "numpy"]);
