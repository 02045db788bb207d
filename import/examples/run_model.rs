//! Runs a model of ONNX on inputs of zeros, and prints the shape of each output.
//!
//! `cargo run --example run_model -- model.onnx`

use sterna::{AsDynView, Engine, LogicalTensor, Session, TensorBuf};
use sterna_import::{ModelFile, Options};

/// A tensor of zeros for an input; an open dim is 1.
fn zeros(tensor: &LogicalTensor, engine: &Engine) -> sterna::Result<TensorBuf> {
    let dims: Vec<i64> =
        tensor.partial_dims().unwrap_or_default().into_iter().map(|dim| dim.unwrap_or(1)).collect();
    TensorBuf::zeroed(LogicalTensor::strided(tensor.id(), tensor.data_type(), &dims)?, engine)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("usage: run_model MODEL")?;
    let engine = Engine::new();
    let session = Session::new(ModelFile::open(path.as_ref(), &Options::default())?, &engine)?;
    let zeros = session.inputs().iter().map(|port| Ok((port.name(), zeros(&port.tensor, &engine)?)));
    let zeros = zeros.collect::<sterna::Result<Vec<_>>>()?;
    let inputs: Vec<_> = zeros.iter().map(|(name, tensor)| (*name, tensor as &dyn AsDynView)).collect();
    for (name, tensor) in session.run(&inputs)?.iter() {
        println!("{name}: {} {:?}", tensor.desc().data_type(), tensor.desc().dims().unwrap_or_default());
    }
    Ok(())
}
