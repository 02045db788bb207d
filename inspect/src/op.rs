//! Ops as they are shown.

use std::fmt::{self, Display, Formatter};

use sterna::{Op, OpId, OpKind};

use crate::attrs;
use crate::subject::Subject;
use crate::words::plain;

/// An op as it is shown.
#[derive(Clone)]
pub(crate) struct ShownOp {
    pub(crate) id: OpId,
    /// Its kind, or the type of the layer of a model that became a Wildcard op.
    pub(crate) kind: String,
    /// A note about a stand-in of a layer.
    pub(crate) skipped: Option<&'static str>,
    /// Its name in the graph.
    pub(crate) name: String,
    /// Its attributes with their values, such as `axis=-1`: those of numbers, and words and truth values that
    /// are not the default.
    pub(crate) attrs: Vec<String>,
}

impl ShownOp {
    pub(crate) fn new(op: &Op, subject: &dyn Subject) -> Self {
        let skipped = subject.skipped_kind(op.id()).filter(|_| op.kind() == OpKind::Wildcard);
        Self {
            id: op.id(),
            kind: skipped.map_or_else(|| op.kind().to_string(), plain),
            skipped: skipped.map(|_| subject.skipped_note()),
            // Readers of graphs give an op without a name its kind and id.
            name: match skipped {
                Some(_) if op.name() == format!("{}_{}", op.kind(), op.id()) => String::new(),
                _ => plain(op.name()),
            },
            attrs: attrs::shown(op),
        }
    }
}

impl Display for ShownOp {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} (op {})", self.kind, self.id)
    }
}
