//! The schema of each op kind: the table of all rows.
//!
//! The rows of oneDNN's kinds are in `op_set.rs`, Sterna's own in `extensions.rs`. `verify.rs` checks an op
//! against its row; `infer.rs` has the shape rules that rows name.

use super::extensions::EXTENSIONS;
use super::op_set::OP_SET;
use super::row::{Port, Schema};
use crate::types::kind::OpKind;

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
    #[must_use]
    pub fn of(kind: OpKind) -> &'static Schema {
        let code = kind.code() as usize;
        &SCHEMAS[if code < FIRST_OWN { code } else { OP_SET.len() + code - FIRST_OWN }]
    }

    /// The row of every kind, by code.
    #[must_use]
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
}
