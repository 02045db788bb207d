//! Streams, on which compiled partitions run.

use super::engine::Engine;

/// A sequence of executions on an engine. On a CPU it is synchronous: a call returns when its result is
/// written.
///
/// Any number of threads may execute on one stream at once; their executions run independently.
///
/// ```
/// use sterna::{Engine, Stream};
/// let engine = Engine::new();
/// let stream = Stream::new(&engine);
/// assert!(stream.engine().is_same(&engine));
/// ```
#[derive(Debug, Clone)]
pub struct Stream {
    engine: Engine,
}

impl Stream {
    /// A stream of an engine.
    #[must_use]
    pub fn new(engine: &Engine) -> Self {
        Self { engine: engine.clone() }
    }

    /// The engine.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.engine
    }
}
