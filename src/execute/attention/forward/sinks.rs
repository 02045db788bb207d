//! The sinks of a block of queries.
#![allow(unsafe_code, reason = "sinks are read from raw memory that was checked before")]

use super::{QUERIES, QueryBlock};
use crate::execute::attention::sink::{read_float, sink_weight};
use crate::plan::AttentionOperand;

impl QueryBlock<'_> {
    /// Reads the sinks of the present block.
    pub(super) fn read_sinks(&mut self, queries: usize) {
        let Some(data_type) = self.phase.sinks else { return };
        let access = self.phase.access(AttentionOperand::Sinks);
        let (at, step) =
            (self.operands().cursor.at(access), self.phase.nest.program.accesses[access].row_stride);
        for (query, sink) in self.sinks.iter_mut().enumerate().take(queries) {
            // SAFETY: there is a sink for each query, as far apart as the access says.
            *sink = unsafe { read_float(at.wrapping_offset(step * query as isize), data_type) };
        }
    }

    /// Sets the sums to the exponentials of the sinks under the maxima.
    pub(super) fn count_sinks(&mut self) {
        let sinks = self.phase.sinks.map_or([f32::NEG_INFINITY; QUERIES], |_| self.sinks);
        for ((sum, max), sink) in self.state.sum.iter_mut().zip(self.state.max).zip(sinks) {
            *sum = sink_weight(sink, max);
        }
    }
}
