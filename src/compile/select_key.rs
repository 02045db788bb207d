//! The cache of one-call selects, and its key.

use smallvec::SmallVec;

use crate::execute::compiled::CompiledPartition;
use crate::execute::raw_view::RawView;
use crate::execute::stream::Stream;
use crate::types::kind::AutoBroadcast;

/// A compiled select, ready to run.
pub(super) struct ReadySelect {
    pub(super) compiled: CompiledPartition,
    pub(super) stream: Stream,
}

/// Everything on which a compiled select depends: options, types, dims and strides.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct SelectKey(SmallVec<[i64; 40]>);

impl SelectKey {
    pub(super) fn new(
        mode: AutoBroadcast,
        axis: Option<i64>,
        inputs: [&RawView; 3],
        dst: Option<&RawView>,
    ) -> Self {
        let mut words = SmallVec::new();
        // No axis is another number than every axis that an op takes.
        words.extend([i64::from(mode.code()), axis.unwrap_or(i64::MIN)]);
        for view in inputs.into_iter().chain(dst) {
            let rank = view.dims.as_ref().map_or(-1, |dims| dims.len() as i64);
            let strides = view.strides.as_ref().map_or(-1, |strides| strides.len() as i64);
            words.push(i64::from(view.data_type.code()) << 32 | (rank & 0xffff) << 16 | (strides & 0xffff));
            // The lists are so short that a call to copy memory takes longer than copying one by one.
            words.extend(view.dims.iter().flatten().copied());
            words.extend(view.strides.iter().flatten().copied());
        }
        Self(words)
    }
}
