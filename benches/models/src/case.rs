//! A folder with a model, and the tensors that go in and come out, as `export.py` writes it.

use std::path::{Path, PathBuf};

use crate::Result;

/// Elements of the types that the models take.
#[derive(Clone)]
pub enum Elements {
    I64(Vec<i64>),
    F32(Vec<f32>),
}

#[derive(Clone)]
pub struct Array {
    pub name: String,
    pub dims: Vec<usize>,
    pub elements: Elements,
    /// The dim that is one longer in the next run, if any is.
    grows: Option<usize>,
}

impl Array {
    /// The first rows of the dim that grows, all but a number of them.
    fn shorter(&self, by: usize) -> Self {
        let mut array = self.clone();
        if let Some(dim) = self.grows {
            array.dims[dim] -= by;
            let inner: usize = self.dims[dim + 1..].iter().product();
            let (all, kept) = (self.dims[dim] * inner, array.dims[dim] * inner);
            match &mut array.elements {
                Elements::I64(elements) => *elements = cut(elements, all, kept),
                Elements::F32(elements) => *elements = cut(elements, all, kept),
            }
        }
        array
    }
}

/// The first elements of each chunk.
fn cut<T: Copy>(elements: &[T], chunk: usize, kept: usize) -> Vec<T> {
    elements.chunks(chunk).flat_map(|chunk| &chunk[..kept]).copied().collect()
}

/// A line of `case.txt`; its elements are in a file.
struct Line {
    name: String,
    dtype: String,
    dims: Vec<usize>,
    grows: Option<usize>,
    file: PathBuf,
}

pub struct Case {
    folder: PathBuf,
    pub inputs: Vec<Array>,
    outputs: Vec<Line>,
}

impl Case {
    pub fn read(folder: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(folder.join("case.txt"))?;
        let mut case = Self { folder: folder.to_owned(), inputs: Vec::new(), outputs: Vec::new() };
        for words in text.lines().map(|line| line.split(' ').collect::<Vec<_>>()) {
            let [role, name, dtype, dims, grows, file] = words[..] else {
                return Err("a line of case.txt has six words".into());
            };
            let line = Line {
                name: name.to_owned(),
                dtype: dtype.to_owned(),
                dims: dims.split(',').map(str::parse).collect::<std::result::Result<_, _>>()?,
                grows: grows.parse().ok(),
                file: folder.join(file),
            };
            match role {
                "input" => case.inputs.push(line.read()?),
                _ => case.outputs.push(line),
            }
        }
        Ok(case)
    }

    /// The inputs of an earlier run of the model, if they grow from run to run.
    pub fn earlier(&self, by: usize) -> Option<Self> {
        self.inputs.iter().any(|array| array.grows.is_some()).then(|| Self {
            folder: self.folder.clone(),
            inputs: self.inputs.iter().map(|array| array.shorter(by)).collect(),
            outputs: Vec::new(),
        })
    }

    pub fn model(&self) -> PathBuf {
        self.folder.join("model.onnx")
    }

    /// The names of the outputs, in the order of the model.
    pub fn outputs(&self) -> Vec<&str> {
        self.outputs.iter().map(|line| line.name.as_str()).collect()
    }

    /// The largest difference from what torch computes, as a share of the largest element of the output.
    pub fn distance(&self, given: &[Vec<f32>]) -> Result<f64> {
        let mut most = 0.0;
        for (line, given) in self.outputs.iter().zip(given) {
            let Elements::F32(expected) = line.read()?.elements else {
                return Err("an output is not f32".into());
            };
            if expected.len() != given.len() {
                let name = &line.name;
                return Err(format!("{} elements of {name}, not {}", given.len(), expected.len()).into());
            }
            let size = expected.iter().fold(0.0, |size, element| f64::max(size, element.abs().into()));
            let apart = expected.iter().zip(given).map(|(&a, &b)| (f64::from(a) - f64::from(b)).abs());
            // A difference that is no number counts as the largest.
            let apart = apart.fold(0.0, |most, one| if one <= most { most } else { one });
            most = if apart / size <= most { most } else { apart / size };
        }
        Ok(most)
    }
}

impl Line {
    fn read(&self) -> Result<Array> {
        let bytes = std::fs::read(&self.file)?;
        let elements = match self.dtype.as_str() {
            "int64" => Elements::I64(from_bytes(&bytes, i64::from_le_bytes)),
            "float32" => Elements::F32(from_bytes(&bytes, f32::from_le_bytes)),
            other => return Err(format!("{} is {other}", self.name).into()),
        };
        Ok(Array { name: self.name.clone(), dims: self.dims.clone(), elements, grows: self.grows })
    }
}

fn from_bytes<T, const N: usize>(bytes: &[u8], from: impl Fn([u8; N]) -> T) -> Vec<T> {
    bytes.as_chunks().0.iter().map(|&bytes| from(bytes)).collect()
}
