//! Runs a model of ONNX: `cargo run --example run_onnx -- tests/data/classifier.onnx`.

use sterna::{Engine, Session};
use sterna_import::{ModelFile, Options};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("usage: run_onnx MODEL")?;
    let session = Session::new(ModelFile::open(path.as_ref(), &Options::default())?, &Engine::new())?;
    let outputs = session.run(&[("x", &[[1.0f32, 2.0, 3.0, 4.0], [4.0, 3.0, 2.0, 1.0]])])?;
    println!("{:.3?}", outputs["y"].as_slice::<f32>()?);
    Ok(())
}
