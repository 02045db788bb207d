//! The arguments of `sterna batch`.

use std::path::PathBuf;
use std::time::Duration;

use sterna::Policy;

use crate::parse::{self, EXIT_CODES, join};
use crate::source::policies;

/// The arguments of `sterna batch`.
#[derive(Debug, clap::Args)]
#[command(after_help = join(&[HOW, EXAMPLES, EXIT_CODES]))]
pub(crate) struct BatchArgs {
    /// Batch files, in the form of benchdnn's graph driver.
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// A folder with graphs and batch files that are not beside the batch file that names them; several are
    /// searched in turn.
    #[arg(long, value_name = "DIR")]
    pub(crate) case_dir: Vec<PathBuf>,
    /// Compares what each partition computes with the reference interpreter, as `sterna run --check` does.
    #[arg(long)]
    pub(crate) check: bool,
    /// How long one graph may take, --check included.
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = parse::seconds(LONGEST))]
    pub(crate) time_limit: Duration,
    /// Threads to run on; as many as the machine runs at once unless given.
    #[arg(long, value_name = "N", value_parser = parse::threads)]
    pub(crate) threads: Option<u16>,
    /// Which ops share a partition: those that gain from it (fusion, the default), or none (debug).
    #[arg(long, value_name = "POLICY", value_parser = policies())]
    pub(crate) policy: Option<Policy>,
    /// Exits with 1 as well if a graph is refused, runs out of time, or has another number of partitions than
    /// --expected-n-partitions says.
    #[arg(long)]
    pub(crate) strict: bool,
    /// Compiles each graph and runs none: says in short time which of them are refused, and why.
    #[arg(long, conflicts_with_all = ["check", "time_limit", "commands"])]
    pub(crate) dry_run: bool,
    /// Runs nothing, and prints the command that runs each graph alone.
    #[arg(long, conflicts_with_all = ["check", "strict", "json", "time_limit"])]
    pub(crate) commands: bool,
    /// Prints one JSON document instead of text.
    #[arg(long)]
    pub(crate) json: bool,
}

const HOW: &str = "Each --case=GRAPH of a batch file makes a graph of every combination of the values that \
the settings before it list, until --reset: --in-shapes (--io-shapes is the same), --op-attrs, --op-kind, \
--dt, --tensor-property, --attr-fpmath and --mb. Words that say how benchdnn runs are passed over. Each \
graph is a line: passed (ran, and equals the reference), ran (nothing was compared), compiled (--dry-run), \
refused (Sterna does not run it), wrong, failed, late (ran out of time) or missing (there is no such file).";

const EXAMPLES: &str = "Examples:
  sterna batch select.batch --check
  sterna batch harness_mha_ci --case-dir inputs/graph --check --time-limit 20
  sterna batch inputs/graph/test_graph_ci --dry-run
  sterna batch harness_mha_ci --case-dir inputs/graph --commands";

/// The longest time limit, a week.
const LONGEST: f64 = 7.0 * 24.0 * 3600.0;
