//! RTen: a model whose weights are packed when it is loaded, and a pool of threads for each caller.

use std::sync::Arc;

use rten::{Model, ModelOptions, NodeId, RunOptions, ThreadPool, Value, ValueOrView};
use rten_tensor::Tensor;

use crate::Result;
use crate::case::{Case, Elements};
use crate::measure::Peer;

pub struct Rten {
    model: Model,
    outputs: Vec<NodeId>,
    threads: usize,
}

pub struct Inputs {
    values: Vec<(NodeId, Value)>,
    pool: Arc<ThreadPool>,
}

impl Peer for Rten {
    const VERSION: &str = env!("RTEN_VERSION");
    type Inputs = Inputs;
    type Outputs = Vec<Value>;

    fn load(case: &Case, threads: usize) -> Result<Self> {
        let model = ModelOptions::with_all_ops().prepack_weights(true).load_file(case.model())?;
        let outputs = case.outputs().into_iter().map(|name| model.node_id(name));
        let outputs = outputs.collect::<std::result::Result<_, _>>()?;
        Ok(Self { model, outputs, threads })
    }

    fn inputs(&self, case: &Case) -> Result<Inputs> {
        let mut values = Vec::new();
        for array in &case.inputs {
            let value = match &array.elements {
                // It has no other integers.
                Elements::I64(elements) => {
                    let elements: Vec<_> = elements.iter().map(|&element| element as i32).collect();
                    Value::from_shape(&array.dims, elements)?
                }
                Elements::F32(elements) => Value::from_shape(&array.dims, elements.clone())?,
            };
            values.push((self.model.node_id(&array.name)?, value));
        }
        Ok(Inputs { values, pool: Arc::new(ThreadPool::with_num_threads(self.threads)) })
    }

    fn run(&self, inputs: &Inputs) -> Result<Vec<Value>> {
        let values = inputs.values.iter().map(|(node, value)| (*node, ValueOrView::from(value))).collect();
        let options = RunOptions::default().with_thread_pool(Some(inputs.pool.clone()));
        Ok(self.model.run(values, &self.outputs, Some(options))?)
    }

    fn elements(&self, _: &Case, outputs: &Vec<Value>) -> Result<Vec<Vec<f32>>> {
        outputs.iter().map(|value| Ok(Tensor::<f32>::try_from(value.clone())?.into_data())).collect()
    }
}
