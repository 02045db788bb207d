//! The command line: what can be asked for, and what is refused before any file is opened.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::{Parser, Subcommand};
use sterna::TensorId;

use crate::fill::Fill;

/// Runs, checks and times graphs with Sterna.
#[derive(Debug, Parser)]
#[command(name = "sterna", version, about)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Partitions a graph, compiles and executes each partition, and reports times.
    Run(RunArgs),
    /// Prints what an op must look like: every kind in a table, or one kind in detail.
    Ops {
        /// An op kind, such as Select.
        kind: Option<String>,
    },
}

/// What `sterna run` is asked for.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit codes: 0 all is well; 1 the graph, an execution or a check failed; 2 wrong usage."
)]
pub(crate) struct RunArgs {
    /// The graph in JSON; `-` reads standard input.
    pub(crate) graph: PathBuf,
    /// Reads an input tensor from a file; its type and shape must be those of the tensor.
    #[arg(long, value_name = "ID=FILE.npy", value_parser = id_and_path)]
    pub(crate) input: Vec<(TensorId, PathBuf)>,
    /// Writes a computed tensor to a file.
    #[arg(long, value_name = "ID=FILE.npy", value_parser = id_and_path)]
    pub(crate) output: Vec<(TensorId, PathBuf)>,
    /// Fills an input tensor: random (the default), zeros, ones, causal (1 on and below the diagonal of the last
    /// two dims), or one value everywhere (a number, inf, -inf, nan, true, false).
    #[arg(long, value_name = "ID=FILL", value_parser = id_and_fill)]
    pub(crate) fill: Vec<(TensorId, Fill)>,
    /// Gives an input tensor another shape, such as 3=2x8x128x128; the shapes of all that is computed from it are
    /// inferred anew. `ID=` with nothing behind it is a scalar.
    #[arg(long, value_name = "ID=SHAPE", value_parser = id_and_shape)]
    pub(crate) override_shape: Vec<(TensorId, Vec<i64>)>,
    /// Seeds the random fill.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,
    /// Threads to run on; as many as the machine runs at once unless given.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub(crate) threads: Option<u16>,
    /// Executions of each compiled partition, for the times.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) repeat: u32,
    /// Compares every output of every supported partition with the reference interpreter: bit for bit, but for
    /// functions whose stated accuracy is less.
    #[arg(long)]
    pub(crate) check: bool,
    /// Prints one JSON document instead of text.
    #[arg(long)]
    pub(crate) json: bool,
}

impl RunArgs {
    /// Checks that no tensor is spoken of twice.
    pub(crate) fn check_ids(&self) -> Result<()> {
        once("--input", self.input.iter().map(|(id, _)| *id))?;
        once("--output", self.output.iter().map(|(id, _)| *id))?;
        once("--fill", self.fill.iter().map(|(id, _)| *id))?;
        once("--override-shape", self.override_shape.iter().map(|(id, _)| *id))?;
        match self.input.iter().find(|(id, _)| self.fill.iter().any(|(filled, _)| id == filled)) {
            Some((id, _)) => bail!("tensor {id} is given by --input and by --fill; keep one of the two"),
            None => Ok(()),
        }
    }
}

fn once(option: &str, ids: impl Iterator<Item = TensorId>) -> Result<()> {
    let mut ids: Vec<TensorId> = ids.collect();
    ids.sort_unstable();
    match ids.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => bail!("{option} names tensor {} more than once; keep one", pair[0]),
        None => Ok(()),
    }
}

/// Splits `ID=REST`.
fn id_and_rest(text: &str) -> Result<(TensorId, &str), String> {
    let (id, rest) =
        text.split_once('=').ok_or("write it as ID=..., with the id of a tensor before the `=`")?;
    let id =
        id.parse().map_err(|_| format!("{id:?} is no tensor id; write a whole number before the `=`"))?;
    Ok((id, rest))
}

fn id_and_path(text: &str) -> Result<(TensorId, PathBuf), String> {
    match id_and_rest(text)? {
        (_, "") => Err("name a file after the `=`".into()),
        (id, path) => Ok((id, path.into())),
    }
}

fn id_and_fill(text: &str) -> Result<(TensorId, Fill), String> {
    let (id, fill) = id_and_rest(text)?;
    Ok((id, fill.parse()?))
}

fn id_and_shape(text: &str) -> Result<(TensorId, Vec<i64>), String> {
    let (id, shape) = id_and_rest(text)?;
    if shape.is_empty() {
        return Ok((id, Vec::new()));
    }
    let dim = |dim: &str| match dim.parse() {
        Ok(dim @ 0..) => Ok(dim),
        _ => Err(format!("{dim:?} is no dim; write a shape as dims joined by x, such as 2x8x128x128")),
    };
    Ok((id, shape.split('x').map(dim).collect::<Result<_, _>>()?))
}
