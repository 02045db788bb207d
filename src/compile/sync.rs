//! The locks of `once_cache`, which a model checker replaces.

pub(super) use std::sync::OnceLock;

pub(super) use parking_lot::Mutex;
