//! The attributes of a node that becomes an op `Wildcard`.

use std::collections::BTreeMap;

use prost::Message;

use super::element_files::ElementFiles;
use super::proto::{Attribute, TensorText};
use super::tensors;
use crate::builder::Builder;
use crate::constant::Constant;
use crate::error::Fault;
use crate::skipped::LayerAttribute;

/// All attributes of a node. Their bytes count as those of constants do, since calls of one function may have
/// the same ones again and again.
pub(super) fn attributes(
    texts: BTreeMap<&str, &Attribute>,
    files: &ElementFiles,
    builder: &mut Builder<'_>,
) -> Result<BTreeMap<String, LayerAttribute>, Fault> {
    let mut attributes = BTreeMap::new();
    for (name, text) in texts {
        builder.charge_stored(text.encoded_len())?;
        attributes.insert(name.to_owned(), attribute(text, files, builder));
    }
    Ok(attributes)
}

fn attribute(text: &Attribute, files: &ElementFiles, builder: &mut Builder<'_>) -> LayerAttribute {
    use LayerAttribute as Is;
    let mut tensors = |texts: &[&TensorText]| -> Option<Vec<Constant>> {
        texts.iter().map(|text| tensors::value(text, files, builder).ok()).collect()
    };
    let encoded = |texts: &[TensorText]| Is::Messages(texts.iter().map(Message::encode_to_vec).collect());
    // The numbers of the kinds are those of the format.
    match (text.kind, &text.tensor) {
        (1, _) => Is::Float(text.float),
        (2, _) => Is::Int(text.int),
        (3, _) => Is::Text(text.string.clone()),
        (4, Some(tensor)) => match tensors(&[tensor]).and_then(|mut all| all.pop()) {
            Some(constant) => Is::Tensor(constant),
            None => encoded(std::slice::from_ref(tensor)),
        },
        (6, _) => Is::Floats(text.floats.clone()),
        (7, _) => Is::Ints(text.ints.clone()),
        (8, _) => Is::Texts(text.strings.iter().map(|bytes| bytes.to_vec()).collect()),
        (9, _) => match tensors(&text.tensors.iter().collect::<Vec<_>>()) {
            Some(constants) => Is::Tensors(constants),
            None => encoded(&text.tensors),
        },
        _ => {
            let graphs = text.graph.iter().chain(&text.graphs).map(Message::encode_to_vec);
            let others = text.sparse.iter().chain(&text.types).map(|bytes| bytes.to_vec());
            Is::Messages(graphs.chain(others).collect())
        }
    }
}
