//! A file of ONNX that is decoded: what the model says, and where the elements of its constants stand.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;
use std::sync::OnceLock;

use bytes::Bytes;

use super::element_files::ElementFiles;
use super::order::WantedNodes;
use super::proto::{self, DimText, ModelText, ValueInfo};
use super::reader::{self, ModelReader};
use super::tensors;
use crate::builder::kept::{KeptNodes, KeptSlot};
use crate::builder::reading::{self, KeptReading};
use crate::builder::{Builder, Imported};
use crate::error::{Error, Limited};
use crate::files;
use crate::limits::{Limits, Options};
use crate::mapping::Stored;
use crate::names::Shown;
use crate::other_formats::refuse_other_formats;
use crate::signature::{Dim, Signature, named_once};

/// A model that is decoded, of which graphs can be made.
#[derive(Debug)]
pub(crate) struct OnnxDocument {
    model: ModelText,
    files: ElementFiles,
    /// The nodes that run, which are found once for all shapes.
    wanted: OnceLock<WantedNodes>,
    /// The nodes as they were mapped for the last set of shapes.
    kept: KeptSlot<KeptReading>,
}

impl OnnxDocument {
    /// Decodes bytes that hold all constants of the model.
    pub(crate) fn of_bytes(bytes: &[u8], limits: &Limits) -> Result<Self, Error> {
        refuse_other_formats(bytes)?;
        let (model, files) = (checked(proto::model(bytes, limits)?)?, ElementFiles::default());
        Ok(Self { model, files, wanted: OnceLock::new(), kept: KeptSlot::default() })
    }

    /// Decodes a file. A plain one is mapped, unless the options say that constants own their elements.
    pub(crate) fn open(path: &Path, options: &Options) -> Result<Self, Error> {
        let unread = |error: std::io::Error| Error::File {
            file: Shown(&path.to_string_lossy()).to_string(),
            what: files::said(&error),
        };
        let file = files::open_stream(path).map_err(unread)?;
        let metadata = file.metadata().map_err(unread)?;
        let most = options.limits.text_bytes.saturating_add(options.limits.constant_bytes);
        let length = usize::try_from(metadata.len()).unwrap_or(usize::MAX);
        Limits::check(Limited::TextBytes, length, most)?;
        let is_mapped = metadata.is_file() && !options.own_constants;
        let name = Shown(&path.to_string_lossy()).to_string();
        let mut stored = Stored::default();
        if is_mapped {
            stored = Stored::open(&name, file.try_clone().map_err(unread)?, true).map_err(unread)?;
        }
        if stored.bytes().is_none() {
            let mut bytes = Vec::new();
            let room = bytes.try_reserve_exact(length);
            room.map_err(|_| sterna::Error::OutOfMemory { size: length, align: 1 })?;
            // A FIFO does not say how long it is.
            file.take((most as u64).saturating_add(1)).read_to_end(&mut bytes).map_err(unread)?;
            stored = Stored::of_bytes(Bytes::from(bytes));
        }
        let bytes = stored.bytes().cloned().unwrap_or_default();
        Limits::check(Limited::TextBytes, bytes.len(), most)?;
        refuse_other_formats(&bytes)?;
        let model = checked(proto::model(bytes, &options.limits)?)?;
        let files = ElementFiles::beside(stored, path, !options.own_constants);
        Ok(Self { model, files, wanted: OnceLock::new(), kept: KeptSlot::default() })
    }

    /// The graph of the model under some options.
    pub(crate) fn imported(&self, options: &Options) -> Result<Imported, Error> {
        self.imported_with(KeptReading::default(), options, false).map(|(imported, _)| imported)
    }

    /// As [`imported`](Self::imported), under options of which only the shapes ever differ. What the last
    /// shapes have not changed is not mapped anew.
    pub(crate) fn imported_again(&self, options: &Options) -> Result<Imported, Error> {
        let (imported, kept) = self.imported_with(self.kept.take(), options, true)?;
        self.kept.put(kept);
        Ok(imported)
    }

