//! Ports of partitions in reports: as data, and as lines in columns.

use std::collections::BTreeMap;

use serde::Serialize;
use sterna::{LogicalTensor, TensorId};

use crate::short::Short;

/// The most characters of a name in a line of text.
const LONGEST_NAME: usize = 40;

/// A port; dims and strides that are not known are null.
#[derive(Debug, Serialize)]
pub struct PortReport {
    /// The tensor.
    pub id: TensorId,
    /// Of an input or output of the graph.
    pub name: Option<String>,
    /// The name as text shows it, if it is long.
    #[serde(skip)]
    short: Option<String>,
    /// The type of an element.
    pub dtype: &'static str,
    /// The dims; none if the rank is not known.
    pub shape: Option<Vec<Option<i64>>>,
    /// The strides in elements.
    pub strides: Option<Vec<i64>>,
    /// The kind of its layout.
    pub layout: &'static str,
    /// Its property: constant, host scalar, or none.
    pub property: &'static str,
}

impl PortReport {
    /// A port without a name.
    #[must_use]
    pub fn of(desc: &LogicalTensor) -> Self {
        Self {
            id: desc.id(),
            name: None,
            short: None,
            dtype: desc.data_type().name(),
            shape: desc.partial_dims(),
            strides: desc.strides().map(<[i64]>::to_vec),
            layout: desc.layout().name(),
            property: desc.property().name(),
        }
    }

    /// The cells of a port in a table: id, name, type, shape, and all that is unusual.
    #[must_use]
    pub fn cells(&self) -> [String; 5] {
        let name = self.short.as_ref().or(self.name.as_ref());
        let shape = match &self.shape {
            None => "of unknown rank".into(),
            Some(dims) => braced(dims.iter().copied()),
        };
        let layout = match &self.strides {
            Some(_) if self.is_dense() => String::new(),
            Some(strides) => format!("strides {}", braced(strides.iter().copied().map(Some))),
            None => format!("layout {}", self.layout),
        };
        let property = if self.property == "undef" { "" } else { self.property };
        let more = [layout.as_str(), property].join(" ").trim().to_owned();
        [self.id.to_string(), name.cloned().unwrap_or_default(), self.dtype.into(), shape, more]
    }

    /// True if the elements lie one behind the other in row-major order. The stride of a dim of 1 says
    /// nothing.
    fn is_dense(&self) -> bool {
        let (Some(dims), Some(strides)) = (&self.shape, &self.strides) else { return false };
        let mut step = 1i64;
        dims.len() == strides.len()
            && dims.iter().zip(strides).rev().all(|(&dim, &stride)| {
                let Some(dim) = dim else { return false };
                let fits = dim == 1 || stride == step;
                step = step.saturating_mul(dim.max(1));
                fits
            })
    }
}

/// Dims as `{2,3,?}`, with `?` for one that is not known.
fn braced(dims: impl Iterator<Item = Option<i64>>) -> String {
    let dims: Vec<String> = dims.map(|dim| dim.map_or("?".into(), |dim| dim.to_string())).collect();
    format!("{{{}}}", dims.join(","))
}

/// Lines about the ports of a partition, each behind a word, in columns.
#[must_use]
pub fn aligned(inputs: &[PortReport], outputs: &[PortReport]) -> Vec<String> {
    let said = |what: &'static str| move |port: &PortReport| (what, port.cells());
    let rows: Vec<(&str, [String; 5])> =
        inputs.iter().map(said("in")).chain(outputs.iter().map(said("out"))).collect();
    let width =
        |column: usize| rows.iter().map(|(_, cells)| cells[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 5] = std::array::from_fn(width);
    let line = |(what, [id, name, dtype, shape, more]): &(&str, [String; 5])| {
        let mut line = format!("{what:<8} {id:>0$}", widths[0]);
        for (cell, width) in [name, dtype, shape, more].into_iter().zip(&widths[1..]) {
            if *width > 0 {
                line += &format!(" {cell:<width$}");
            }
        }
        line.trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

/// The names of the inputs and outputs of a graph.
#[derive(Debug, Default)]
pub struct TensorNames {
    of: BTreeMap<TensorId, String>,
    short: Short,
}

impl TensorNames {
    /// The names by tensor.
    #[must_use]
    pub fn new(of: BTreeMap<TensorId, String>) -> Self {
        let short = Short::new(of.values().map(String::as_str), LONGEST_NAME);
        Self { of, short }
    }

    /// The name of a tensor.
    #[must_use]
    pub fn of(&self, id: TensorId) -> Option<&str> {
        self.of.get(&id).map(String::as_str)
    }

    /// All names.
    pub fn all(&self) -> impl Iterator<Item = &str> {
        self.of.values().map(String::as_str)
    }

    /// The name as text shows it.
    #[must_use]
    pub fn short(&self, id: TensorId) -> Option<&str> {
        self.of(id).map(|name| self.short.of(name))
    }

    /// Names those of the ports that are inputs and outputs of the graph.
    pub fn name<'a>(&self, ports: impl IntoIterator<Item = &'a mut PortReport>) {
        for port in ports {
            port.name = self.of(port.id).map(str::to_owned);
            port.short = self.short(port.id).map(str::to_owned);
        }
    }
}

#[cfg(test)]
mod tests {
    use sterna::DataType;

    use super::*;

    #[test]
    fn strides_are_said_if_they_are_not_dense() {
        let rows: &[(&[i64], &[i64], &str)] = &[
            (&[], &[], ""),
            (&[2, 3], &[3, 1], ""),
            (&[2, 3], &[1, 2], "strides {1,2}"),
            (&[2, 3], &[4, 1], "strides {4,1}"),
            (&[1, 1, 5], &[5, 77, 1], ""),
            (&[4, 1], &[1, 9], ""),
            (&[4], &[0], "strides {0}"),
            (&[0, 3], &[3, 1], ""),
        ];
        let said = |dims: &[i64], strides: &[i64]| {
            let desc = LogicalTensor::with_strides(0, DataType::F32, dims, strides).unwrap();
            PortReport::of(&desc).cells()[4].clone()
        };
        let wrong: Vec<_> =
            rows.iter().filter(|(dims, strides, more)| said(dims, strides) != *more).collect();
        assert!(wrong.is_empty(), "{wrong:?}");
    }

    #[test]
    fn columns_are_aligned() {
        let port = |id, dims: &[i64], name: Option<&str>| {
            let mut port = PortReport::of(&LogicalTensor::strided(id, DataType::F32, dims).unwrap());
            port.name = name.map(str::to_owned);
            port
        };
        let inputs = [port(7, &[2, 3], Some("cond")), port(12, &[], None)];
        let lines = aligned(&inputs, &[port(3, &[2, 3], Some("a result"))]);
        assert_eq!(
            lines,
            [
                "in        7 cond     f32 {2,3}",
                "in       12          f32 {}",
                "out       3 a result f32 {2,3}"
            ]
        );
    }
}
