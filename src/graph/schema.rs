//! The schema of each op kind: one row for each kind, and constructors of rows.
//!
//! The rows of oneDNN's kinds are in `op_set.rs`, Sterna's own in `extensions.rs`. `verify.rs` checks an op
//! against its row; `infer.rs` has the shape rules that rows name.

use super::extensions::EXTENSIONS;
use super::op_set::OP_SET;
use super::row::{AttrDefault, AttrRow, AttrType, Check, Count, Port, Schema, ShapeRule};
use crate::types::dtype::DataType;
use crate::types::kind::{Attr, OpKind};

use DataType as D;

/// The code of the first kind that is not in the op set.
const FIRST_OWN: usize = OpKind::Equal.code() as usize;

/// All rows, by code.
static SCHEMAS: [Schema; OpKind::ALL.len()] = {
    let mut rows = [OP_SET[0]; OpKind::ALL.len()];
    let mut row = 0;
    while row < rows.len() {
        rows[row] = if row < OP_SET.len() { OP_SET[row] } else { EXTENSIONS[row - OP_SET.len()] };
        row += 1;
    }
    rows
};

impl Schema {
    /// The row of a kind.
    ///
    /// ```
    /// use sterna::{OpKind, Schema};
    /// assert_eq!(Schema::of(OpKind::Select).inputs[1].name, "then");
    /// ```
    pub fn of(kind: OpKind) -> &'static Schema {
        let code = kind.code() as usize;
        &SCHEMAS[if code < FIRST_OWN { code } else { OP_SET.len() + code - FIRST_OWN }]
    }

    /// The row of every kind, by code.
    pub fn all() -> &'static [Schema] {
        &SCHEMAS
    }

    /// The port of an input index.
    pub(crate) fn input(&self, index: usize) -> Port {
        self.inputs[index.min(self.inputs.len() - 1)]
    }

    /// The port of an output index.
    pub(crate) fn output(&self, index: usize) -> Port {
        self.outputs[index.min(self.outputs.len() - 1)]
    }

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
pub(super) const FLOATS_INTEGERS: &[DataType] = &[D::F32, D::Bf16, D::F16, D::S32, D::S64];
pub(super) const BOOLEAN: &[DataType] = &[D::Boolean];
pub(super) const AUTO_BROADCAST: AttrRow = word(Attr::AutoBroadcast, "numpy", &["none", "numpy"]);
