//! The inputs and outputs of a model as its file describes them.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use sterna::DataType;

/// An input or output of a model, as the file describes it.
///
/// ```
/// use sterna_import::{Dim, ModelFile, Options};
/// let text = r#"<layer type="Exp"><input><port id="0"><dim>-1</dim><dim>4</dim></port></input>
///               <output><port id="1"/></output></layer>"#;
/// let model = ModelFile::openvino(text, Vec::new(), &Options::default())?;
/// let [data] = model.inputs() else { panic!("one input") };
/// assert_eq!(data.names, ["data", "0"]);
/// assert_eq!(data.dims, Some(vec![Dim::Open, Dim::Known(4)]));
/// # Ok::<(), sterna_import::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Signature {
    /// Its names, its own first.
    pub names: Vec<String>,
    /// The type of its elements; `None` if the file says none, or one that no tensor here has.
    pub data_type: Option<DataType>,
    /// Its dims; `None` if the file does not say how many there are.
    pub dims: Option<Vec<Dim>>,
}

/// Outputs that `key` tells apart, by their own names at least, each once with all its names: files name one
/// tensor as several outputs.
pub(crate) fn once<T, K: Ord>(
    outputs: impl IntoIterator<Item = T>,
    key: impl Fn(&T) -> K,
    names: impl Fn(&mut T) -> &mut Vec<String>,
) -> Vec<T> {
    let (mut places, mut kept) = (BTreeMap::new(), Vec::<T>::new());
    for mut output in outputs {
        match places.entry(key(&output)) {
            Entry::Vacant(place) => {
                place.insert(kept.len());
                kept.push(output);
            }
            Entry::Occupied(place) => {
                let more = std::mem::take(names(&mut output));
                names(&mut kept[*place.get()]).extend(more.into_iter().skip(1));
            }
        }
    }
    kept
}

/// The outputs of a file by their own names.
pub(crate) fn named_once(outputs: impl Iterator<Item = Signature>) -> Vec<Signature> {
    once(outputs, |output| output.names.first().cloned(), |output| &mut output.names)
}

/// A dim as a file describes it.
///
/// ```
/// use sterna_import::Dim;
/// let batch = Dim::Named("batch".into());
/// assert_eq!((batch.length(), Dim::Known(3).length()), (None, Some(3)));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Dim {
    /// A length.
    Known(i64),
    /// An open dim with a name: dims of one name have one length, which
    /// [`Options::dims`](crate::Options::dims) gives.
    Named(String),
    /// An open dim without a name.
    Open,
}

impl Dim {
    /// The length, if the file says it.
    #[must_use]
    pub fn length(&self) -> Option<i64> {
        match self {
            Self::Known(length) => Some(*length),
            Self::Named(_) | Self::Open => None,
        }
    }
}
