//! A single op as a candidate.

use std::time::Instant;

use sterna::{CompiledPartition, LogicalTensor, Stream, TensorBuf};

use super::serve::Candidate;

/// Least time of one sample, so that reading the clock does not matter.
const SAMPLE_SECONDS: f64 = 0.002;

/// A compiled op with its tensors.
pub(crate) struct Served {
    compiled: CompiledPartition,
    stream: Stream,
    inputs: Vec<TensorBuf>,
    outputs: Vec<TensorBuf>,
    /// Executions of a sample.
    runs: usize,
}

impl Served {
    pub(crate) fn new(
        compiled: CompiledPartition,
        stream: Stream,
        inputs: Vec<TensorBuf>,
        outputs: Vec<TensorBuf>,
    ) -> Self {
        let mut served = Self { compiled, stream, inputs, outputs, runs: 1 };
        let once = served.sample().min(served.sample());
        served.runs = ((SAMPLE_SECONDS / once.max(1e-9)).ceil() as usize).max(1);
        served
    }

    /// Inputs and outputs as `ID:TYPE:DIMS`, dims between commas, in one word each.
    pub(crate) fn ports(&self) -> String {
        let port = |desc: &LogicalTensor| {
            let dims = desc.dims().unwrap_or_default().iter().map(|dim| dim.to_string());
            format!("{}:{}:{}", desc.id(), desc.data_type(), dims.collect::<Vec<_>>().join(","))
        };
        let all = |tensors: &[TensorBuf]| {
            tensors.iter().map(|tensor| port(tensor.desc())).collect::<Vec<_>>().join("/")
        };
        format!("{} {}", all(&self.inputs), all(&self.outputs))
    }
}

impl Candidate for Served {
    fn sample(&mut self) -> f64 {
        let inputs: Vec<_> = self.inputs.iter().map(TensorBuf::as_tensor).collect();
        let mut outputs: Vec<_> = self.outputs.iter_mut().map(TensorBuf::as_tensor_mut).collect();
        let start = Instant::now();
        for _ in 0..self.runs {
            self.compiled.execute(&self.stream, &inputs, &mut outputs).expect("the tensors fit");
        }
        start.elapsed().as_secs_f64() / self.runs as f64
    }

    fn bytes(&self, id: usize) -> Option<&[u8]> {
        let mut all = self.inputs.iter().chain(&self.outputs);
        all.find(|tensor| tensor.desc().id() == id).map(TensorBuf::as_bytes)
    }
}