    fn imported_with(
        &self,
        kept: KeptReading,
        options: &Options,
        keeps_walk: bool,
    ) -> Result<(Imported, KeptReading), Error> {
        // There is one, which has been checked.
        let Some(graph) = &self.model.graph else { return Err(no_graph()) };
        let wanted = self.wanted.get_or_init(|| WantedNodes::of(graph));
        let KeptReading { mut nodes, walk } = kept;
        if let Some((walk, before)) = walk {
            let mut reader = self.reader(nodes, options);
            if let Some(replayed) = reader.replayed(graph, wanted, walk) {
                return replayed.finished(reader.builder, reader.kept, before);
            }
            nodes = reader.kept;
        }
        let mut reader = self.reader(nodes, options);
        reader.graph(graph, wanted, keeps_walk)?;
        reading::finished(reader.builder, reader.kept, reader.ended)
    }

    fn reader<'a>(&'a self, kept: KeptNodes, options: &'a Options) -> ModelReader<'a> {
        let model = &self.model;
        let functions = model.functions.iter().map(|function| (reader::key(function), function)).collect();
        ModelReader {
            model,
            files: &self.files,
            options,
            builder: Builder::new(&options.limits),
            functions,
            lengths: BTreeMap::new(),
            used: Default::default(),
            calls: 0,
            kept,
            walk: None,
            ended: None,
        }
    }

    /// The inputs that are no constants, and the outputs, as the file describes them.
    pub(crate) fn signatures(&self) -> [Vec<Signature>; 2] {
        let Some(graph) = &self.model.graph else { return Default::default() };
        let is_constant = |info: &&ValueInfo| graph.initializers.iter().any(|text| text.name == info.name);
        let inputs = graph.inputs.iter().filter(|info| !is_constant(info)).map(signature);
        [inputs.collect(), named_once(graph.outputs.iter().map(signature))]
    }
}

fn checked(model: ModelText) -> Result<ModelText, Error> {
    if model.graph.is_none() {
        return Err(no_graph());
    }
    if model.ir_version < 3 {
        return Err(Error::Document {
            what: "the version of the format is too old".into(),
            needed: "version 3 of the format, or later",
        });
    }
    Ok(model)
}

fn no_graph() -> Error {
    Error::Document { what: "the file holds no graph".into(), needed: "a model" }
}

fn signature(info: &ValueInfo) -> Signature {
    let (data_type, _) = tensors::described(info);
    let dim = |dim: &DimText| match (dim.value, &dim.name) {
        (Some(length), _) if length >= 0 => Dim::Known(length),
        (None, Some(name)) if !name.is_empty() => Dim::Named(name.clone()),
        _ => Dim::Open,
    };
    let dims = tensors::shape(info).map(|shape| shape.dims.iter().map(dim).collect());
    Signature { names: vec![info.name.clone()], data_type: data_type.ok(), dims }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_is_given_the_same_is_not_mapped_anew() {
        // `y = Exp(x)`.
        let model = b"\x08\x0a\x3a\x31\x0a\x0b\x0a\x01x\x12\x01y\"\x03ExpZ\x13\x0a\x01x\x12\x0e\
                      \x0a\x0c\x08\x01\x12\x08\x0a\x02\x08\x02\x0a\x02\x08\x03b\x0d\x0a\x01y\x12\x08\x0a\x06\
                      \x08\x01\x12\x02\x0a\x00B\x04\x0a\x00\x10\x0d";
        let document = OnnxDocument::of_bytes(model, &Limits::default()).unwrap();
        let mapped = |rows: i64| {
            let shapes = [("x".to_owned(), vec![rows, 3])].into();
            let again = document.imported_again(&Options { shapes, ..Options::default() }).unwrap();
            assert_eq!(again.outputs[0].tensor.dims(), Some(&[rows, 3][..]));
            let kept = document.kept.take();
            let mapped = kept.nodes.mapped;
            document.kept.put(kept);
            mapped
        };
        assert_eq!([2, 2, 4, 4, 4, 2].map(mapped), [1, 1, 2, 2, 2, 3]);
    }
}
