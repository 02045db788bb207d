//! candle: nodes one after the other, as they stand in the file; there is nothing to prepare.

use std::collections::HashMap;

use candle_core::{Device, Tensor};
use candle_onnx::onnx::ModelProto;

use crate::Result;
use crate::case::{Case, Elements};
use crate::measure::Peer;

pub struct Candle(ModelProto);

impl Peer for Candle {
    const VERSION: &str = env!("CANDLE_ONNX_VERSION");
    type Inputs = HashMap<String, Tensor>;
    type Outputs = HashMap<String, Tensor>;

    /// The number of threads is that of rayon, which the environment gives.
    fn load(case: &Case, _: usize) -> Result<Self> {
        Ok(Self(candle_onnx::read_file(case.model())?))
    }

    fn inputs(&self, case: &Case) -> Result<Self::Inputs> {
        let mut inputs = HashMap::new();
        for array in &case.inputs {
            let dims = array.dims.as_slice();
            let tensor = match &array.elements {
                Elements::I64(elements) => Tensor::from_slice(elements, dims, &Device::Cpu)?,
                Elements::F32(elements) => Tensor::from_slice(elements, dims, &Device::Cpu)?,
            };
            inputs.insert(array.name.clone(), tensor);
        }
        Ok(inputs)
    }

    fn run(&self, inputs: &Self::Inputs) -> Result<Self::Outputs> {
        Ok(candle_onnx::simple_eval(&self.0, inputs.clone())?)
    }

    fn elements(&self, case: &Case, outputs: &Self::Outputs) -> Result<Vec<Vec<f32>>> {
        let one = |name: &str| -> Result<_> {
            Ok(outputs.get(name).ok_or("an output is missing")?.flatten_all()?.to_vec1()?)
        };
        case.outputs().into_iter().map(one).collect()
    }
}
