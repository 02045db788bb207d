//! Files of OpenVINO that are read: what the model says, and the bytes of its constants.

use std::io;
use std::path::Path;

use bytes::Bytes;

use super::constants::Weights;
use super::reader;
use super::signatures::signatures;
use super::wiring::Wiring;
use super::xml::{self, Net};
use crate::builder::Imported;
use crate::builder::kept::KeptSlot;
use crate::builder::reading::KeptReading;
use crate::error::{Error, Limited};
use crate::files::{open_plain, open_stream, read_at_most, said};
use crate::limits::{Limits, Options};
use crate::mapping::Stored;
use crate::names::Shown;
use crate::signature::Signature;

/// A model that is read, of which graphs can be made.
#[derive(Debug)]
pub(crate) struct NetDocument {
    net: Net,
    weights: Stored,
    wiring: Wiring,
    /// The layers as they were mapped for the last set of shapes.
    kept: KeptSlot<KeptReading>,
}

impl NetDocument {
    /// Reads a text, with the bytes of its constants.
    pub(crate) fn of_bytes(text: &str, weights: Vec<u8>, limits: &Limits) -> Result<Self, Error> {
        let net = xml::parse(text, limits)?;
        Self::wired(net, Stored::of_bytes(Bytes::from(weights)))
    }

    fn wired(net: Net, weights: Stored) -> Result<Self, Error> {
        let wiring = Wiring::of(&net, Weights::Stored(&weights))?;
        Ok(Self { net, weights, wiring, kept: KeptSlot::default() })
    }

    /// Reads a text, with a file of its constants. It is mapped, unless the options say that constants own
    /// their elements.
    pub(crate) fn open(text: &str, weights: Option<&Path>, options: &Options) -> Result<Self, Error> {
        let net = xml::parse(text, &options.limits)?;
        let Some(path) = weights else {
            return Self::wired(net, Stored::default());
        };
        let name = Shown(&path.to_string_lossy()).to_string();
        let opened = open_plain(path).and_then(|file| Stored::open(&name, file, !options.own_constants));
        let weights = opened.map_err(|error| unread(path, &error))?;
        let length = usize::try_from(weights.length()).unwrap_or(usize::MAX);
        Limits::check(Limited::ConstantBytes, length, options.limits.constant_bytes)?;
        Self::wired(net, weights)
    }

    /// The graph of the model under some options.
    pub(crate) fn imported(&self, options: &Options) -> Result<Imported, Error> {
        self.read(options, KeptReading::default(), false).map(|(imported, _)| imported)
    }

    /// As [`imported`](Self::imported), under options of which only the shapes ever differ. What the last
    /// shapes have not changed is not mapped anew.
    pub(crate) fn imported_again(&self, options: &Options) -> Result<Imported, Error> {
        let (imported, kept) = self.read(options, self.kept.take(), true)?;
        self.kept.put(kept);
        Ok(imported)
    }

    fn read(
        &self,
        options: &Options,
        kept: KeptReading,
        keeps_walk: bool,
    ) -> Result<(Imported, KeptReading), Error> {
        let weights = Weights::Stored(&self.weights);
        reader::imported((&self.net, &self.wiring), weights, options, kept, keeps_walk)
    }

    /// The inputs and the outputs, as the text describes them.
    pub(crate) fn signatures(&self) -> Result<[Vec<Signature>; 2], Error> {
        signatures(&self.net, &self.wiring.sources, &self.wiring.variables)
    }
}

/// The text of an `.xml`.
pub(crate) fn text_of(path: &Path, limits: &Limits) -> Result<String, Error> {
    let unread = |error: io::Error| unread(path, &error);
    let bytes = open_stream(path).and_then(|file| read_at_most(file, limits.text_bytes)).map_err(unread)?;
    let Some(bytes) = bytes else {
        let most = limits.text_bytes as u64;
        return Err(Error::Limit { what: Limited::TextBytes, given: most.saturating_add(1), most });
    };
    let no_text = |_| Error::Document { what: "the file is no text".into(), needed: "XML in UTF-8" };
    String::from_utf8(bytes).map_err(no_text)
}

fn unread(path: &Path, error: &io::Error) -> Error {
    Error::File { file: Shown(&path.to_string_lossy()).to_string(), what: said(error) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layer_that_is_given_the_same_is_not_mapped_anew() {
        let layer = |id: usize, kind: &str, data: &str, ports: &str| {
            format!(
                "<layer id=\"{id}\" name=\"{kind}\" type=\"{kind}\" version=\"opset1\">{data}{ports}</layer>"
            )
        };
        let out = "<output><port id=\"1\"><dim>-1</dim></port></output>";
        let through = format!("<input><port id=\"0\"/></input>{out}");
        let layers = [
            layer(0, "Parameter", "<data shape=\"?\" element_type=\"f32\"/>", out),
            layer(1, "Exp", "", &through),
            layer(2, "Result", "", "<input><port id=\"0\"/></input>"),
        ];
        let edge = |from: usize| {
            let to = from + 1;
            format!("<edge from-layer=\"{from}\" from-port=\"1\" to-layer=\"{to}\" to-port=\"0\"/>")
        };
        let edges = [0, 1].map(edge).concat();
        let text =
            format!("<net version=\"11\"><layers>{}</layers><edges>{edges}</edges></net>", layers.concat());
        let document = NetDocument::of_bytes(&text, Vec::new(), &Limits::default()).unwrap();
        let mapped = |rows: i64| {
            let shapes = [("Parameter".to_owned(), vec![rows])].into();
            let again = document.imported_again(&Options { shapes, ..Options::default() }).unwrap();
            assert_eq!(again.outputs[0].tensor.dims(), Some(&[rows][..]));
            let kept = document.kept.take();
            assert!(kept.walk.is_some());
            let mapped = kept.nodes.mapped;
            document.kept.put(kept);
            mapped
        };
        assert_eq!([2, 2, 4, 4, 4, 2].map(mapped), [1, 1, 2, 2, 2, 3]);
    }
}
