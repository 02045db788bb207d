//! The words for a partition in texts: its ops, and the names of its ports.

use super::id::OpId;
use super::kind::OpKind;

/// The ops of a partition, and the names of its ports.
#[derive(Debug, Default)]
pub(crate) struct PartitionLabels {
    pub(crate) ops: Vec<(OpKind, OpId)>,
    /// The names of the ops.
    pub(crate) names: Vec<String>,
    /// Inputs first. An input has the name of the first port of an op that takes it, an output the name of
    /// the port that gives it.
    pub(crate) ports: Vec<&'static str>,
}
