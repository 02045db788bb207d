//! The documentation of op kinds and attributes in Rust. `tests/graphs/item_docs.rs` writes the macros here
//! from the schema and from the definitions that `docs/ops.md` repeats, so that both say the same; a literal
//! of a `doc` attribute is in no binary.

mod attributes;
mod elements;
mod images;
mod others;
mod tensors;

pub(super) use attributes::attribute_doc;
pub(super) use elements::kind_doc;
pub(super) use images::image_kind_doc;
pub(super) use others::other_kind_doc;
pub(super) use tensors::tensor_kind_doc;
