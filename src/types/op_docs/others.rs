//! The documentation of kinds that nothing here computes.
//! `STERNA_REWRITE=1 cargo test --test graphs item_docs` writes it anew.

#[rustfmt::skip]
macro_rules! other_kind_doc {
    (End) => {r#"
Nothing here computes it: graphs with it are described, checked and cut around it.

- Inputs: `src` T; output: none.
- Types: any.
- Shapes: The shapes of outputs are those that the graph gives.
"#};
    (Wildcard) => {r#"
Nothing here computes it: graphs with it are described, checked and cut around it.

- Inputs: `src` any (0 or more of them); output: `dst` any (0 or more of them).
- Types: any.
- Shapes: The shapes of outputs are those that the graph gives.
"#};
}

pub(in crate::types) use other_kind_doc;
