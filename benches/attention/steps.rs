//! The partitions of a graph, compiled, with their tensors.

use std::collections::BTreeMap;
use std::time::Instant;

use sterna::{CompiledPartition, Engine, Graph, LogicalTensor, Policy, Stream, TensorBuf};

use super::SAMPLE_SECONDS;

/// Partitions that run one after the other; attention is one.
pub(super) struct Steps {
    partitions: Vec<CompiledPartition>,
    pub(super) tensors: BTreeMap<usize, TensorBuf>,
    stream: Stream,
}

impl Steps {
    /// Compiles a graph for its inputs, by id. Messages name the row.
    pub(super) fn new(
        graph: &Graph,
        engine: &Engine,
        row: &str,
        mut tensors: BTreeMap<usize, TensorBuf>,
    ) -> Self {
        let mut partitions = Vec::new();
        for partition in graph.partitions(Policy::Fusion).expect("the graph is finalized") {
            let descs: Vec<LogicalTensor> =
                partition.inputs().iter().map(|port| tensors[&port.id().get()].desc().clone()).collect();
            let compiled = partition.compile_for(engine, &descs, partition.outputs());
            let compiled = compiled.unwrap_or_else(|error| panic!("{row}: {error}"));
            for output in compiled.outputs() {
                let tensor = TensorBuf::zeroed(output.clone(), engine).expect("there is memory");
                tensors.insert(output.id().get(), tensor);
            }
            partitions.push(compiled);
        }
        Self { partitions, tensors, stream: Stream::new(engine) }
    }

    /// The number of partitions.
    pub(super) fn count(&self) -> usize {
        self.partitions.len()
    }

    pub(super) fn execute(&mut self) {
        for step in &self.partitions {
            let mut outputs: Vec<TensorBuf> =
                step.outputs().iter().filter_map(|desc| self.tensors.remove(&desc.id().get())).collect();
            let inputs: Vec<_> =
                step.inputs().iter().map(|desc| self.tensors[&desc.id().get()].as_tensor()).collect();
            let mut into: Vec<_> = outputs.iter_mut().map(TensorBuf::as_tensor_mut).collect();
            step.execute(&self.stream, &inputs, &mut into).expect("the tensors fit");
            drop(into);
            self.tensors.extend(outputs.into_iter().map(|tensor| (tensor.desc().id().get(), tensor)));
        }
    }

    /// Bytes of scratch on all threads, of the partition that takes most.
    pub(super) fn scratch(&self) -> usize {
        self.partitions.iter().map(CompiledPartition::scratchpad_size).max().unwrap_or(0)
    }

    /// Seconds of one execution, of as many as a sample takes.
    pub(super) fn sample(&mut self, runs: usize) -> f64 {
        let start = Instant::now();
        (0..runs).for_each(|_| self.execute());
        start.elapsed().as_secs_f64() / runs as f64
    }

    /// Warms up, and tells how many executions a sample takes.
    pub(super) fn runs(&mut self) -> usize {
        let once = self.sample(1).min(self.sample(1));
        ((SAMPLE_SECONDS / once.max(1e-9)).ceil() as usize).max(1)
    }
}
