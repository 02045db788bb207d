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
use crate::builder::kept::{KeptNodes, KeptSlot};
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
    kept: KeptSlot<KeptNodes>,
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
        self.read(options, &mut KeptNodes::default())
    }

    /// As [`imported`](Self::imported), under options of which only the shapes ever differ. What the last
    /// shapes have not changed is not mapped anew.
    pub(crate) fn imported_again(&self, options: &Options) -> Result<Imported, Error> {
        let mut kept = self.kept.take();
        let imported = self.read(options, &mut kept)?;
        self.kept.put(kept);
        Ok(imported)
    }

    fn read(&self, options: &Options, kept: &mut KeptNodes) -> Result<Imported, Error> {
        reader::imported((&self.net, &self.wiring), Weights::Stored(&self.weights), options, kept)
    }

    /// The inputs and the outputs, as the text describes them.
    pub(crate) fn signatures(&self) -> Result<[Vec<Signature>; 2], Error> {
        signatures(&self.net, &self.wiring)
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
