//! A select as the arguments describe it.

use std::path::PathBuf;

use crate::Result;

/// Shapes, type, threads, and where the inputs are.
#[derive(Debug)]
pub struct Case {
    /// A type by the name that Sterna gives it.
    pub dtype: String,
    /// Dims of the condition, then and else.
    pub inputs: [Vec<i64>; 3],
    /// Dims of the result.
    pub dst: Vec<i64>,
    pub threads: usize,
    dir: PathBuf,
}

impl Case {
    /// Reads pairs of `--name value`.
    pub fn read(arguments: &[String]) -> Result<Self> {
        let option = |name: &str| {
            let pair = arguments.chunks_exact(2).find(|pair| pair[0] == name);
            pair.map(|pair| pair[1].as_str()).ok_or(format!("{name} is missing"))
        };
        let dims = |name| parse_dims(option(name)?);
        Ok(Self {
            dtype: option("--dtype")?.into(),
            inputs: [dims("--cond")?, dims("--then")?, dims("--else")?],
            dst: dims("--dst")?,
            threads: option("--threads")?.parse()?,
            dir: option("--dir")?.into(),
        })
    }

    /// The bytes of an input, row-major.
    pub fn bytes(&self, input: usize) -> Result<Vec<u8>> {
        Ok(std::fs::read(self.dir.join(["cond.bin", "then.bin", "else.bin"][input]))?)
    }
}

fn parse_dims(text: &str) -> Result<Vec<i64>> {
    text.split(',').filter(|dim| !dim.is_empty()).map(|dim| Ok(dim.parse()?)).collect()
}
