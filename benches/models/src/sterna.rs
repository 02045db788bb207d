//! Sterna: a session of the file, with a thread of the engine for each that is allowed.

use sterna::{AsDynView, Engine, LogicalTensor, Session, SessionOutputs, TensorBuf};
use sterna_import::{ModelFile, Options};

use crate::Result;
use crate::case::{Array, Case, Elements};
use crate::measure::Peer;

pub struct Sterna {
    engine: Engine,
    session: Session,
}

impl Sterna {
    fn tensor(&self, id: usize, array: &Array) -> Result<TensorBuf> {
        let dims: Vec<i64> = array.dims.iter().map(|&dim| dim as i64).collect();
        let bytes: Vec<u8> = match &array.elements {
            Elements::I64(elements) => elements.iter().flat_map(|element| element.to_ne_bytes()).collect(),
            Elements::F32(elements) => elements.iter().flat_map(|element| element.to_ne_bytes()).collect(),
        };
        let dtype = if matches!(array.elements, Elements::I64(_)) { "s64" } else { "f32" };
        let mut tensor = TensorBuf::zeroed(LogicalTensor::strided(id, dtype.parse()?, &dims)?, &self.engine)?;
        tensor.as_mut_bytes().copy_from_slice(&bytes);
        Ok(tensor)
    }
}

impl Peer for Sterna {
    const VERSION: &str = "this tree";
    type Inputs = Vec<(String, TensorBuf)>;
    type Outputs = SessionOutputs;

    fn load(case: &Case, threads: usize) -> Result<Self> {
        let engine = Engine::builder().threads(threads).build();
        let session = Session::new(ModelFile::open(&case.model(), &Options::default())?, &engine)?;
        Ok(Self { engine, session })
    }

    fn inputs(&self, case: &Case) -> Result<Self::Inputs> {
        let arrays = case.inputs.iter().enumerate();
        arrays.map(|(id, array)| Ok((array.name.clone(), self.tensor(id, array)?))).collect()
    }

    fn run(&self, inputs: &Self::Inputs) -> Result<SessionOutputs> {
        let views: Vec<_> =
            inputs.iter().map(|(name, tensor)| (name.as_str(), tensor as &dyn AsDynView)).collect();
        Ok(self.session.run(&views)?)
    }

    fn elements(&self, case: &Case, outputs: &SessionOutputs) -> Result<Vec<Vec<f32>>> {
        let one = |name: &str| -> Result<_> {
            Ok(outputs.get(name).ok_or("an output is missing")?.as_slice::<f32>()?.to_vec())
        };
        case.outputs().into_iter().map(one).collect()
    }
}
