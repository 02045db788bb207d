//! The stream on which compiled partitions run.

use super::engine::Engine;

/// An order of executions on an engine. On a CPU it is synchronous: a call returns when its result is written.
///
/// Any number of threads may execute on one stream at once; each runs its execution on its own.
///
/// ```
/// use sterna::{Engine, Stream};
/// let engine = Engine::new();
/// let stream = Stream::new(&engine);
/// assert!(stream.engine().is_same(&engine));
/// stream.wait(); // returns at once
/// ```
#[derive(Debug, Clone)]
pub struct Stream {
    engine: Engine,
}

impl Stream {
    /// A stream of an engine.
    pub fn new(engine: &Engine) -> Self {
        Self { engine: engine.clone() }
    }

    /// The engine.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Returns when everything executed so far is done, which is at once.
    pub fn wait(&self) {}
}
