//! A graph and its inputs, as the arguments describe them.

use std::path::PathBuf;

use crate::Result;

/// Shapes, types, threads, and where the inputs are.
#[derive(Debug)]
pub struct Case {
    pub inputs: Vec<Operand>,
    pub output: Operand,
    pub threads: usize,
    /// Bytes of all inputs.
    pub read: usize,
    graph: String,
    dir: PathBuf,
}

#[derive(Debug)]
pub struct Operand {
    /// Sterna's name of the type.
    pub dtype: String,
    pub dims: Vec<i64>,
}

impl Case {
    /// Reads pairs of `--name value`.
    pub fn read(arguments: &[String]) -> Result<Self> {
        let option = |name: &str| {
            let pair = arguments.chunks_exact(2).find(|pair| pair[0] == name);
            pair.map(|pair| pair[1].as_str()).ok_or(format!("{name} is missing"))
        };
        Ok(Self {
            inputs: option("--inputs")?.split('/').map(Operand::parse).collect::<Result<_>>()?,
            output: Operand::parse(option("--output")?)?,
            threads: option("--threads")?.parse()?,
            read: option("--read")?.parse()?,
            graph: option("--graph")?.into(),
            dir: option("--dir")?.into(),
        })
    }

    /// True if it is a single select; a graph has a file.
    pub fn is_select(&self) -> bool {
        self.graph == "select"
    }

    /// The graph as JSON.
    pub fn json(&self) -> Result<String> {
        Ok(std::fs::read_to_string(self.dir.join("graph.json"))?)
    }

    /// The bytes of an input, row-major.
    pub fn bytes(&self, input: usize) -> Result<Vec<u8>> {
        Ok(std::fs::read(self.dir.join(format!("{input}.bin")))?)
    }
}

impl Operand {
    /// Reads what looks like `f32:8,12,512,512`.
    fn parse(text: &str) -> Result<Self> {
        let (dtype, dims) = text.split_once(':').ok_or(format!("no operand: {text}"))?;
        let dims = dims
            .split(',')
            .filter(|dim| !dim.is_empty())
            .map(|dim| Ok(dim.parse()?))
            .collect::<Result<_>>()?;
        Ok(Self { dtype: dtype.into(), dims })
    }
}
