//! The optional parts of an op that a builder adds.

use crate::graph::op::AttrValue;
use crate::types::dtype::DataType;
use crate::types::kind::{Attr, AutoBroadcast};

/// The attributes of an op, its name, and the type of its result where that does not follow. An attribute
/// that is not set has the default of the [schema](crate::Schema); one that the kind does not have is an
/// error of the op.
///
/// ```
/// use sterna::{DataType, GraphBuilder, OpOptions};
/// let g = GraphBuilder::new();
/// let x = g.input("x", DataType::Bf16, &[Some(4), Some(8)])?;
/// let options = OpOptions::new().transpose_b(true).data_type(DataType::F32).named("scores");
/// let y = g.matmul_with(x, x, &[], options)?;
/// assert_eq!((y.name(), y.data_type()), ("scores".into(), DataType::F32));
/// # Ok::<(), sterna::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OpOptions {
    pub(super) attrs: Vec<(Attr, AttrValue)>,
    pub(super) name: String,
    pub(super) data_type: Option<DataType>,
}

/// A function of the numbers of operands and of outputs of an op.
type FlagOfCounts = fn(usize, usize) -> bool;

/// Attributes that say how many operands or outputs an op has: they follow from those unless they are set.
pub(super) const OUTPUTS_OF_FLAGS: &[(Attr, FlagOfCounts)] = &[
    (Attr::KeepStats, |_, outputs| outputs == 3),
    (Attr::UseAffine, |operands, outputs| if operands > 3 { outputs == 3 } else { operands == 3 }),
];

/// One setter for each attribute.
macro_rules! setters {
    ($( $attr:ident $name:ident: $Type:ty, )*) => {
        impl OpOptions {
            $(
                #[doc = concat!("Sets `", stringify!($name), "`.")]
                #[must_use]
                pub fn $name(self, $name: $Type) -> Self {
                    self.attr(Attr::$attr, $name)
                }
            )*
        }

        /// The attributes that have a setter.
        #[cfg(test)]
        pub(super) const SET: &[(Attr, &str)] = &[$( (Attr::$attr, stringify!($Type)), )*];
    };
}

setters! {
    Alpha alpha: f32,
    Beta beta: f32,
    Epsilon epsilon: f32,
    Max max: f32,
    Min min: f32,
    Momentum momentum: f32,
    Scales scales: &[f32],
    Axis axis: i64,
    BeginNormAxis begin_norm_axis: i64,
    Groups groups: i64,
    Axes axes: &[i64],
    Dilations dilations: &[i64],
    DstShape dst_shape: &[i64],
    Kernel kernel: &[i64],
    Order order: &[i64],
    OutputPadding output_padding: &[i64],
    PadsBegin pads_begin: &[i64],
    PadsEnd pads_end: &[i64],
    Shape shape: &[i64],
    Sizes sizes: &[i64],
    SrcShape src_shape: &[i64],
    Strides strides: &[i64],
    WeightsShape weights_shape: &[i64],
    Zps zps: &[i64],
    GroupShape group_shape: &[i64],
    ExcludePad exclude_pad: bool,
    KeepDims keep_dims: bool,
    KeepStats keep_stats: bool,
    PerChannelBroadcast per_channel_broadcast: bool,
    SpecialZero special_zero: bool,
    TransposeA transpose_a: bool,
    TransposeB transpose_b: bool,
    UseAffine use_affine: bool,
    UseDst use_dst: bool,
    AutoBroadcast auto_broadcast: AutoBroadcast,
    AutoPad auto_pad: &str,
    CoordinateTransformationMode coordinate_transformation_mode: &str,
    DataFormat data_format: &str,
    Mode mode: &str,
    Qtype qtype: &str,
    RoundingType rounding_type: &str,
    WeightsFormat weights_format: &str,
    AccumulationMode accumulation_mode: &str,
    Value value: f32,
    Starts starts: &[i64],
    Ends ends: &[i64],
    Steps steps: &[i64],
    Exclusive exclusive: bool,
    Reverse reverse: bool,
    BatchDims batch_dims: i64,
    ClampIndices clamp_indices: bool,
    Reduction reduction: &str,
    K k: i64,
    Largest largest: bool,
    SelectLastIndex select_last_index: bool,
}

impl OpOptions {
    /// Nothing set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets an attribute; a later value replaces an earlier one.
    #[must_use]
    pub fn attr(mut self, attr: Attr, value: impl Into<AttrValue>) -> Self {
        self.attrs.push((attr, value.into()));
        self
    }

    /// These options, with what others set in their place.
    pub(super) fn and(self, mut other: Self) -> Self {
        let mut attrs = self.attrs;
        attrs.append(&mut other.attrs);
        let data_type = other.data_type.or(self.data_type);
        Self { attrs, data_type, ..other }
    }

    /// Sets the name of the op and of its result.
    #[must_use]
    pub fn named(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }

    /// Sets the type of results whose type does not follow from the operands.
    #[must_use]
    pub fn data_type(self, data_type: DataType) -> Self {
        Self { data_type: Some(data_type), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::SET;
    use crate::graph::row::Schema;
    use crate::types::kind::Attr;

    #[test]
    fn every_attribute_has_a_setter_of_its_type() {
        let mut faults = Vec::new();
        for row in Schema::all().iter().flat_map(|schema| schema.attributes) {
            let expected = match row.value_type.name() {
                "s64" => "i64",
                "f32" => "f32",
                "bool" => "bool",
                "s64[]" => "&[i64]",
                "f32[]" => "&[f32]",
                _ if row.attr == Attr::AutoBroadcast => "AutoBroadcast",
                _ => "&str",
            };
            let set = SET.iter().find(|(attr, _)| *attr == row.attr).map(|(_, given)| *given);
            if set != Some(expected) {
                faults.push(format!("{}: {set:?}, not {expected}", row.attr));
            }
        }
        assert!(faults.is_empty(), "{faults:#?}");
        assert_eq!(SET.len(), Attr::ALL.len());
    }
}
