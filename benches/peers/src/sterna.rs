//! Sterna: one partition, a select or a fused graph, executed on tensors made before.

use std::io::Write;

use sterna::{
    AutoBroadcast, CompiledPartition, Engine, Graph, LogicalTensor, Op, Partition, Policy, Stream, TensorBuf,
};

use crate::Result;
use crate::case::{Case, Operand};
use crate::server::Peer;

pub struct Compiled {
    partition: CompiledPartition,
    stream: Stream,
    inputs: Vec<TensorBuf>,
    output: TensorBuf,
}

impl Compiled {
    pub fn new(case: &Case) -> Result<Self> {
        let engine = Engine::builder().threads(case.threads).build();
        let partition = if case.is_select() { select(case)? } else { fused(&case.json()?)? };
        let tensor = |(id, operand): (usize, &Operand)| -> Result<_> {
            Ok(LogicalTensor::strided(id, operand.dtype.parse()?, &operand.dims)?)
        };
        let inputs = case.inputs.iter().enumerate().map(tensor).collect::<Result<Vec<_>>>()?;
        let [output] = partition.outputs() else { return Err("the partition has several outputs".into()) };
        let output = tensor((output.id().get(), &case.output))?;
        let partition = partition.compile_for(&engine, &inputs, std::slice::from_ref(&output))?;
        let filled = |desc: LogicalTensor| -> Result<TensorBuf> {
            let bytes = case.bytes(desc.id().get())?;
            let mut tensor = TensorBuf::zeroed(desc, &engine)?;
            tensor.as_mut_bytes().copy_from_slice(&bytes);
            Ok(tensor)
        };
        let inputs = inputs.into_iter().map(filled).collect::<Result<_>>()?;
        Ok(Self {
            partition,
            stream: Stream::new(&engine),
            inputs,
            output: TensorBuf::zeroed(output, &engine)?,
        })
    }
}

fn select(case: &Case) -> Result<Partition> {
    let [cond, then, else_] = case.inputs.as_slice() else { return Err("a select has three inputs".into()) };
    let unknown =
        |id, operand: &Operand| -> Result<_> { Ok(LogicalTensor::unknown(id, operand.dtype.parse()?)) };
    let op =
        Op::select(0, unknown(0, cond)?, unknown(1, then)?, unknown(2, else_)?, unknown(3, &case.output)?)
            .auto_broadcast(AutoBroadcast::Multidirectional);
    Ok(Partition::from_op(op)?)
}

/// The only partition of a graph.
fn fused(json: &str) -> Result<Partition> {
    // Scalars lie in memory here, as all inputs do.
    let mut graph = Graph::from_json(&json.replace("host_scalar", "constant"))?;
    graph.finalize()?;
    let mut partitions = graph.partitions(Policy::Fusion)?;
    match partitions.pop() {
        Some(partition) if partitions.is_empty() => Ok(partition),
        _ => Err("the graph is not fused into one partition".into()),
    }
}

impl Peer for Compiled {
    fn version(&self) -> String {
        // Cargo says the versions of packages to themselves only; this one has no other than its path.
        format!("this tree, {}", self.partition.engine().level())
    }

    fn execute(&mut self, times: usize) -> Result<()> {
        let inputs: Vec<_> = self.inputs.iter().map(TensorBuf::as_tensor).collect();
        let mut outputs = [self.output.as_tensor_mut()];
        for _ in 0..times {
            self.partition.execute(&self.stream, &inputs, &mut outputs)?;
        }
        Ok(())
    }

    fn write(&mut self, to: &mut dyn Write) -> Result<()> {
        self.output.as_mut_bytes().fill(0xa5);
        self.execute(1)?;
        Ok(to.write_all(self.output.as_bytes())?)
    }
}
