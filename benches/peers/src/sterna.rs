//! Sterna: a select of one partition, executed on tensors made before.

use std::io::Write;

use sterna::{
    AutoBroadcast, CompiledPartition, DataType, Engine, LogicalTensor, Op, Partition, Stream, TensorBuf,
};

use crate::Result;
use crate::case::Case;
use crate::server::Peer;

const DST: usize = 3;

pub struct Select {
    compiled: CompiledPartition,
    stream: Stream,
    inputs: [TensorBuf; 3],
    output: TensorBuf,
}

impl Select {
    pub fn new(case: &Case) -> Result<Self> {
        let engine = Engine::builder().threads(case.threads).build();
        let data: DataType = case.dtype.parse()?;
        let types = [DataType::Boolean, data, data];
        let unknown = |id| LogicalTensor::unknown(id, types[id]);
        let dst = LogicalTensor::strided(DST, data, &case.dst)?;
        let op = Op::select(0, unknown(0), unknown(1), unknown(2), LogicalTensor::unknown(DST, data))
            .auto_broadcast(AutoBroadcast::Multidirectional);
        let tensor =
            |id: usize| -> Result<_> { Ok(LogicalTensor::strided(id, types[id], &case.inputs[id])?) };
        let descs = [tensor(0)?, tensor(1)?, tensor(2)?];
        let compiled = Partition::from_op(op)?.compile(&engine, &descs, std::slice::from_ref(&dst))?;
        let filled = |id: usize| -> Result<TensorBuf> {
            let mut tensor = TensorBuf::zeroed(descs[id].clone(), &engine)?;
            tensor.as_mut_bytes().copy_from_slice(&case.bytes(id)?);
            Ok(tensor)
        };
        let inputs = [filled(0)?, filled(1)?, filled(2)?];
        Ok(Self { compiled, stream: Stream::new(&engine), inputs, output: TensorBuf::zeroed(dst, &engine)? })
    }
}

impl Peer for Select {
    fn version(&self) -> String {
        // Cargo says the versions of packages to themselves only; this one has no other than its path.
        format!("this tree, {}", self.compiled.engine().level())
    }

    fn execute(&mut self, times: usize) -> Result<()> {
        let inputs = self.inputs.each_ref().map(TensorBuf::as_tensor);
        let mut outputs = [self.output.as_tensor_mut()];
        for _ in 0..times {
            self.compiled.execute(&self.stream, &inputs, &mut outputs)?;
        }
        Ok(())
    }

    fn write(&mut self, to: &mut dyn Write) -> Result<()> {
        self.output.as_mut_bytes().fill(0xa5);
        self.execute(1)?;
        Ok(to.write_all(self.output.as_bytes())?)
    }
}
