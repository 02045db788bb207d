//! Draws graphs, their partitions and plans: what `sterna inspect` prints, and what notebooks of Python show.
//!
//! | form | function |
//! |---|---|
//! | text for a terminal | [`text`](fn@text) |
//! | the language of Graphviz | [`dot`](fn@dot) |
//! | a picture | [`svg`] |
//! | a page that shows a plan for each click on the picture | [`page`](fn@page) |
//! | the memory of a run | [`Arena::svg`] |
//! | the output of a cell of a notebook | [`notebook`](fn@notebook) |
//!
//! A [`Subject`] is a graph with the names and values that belong to it; a [`Model`](sterna::Model) is one.
//! An [`Inspection`] is what the forms show: it compiles the partitions of the graph, and runs none.
//!
//! The crate serves the command line and the Python package; any release may change it. Tables, names in
//! little room, and ports as cells are what both also print elsewhere.
//!
//! ```
//! use sterna::{DataType, Engine, Graph, LogicalTensor, Model, Op, Policy};
//! use sterna_inspect::{Arena, Inspection, svg, text};
//!
//! let tensor = |id, of| LogicalTensor::strided(id, of, &[2, 3]);
//! let mut graph = Graph::new();
//! let (cond, then) = (tensor(0, DataType::Boolean)?, tensor(1, DataType::F32)?);
//! graph.add_op(Op::select(0, cond, then, tensor(2, DataType::F32)?, tensor(3, DataType::F32)?))?;
//! let model = Model::new(graph)?;
//!
//! let inspection = Inspection::new("a choice", &model, Policy::Fusion, &Engine::new())?;
//! let arena = Arena::of(&model, Policy::Fusion, &inspection);
//! assert!(text(&inspection, &arena).contains("partition 0: 1 op"));
//! assert!(svg(&inspection)?.starts_with("<?xml"));
//! # Ok::<(), anyhow::Error>(())
//! ```
#![deny(unsafe_code)]

mod arena;
mod attrs;
mod digest;
mod dot;
mod layers;
mod layout;
mod mask;
mod model;
mod notebook;
mod op;
mod page;
mod picture;
mod ports;
mod short;
mod subject;
mod table;
mod text;
mod tiles;
mod units;
mod wiring;
mod words;

pub use arena::Arena;
pub use dot::dot;
pub use model::{Inspection, StepShare};
pub use notebook::notebook;
pub use page::page;
pub use picture::svg;
pub use ports::{PortReport, TensorNames, aligned};
pub use short::{Short, cut};
pub use subject::Subject;
pub use table::{Cell, Table, painted};
pub use text::text;
pub use tiles::TilesReport;
pub use units::{Time, size};
pub use words::{harmless, kinds_of, of_partition};
