//! The C interface of Sterna.
//!
//! One module for each noun of the interface; each function is `sterna_<noun>_<verb>` and stands in
//! `include/sterna.h`, which is generated from this crate, documentation and all. [`ffi`] holds what all
//! functions share: null checks, the panic barrier, status codes and the message of the last error.
//!
//! # How ownership reads in a signature
//!
//! | Rust | C | meaning |
//! |---|---|---|
//! | `Option<&T>` | `const T *` | lent for the call; null is refused |
//! | `Option<&mut T>` | `T *` | lent for the call, to it alone; null is refused |
//! | `Option<&mut MaybeUninit<Box<T>>>` | `T **` | receives a new object, which the caller destroys |
//! | `Option<&mut MaybeUninit<T>>` | `T *` | receives a value |
//! | `Option<Box<T>>` | `T *` | given back, to be destroyed; null is fine |
//!
//! # A second set of names
//!
//! The functions have the arguments, struct layouts and numbers of oneDNN's graph interface, so that a
//! library that stands in for `libdnnl.so.3` is a crate of one-line functions that call these. It depends on
//! this crate as an ordinary Rust library. Cargo would then export the `sterna_*` names too; the build script
//! of the stand-in hides the symbols of every static library, under GNU ld and LLD alike:
//!
//! ```text
//! println!("cargo::rustc-cdylib-link-arg=-Wl,--exclude-libs,ALL");
//! ```
//!
//! The types here have public accessors named `core` for the functions that such a library does not forward.

// The documentation of each function, which the header repeats, says what its pointers must be.
#![allow(
    clippy::missing_safety_doc,
    reason = "what C callers must keep to is said in prose, for them to read"
)]

pub mod accuracy;
pub mod allocator;
pub mod attention;
#[cfg(feature = "session")]
pub mod callback;
pub mod compiled_partition;
pub mod constant_tensor_cache;
pub mod cpu_isa;
#[cfg(feature = "session")]
pub mod custom_node;
#[cfg(feature = "session")]
pub mod custom_op;
pub mod data_type;
pub mod dump;
pub mod engine;
pub mod fallback;
pub mod ffi;
pub mod fpmath_mode;
pub mod graph;
#[cfg(feature = "session")]
pub mod graph_builder;
pub mod handle;
pub mod last_error;
pub mod level;
pub mod logical_tensor;
#[cfg(feature = "session")]
pub mod model;
#[cfg(feature = "session")]
pub mod named_view;
pub mod op;
mod options;
pub mod partition;
pub mod phase_kind;
pub mod profiler;
pub mod select;
#[cfg(feature = "session")]
pub mod session;
#[cfg(feature = "session")]
pub mod session_state;
#[cfg(feature = "session")]
pub mod state_link;
pub mod status;
pub mod stream;
pub mod string;
pub mod tensor;
pub mod verbose;
pub mod version;
pub mod view;
