//! Files of other formats that are taken for models: each is refused by its name.

use crate::error::Error;

/// A format that no reader takes.
struct OtherFormat {
    /// True for the first bytes of a file of the format.
    is: fn(&[u8]) -> bool,
    what: &'static str,
    needed: &'static str,
}

const OF_TORCH: &str = "a file that `torch.onnx.export` writes";
const OF_TENSORFLOW: &str = "a file that tf2onnx or OpenVINO makes of it";
const OF_WEIGHTS: &str = "a file of ONNX or OpenVINO, which has the layers too";

const OTHER_FORMATS: &[OtherFormat] = &[
    OtherFormat {
        is: |bytes| bytes.get(4..8) == Some(b"ORTM"),
        what: "the file has the format of ONNX Runtime's own (.ort)",
        needed: "the .onnx from which it was made",
    },
    OtherFormat {
        is: |bytes| bytes.get(4..8) == Some(b"TFL3"),
        what: "the file is a model of TensorFlow Lite",
        needed: OF_TENSORFLOW,
    },
    OtherFormat {
        is: |bytes| bytes.starts_with(b"PK\x03\x04"),
        what: "the file is a ZIP archive, as `torch.save` writes",
        needed: OF_TORCH,
    },
    OtherFormat {
        is: |bytes| matches!(bytes, [0x80, 2..=5, ..]),
        what: "the file is a pickle of Python, as older `torch.save` writes",
        needed: OF_TORCH,
    },
    OtherFormat {
        // Eight bytes tell the length of a JSON object.
        is: |bytes| bytes.get(5..10) == Some(b"\0\0\0{\""),
        what: "the file holds weights alone (safetensors)",
        needed: OF_WEIGHTS,
    },
    OtherFormat {
        is: |bytes| bytes.starts_with(b"GGUF"),
        what: "the file holds weights alone (GGUF)",
        needed: OF_WEIGHTS,
    },
    OtherFormat {
        is: |bytes| bytes.starts_with(b"\x89HDF\r\n\x1a\n"),
        what: "the file has the format HDF5, as Keras writes",
        needed: OF_TENSORFLOW,
    },
    OtherFormat {
        // The version of the schema, then a graph of 128 bytes or more: in old files of ONNX, the name of a
        // producer.
        is: |bytes| matches!(bytes, [0x08, 1, 0x12, 0x80..=0xff, ..]),
        what: "the file is a SavedModel of TensorFlow",
        needed: OF_TENSORFLOW,
    },
    OtherFormat { is: is_graph_def, what: "the file is a graph of TensorFlow", needed: OF_TENSORFLOW },
];

/// True for a first field that is a node, whose first fields are its name and its op.
fn is_graph_def(bytes: &[u8]) -> bool {
    let name = match bytes {
        [0x0a, 0..0x80, 0x0a, name @ 0..0x80, ..] => Some((4, *name)),
        [0x0a, 0x80..=0xff, 1..0x80, 0x0a, name @ 0..0x80, ..] => Some((5, *name)),
        _ => None,
    };
    name.is_some_and(|(start, length)| bytes.get(start + usize::from(length)) == Some(&0x12))
}

/// Refuses a file of another format by its first bytes, of which some hundreds are enough: what other
/// libraries save of a model, which people hand over by mistake.
///
/// # Errors
///
/// [`Error::Document`].
///
/// ```
/// let error = sterna_import::refuse_other_formats(b"\x18\0\0\0ORTM\0\0").unwrap_err();
/// assert!(error.to_string().ends_with("needed: the .onnx from which it was made"));
/// assert!(sterna_import::refuse_other_formats(b"<net>").is_ok());
/// ```
pub fn refuse_other_formats(first: &[u8]) -> Result<(), Error> {
    match OTHER_FORMATS.iter().find(|other| (other.is)(first)) {
        Some(other) => Err(Error::Document { what: other.what.into(), needed: other.needed }),
        None => Ok(()),
    }
}
