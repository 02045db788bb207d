//! tract: the optimised model for the shapes of the inputs. Products alone run on more threads than one.

use std::sync::Arc;

use tract_linalg::multithread::{Executor, set_default_executor};
use tract_onnx::prelude::*;

use crate::Result;
use crate::case::{Array, Case, Elements};
use crate::measure::Peer;

pub struct Tract(Arc<TypedRunnableModel>);

fn tensor(array: &Array) -> Result<Tensor> {
    Ok(match &array.elements {
        Elements::I64(elements) => Tensor::from_shape(&array.dims, elements)?,
        Elements::F32(elements) => Tensor::from_shape(&array.dims, elements)?,
    })
}

impl Peer for Tract {
    const VERSION: &str = env!("TRACT_ONNX_VERSION");
    type Inputs = TVec<TValue>;
    type Outputs = TVec<TValue>;

    fn load(case: &Case, threads: usize) -> Result<Self> {
        if threads > 1 {
            set_default_executor(Executor::multithread(threads));
        }
        // The file's own symbols for the open dims contradict the lengths that the inputs are given.
        let reader = tract_onnx::onnx().with_ignore_value_info(true).with_ignore_output_shapes(true);
        let mut model = reader.model_for_path(case.model())?;
        for (place, array) in case.inputs.iter().enumerate() {
            let dtype = if matches!(array.elements, Elements::I64(_)) {
                i64::datum_type()
            } else {
                f32::datum_type()
            };
            model = model.with_input_fact(place, InferenceFact::dt_shape(dtype, &array.dims))?;
        }
        Ok(Self(model.into_optimized()?.into_runnable()?))
    }

    fn inputs(&self, case: &Case) -> Result<Self::Inputs> {
        case.inputs.iter().map(|array| Ok(TValue::from_const(Arc::new(tensor(array)?)))).collect()
    }

    fn run(&self, inputs: &Self::Inputs) -> Result<Self::Outputs> {
        Ok(self.0.run(inputs.clone())?)
    }

    fn elements(&self, _: &Case, outputs: &Self::Outputs) -> Result<Vec<Vec<f32>>> {
        let one = |value: &TValue| -> Result<_> {
            Ok(value.to_plain_array_view::<f32>()?.iter().copied().collect())
        };
        outputs.iter().map(one).collect()
    }
}
