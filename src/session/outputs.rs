//! The results of a run, by name.

use std::ops::Index;
use std::sync::Arc;

use crate::execute::tensor::TensorBuf;

/// The outputs of a run, in the order of the model. An index is the name of an output, and panics if there is
/// none of that name; [`get`](Self::get) does not.
///
/// ```
/// use sterna::{DataType, Engine, GraphBuilder, Session};
/// let g = GraphBuilder::new();
/// let x = g.input("x", DataType::F32, &[Some(2)])?;
/// g.output("y", g.relu(x)?)?;
/// let outputs = Session::new(g.build()?, &Engine::new())?.run(&[("x", &[-1.0f32, 1.0])])?;
/// assert_eq!(outputs["y"].as_slice::<f32>()?, [0.0, 1.0]);
/// assert!(outputs.get("z").is_none());
/// # Ok::<(), sterna::Error>(())
/// ```
#[derive(Debug)]
pub struct SessionOutputs {
    pub(super) names: Arc<[String]>,
    pub(super) tensors: Vec<TensorBuf>,
}

impl SessionOutputs {
    /// The output of a name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&TensorBuf> {
        let index = self.names.iter().position(|own| own == name)?;
        self.tensors.get(index)
    }

    /// Each output with its name.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &TensorBuf)> {
        self.names.iter().map(String::as_str).zip(&self.tensors)
    }

    /// The tensors, in the order of the model.
    #[must_use]
    pub fn into_tensors(self) -> Vec<TensorBuf> {
        self.tensors
    }
}

impl Index<&str> for SessionOutputs {
    type Output = TensorBuf;

    fn index(&self, name: &str) -> &TensorBuf {
        match self.get(name) {
            Some(tensor) => tensor,
            None => panic!("no output is called `{name}`; there are {:?}", self.names),
        }
    }
}
