//! candle: `where_cond` on views of one shape; each call makes its result anew.

use std::hint::black_box;
use std::io::Write;

use candle_core::{DType, Device, Tensor};

use crate::Result;
use crate::case::Case;
use crate::server::Peer;

pub struct Select {
    cond: Tensor,
    then: Tensor,
    else_: Tensor,
}

impl Select {
    pub fn new(case: &Case) -> Result<Self> {
        if !case.is_select() {
            return Err("computes no graphs as a whole".into());
        }
        let data = data_type(&case.output.dtype)?;
        let dst = sizes(&case.output.dims)?;
        let tensor = |input: usize, dtype| -> Result<Tensor> {
            let dims = sizes(&case.inputs[input].dims)?;
            let tensor = Tensor::from_raw_buffer(&case.bytes(input)?, dtype, &dims, &Device::Cpu)?;
            Ok(tensor.broadcast_as(dst.as_slice())?)
        };
        Ok(Self { cond: tensor(0, DType::U8)?, then: tensor(1, data)?, else_: tensor(2, data)? })
    }

    fn select(&self) -> Result<Tensor> {
        Ok(self.cond.where_cond(&self.then, &self.else_)?)
    }
}

impl Peer for Select {
    fn version(&self) -> String {
        env!("CANDLE_VERSION").into()
    }

    fn execute(&mut self, times: usize) -> Result<()> {
        for _ in 0..times {
            black_box(self.select()?);
        }
        Ok(())
    }

    fn write(&mut self, mut to: &mut dyn Write) -> Result<()> {
        Ok(self.select()?.write_bytes(&mut to)?)
    }
}

fn data_type(name: &str) -> Result<DType> {
    match name {
        "u8" => Ok(DType::U8),
        "f16" => Ok(DType::F16),
        "bf16" => Ok(DType::BF16),
        "f32" => Ok(DType::F32),
        "s64" => Ok(DType::I64),
        _ => Err(format!("no such data type: {name}").into()),
    }
}

fn sizes(dims: &[i64]) -> Result<Vec<usize>> {
    dims.iter().map(|&dim| Ok(usize::try_from(dim)?)).collect()
}
