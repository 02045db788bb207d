//! `sterna convert`: a graph or a model as graph JSON.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, anyhow};
use sterna::TensorId;
use sterna_import::Constant;

use crate::command_error::CommandError;
use crate::endings;
use crate::names::Names;
use crate::parse::{EXIT_CODES, join};
use crate::source::GraphArgs;
use crate::{npy, npz};

/// The arguments of `sterna convert`.
#[derive(Debug, clap::Args)]
#[command(after_help = join(&[EXAMPLES, EXIT_CODES]))]
pub(crate) struct ConvertArgs {
    #[command(flatten)]
    pub(crate) source: GraphArgs,
    /// Writes to a file instead of standard output.
    #[arg(short, long, value_name = "FILE.json", value_parser = endings::file(&["json"]))]
    pub(crate) output: Option<PathBuf>,
    /// Writes the constants of a model, which graph JSON cannot hold: into FILE.npz, by the names that
    /// `sterna run graph.json --input FILE.npz` takes them by, or into a folder, ID.npy each. In the graph
    /// they are inputs.
    #[arg(long, value_name = "FILE.npz|DIR", value_parser = archive_or_folder)]
    pub(crate) constants: Option<PathBuf>,
}

/// Reads the name of an archive or of a folder, which has no ending unless it is there.
fn archive_or_folder(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    match path.is_dir() {
        true => Ok(path),
        false => endings::file(&["npz"])(text).map_err(|why| format!("{why}, or name a folder")),
    }
}

const EXAMPLES: &str = "Examples:
  sterna convert model.xml -o graph.json
  sterna convert model.xml -o graph.json --constants weights.npz
  sterna convert model.xml --shape tokens=1x128 > graph.json";

/// The text, and what the reader should know besides.
pub(crate) struct Converted {
    pub(crate) text: String,
    pub(crate) notes: Vec<String>,
}

/// Reads a graph or model, and gives it as graph JSON.
pub(crate) fn convert(args: &ConvertArgs) -> Result<Converted, CommandError> {
    let mut loaded = args.source.load()?;
    let mut notes = std::mem::take(&mut loaded.notes);
    match &args.constants {
        Some(file) if file.extension().is_some_and(|extension| extension == "npz") => {
            // By the names of the graph as it is read back.
            let names = Names::of_graph(&loaded.graph);
            let value = |(id, constant): (&TensorId, &Constant)| -> Result<_> {
                Ok((names.key(*id), *id, constant.to_value()?))
            };
            let values = loaded.constants.iter().map(value).collect::<Result<Vec<_>>>();
            let written = values.and_then(|values| npz::write(file, &values));
            notes.extend(written.map_err(CommandError::usage)?);
        }
        Some(folder) => {
            fs::create_dir_all(folder)
                .with_context(|| format!("cannot make {}", folder.display()))
                .map_err(CommandError::usage)?;
            for (id, value) in &loaded.constants {
                let path = folder.join(format!("{id}.npy"));
                let value = value.to_value().map_err(|error| CommandError::usage(anyhow!(error)))?;
                let written = npy::write(&path, &loaded.names.shown(*id), &value);
                notes.extend(written.map_err(CommandError::usage)?);
            }
        }
        None if loaded.constants.is_empty() => {}
        None => {
            let ids: Vec<String> = loaded.constants.keys().map(ToString::to_string).collect();
            notes.push(format!(
                "the values of constant tensors {} are not in the graph; --constants FILE.npz writes them \
                 to a file",
                ids.join(", ")
            ));
        }
    }
    Ok(Converted { text: loaded.graph.to_json(), notes })
}
