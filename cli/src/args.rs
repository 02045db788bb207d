//! The command line: its commands and options, and the checks that need no file.

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use clap_complete::Shell;

use crate::batch::args::BatchArgs;
use crate::bench::args::BenchArgs;
use crate::convert::ConvertArgs;
use crate::endings;
use crate::expect::tolerance;
use crate::fill::Fill;
use crate::form::FormOptions;
use crate::given::Given;
use crate::inspect::InspectArgs;
use crate::named::Named;
use crate::parse::{
    EXIT_CODES, MAX_STREAMS, StateArg, join, named_fill, named_given, named_path, named_state, threads, whole,
};
use crate::source::GraphArgs;

/// Shows, runs, checks and times graphs with Sterna.
#[derive(Debug, Parser)]
#[command(name = "sterna", version, about, after_help = join(&[HELP_EXAMPLES, ENVIRONMENT, EXIT_CODES]))]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const HELP_EXAMPLES: &str = "Examples:
  sterna inspect graph.json -o graph.html
  sterna run graph.json --check
  sterna bench --suite select
  sterna batch graphs.batch --check
  sterna convert model.xml -o graph.json
  sterna ops Select";

const ENVIRONMENT: &str = "Environment:
  STERNA_MAX_CPU_ISA  the highest CPU level to use: portable, avx2, avx512 or
                      neon, and avx512_vnni, avx512_bf16 or avx512_amx for what
                      CPUs add
  STERNA_NUM_THREADS  the most threads of an engine; without it OMP_NUM_THREADS
  NO_COLOR            set to anything, it turns colours off";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Partitions a graph, compiles and executes each partition, and reports times.
    Run(RunArgs),
    /// Shows a graph, its partitions, the plan of each, and why neighbours were not fused.
    Inspect(InspectArgs),
    /// Measures how fast partitions run, beside what plain copies of as many bytes take on this machine.
    Bench(Box<BenchArgs>),
    /// Runs, and checks, the graphs that batch files of benchdnn's graph driver list.
    Batch(BatchArgs),
    /// Writes a graph or a model as graph JSON.
    Convert(ConvertArgs),
    /// Prints what an op must look like: every kind in a table, or one kind in detail.
    #[command(after_help = join(&[OPS_EXAMPLES, EXIT_CODES]))]
    Ops {
        /// An op kind, such as Select.
        kind: Option<String>,
    },
    /// Prints a script that completes commands and options in a shell.
    #[command(after_help = join(&[COMPLETIONS_EXAMPLES, EXIT_CODES]))]
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Prints the manual page, or writes one page for each command into a folder.
    #[command(after_help = join(&[MAN_EXAMPLES, EXIT_CODES]))]
    Man {
        /// The folder, which is made if it is missing.
        dir: Option<PathBuf>,
    },
}

const OPS_EXAMPLES: &str = "Examples:
  sterna ops
  sterna ops Select";

const COMPLETIONS_EXAMPLES: &str = "Examples:
  sterna completions bash > ~/.local/share/bash-completion/completions/sterna
  sterna completions fish > ~/.config/fish/completions/sterna.fish";

const MAN_EXAMPLES: &str = "Examples:
  sterna man | man -l -
  sterna man ~/.local/share/man/man1";

/// The arguments of `sterna run`.
#[derive(Debug, clap::Args)]
#[command(after_help = join(&[RUN_EXAMPLES, EXIT_CODES]))]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) source: GraphArgs,
    /// Writes a computed tensor to an .npy file, or into an .npz file, of which several may be part; FILE.npz
    /// alone takes all outputs of the graph.
    #[arg(long, value_name = "NAME=FILE|FILE.npz", value_parser = named_path)]
    pub(crate) output: Vec<Named<PathBuf>>,
    /// Fills a tensor: random (the default, in a range that suits the ops that use it), zeros, ones, causal
    /// (1 on and below the diagonal of the last two dims), padding (1 in the first elements of each row, a
    /// random number of them), or one value everywhere (a number, inf, -inf, nan, true, false). A result that
    /// is filled is what the partitions that follow read, whatever was computed.
    #[arg(long, value_name = "NAME=FILL", value_parser = named_fill)]
    pub(crate) fill: Vec<Named<Fill>>,
    /// Seeds the random fill.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = whole(0, u64::MAX))]
    pub(crate) seed: u64,
    /// Threads to run on; as many as the machine runs at once unless given.
    #[arg(long, value_name = "N", value_parser = threads)]
    pub(crate) threads: Option<u16>,
    /// Callers that run the graph as a whole at once, each on outputs of its own.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole(1, MAX_STREAMS))]
    #[arg(conflicts_with = "check")]
    pub(crate) streams: u16,
    /// Runs steps, each of which has an output of the one before as an input, such as the keys and values of
    /// a decoder: by their names in the model, of which `auto` finds all that names tell. A run of --steps
    /// takes the place of that by partitions. --input gives a state the rows with which it begins; one of
    /// which --shape gives the dims, none of them 0, begins as zeros and does not grow, as those of recurrent
    /// layers.
    #[arg(long, value_name = "PAST=PRESENT|auto", value_parser = named_state)]
    #[arg(conflicts_with_all = ["check", "streams", "repeat"])]
    pub(crate) state: Vec<StateArg>,
    /// The number of steps.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = whole(1, u32::MAX))]
    #[arg(requires = "state")]
    pub(crate) steps: u32,
    /// Makes an input longer along its last open dim by the rows that the state has gained, such as the mask
    /// of a decoder.
    #[arg(long, value_name = "NAME", requires = "state")]
    pub(crate) grow: Vec<String>,
    /// Executions of each compiled partition that are timed, after one that is not, and runs of the graph as
    /// a whole, of each caller. Unless given, as many as take 50 ms, and a second for all partitions
    /// together, and for the graph; if the first one takes as long, it is the only one, and tells no speed.
    #[arg(long, value_name = "N", value_parser = whole(1, u32::MAX))]
    pub(crate) repeat: Option<u32>,
    /// Compares every output of every supported partition with the reference interpreter: bit for bit, but
    /// for functions whose stated accuracy is less. Attention is held against bounds, and keys that it masks
    /// add nothing there, even NaN or infinite ones. What neither a partition nor the interpreter computes is
    /// made up: filled as inputs are.
    #[arg(long)]
    pub(crate) check: bool,
    /// Compares a computed tensor with that of another program, in a file as --input reads them: an .npy
    /// file, an array of an .npz file, or a .pb file of the test data of ONNX. FILE.npz and FILE.pb alone
    /// name the outputs.
    #[arg(long, value_name = "NAME=FILE|FILE", value_parser = named_given)]
    pub(crate) expect: Vec<Named<Given>>,
    /// How far an element may be from what is expected, and from --rtol times that beside: as in
    /// numpy.testing.assert_allclose, whose defaults these are.
    #[arg(long, value_name = "ERROR", default_value_t = 0.0, value_parser = tolerance, requires = "expect")]
    pub(crate) atol: f64,
    /// How far an element may be from what is expected, as a part of that.
    #[arg(long, value_name = "PART", default_value_t = 1e-7, value_parser = tolerance, requires = "expect")]
    pub(crate) rtol: f64,
    /// Writes what the first runs of the graph as a whole spent their time on, as a trace that
    /// ui.perfetto.dev and Chrome show: a span for each partition and phase. A table by kinds of ops follows
    /// the report.
    #[arg(long, value_name = "FILE.json", value_parser = endings::file(&["json"]), conflicts_with = "check")]
    pub(crate) profile: Option<PathBuf>,
    /// Names each op that is checked in a line on standard error, even if that is no terminal. On a terminal
    /// a bar does so.
    #[arg(long)]
    pub(crate) progress: bool,
    /// Says of each partition which fast forms its plan did not take, and why, and adds a table of the time
    /// by kinds of ops.
    #[arg(long, short)]
    pub(crate) verbose: bool,
    #[command(flatten)]
    pub(crate) form: FormOptions,
}

const RUN_EXAMPLES: &str = "Examples:
  sterna run graph.json --check
  sterna run graph.json --repeat 100 --threads 1
  sterna run graph.json --format csv > times.csv
  sterna run graph.json --input cond=mask.npy --fill then=ones --output dst=out.npy
  sterna run graph.json --shape then=2x12x128 --type bf16 --attr 0.auto_broadcast=numpy
  sterna run model.onnx --input inputs.npz --output results.npz
  sterna run model.onnx --input input_0.pb --expect output_0.pb --rtol 1e-3 --atol 1e-5
  sterna run model.onnx --dim seq=128 --threads 1 --streams 4 --profile trace.json
  sterna run decoder.onnx --state auto --shape input_ids=1x1 --steps 100
  sterna run - --json < graph.json
  sterna run model.xml --input mask=mask.npy --output scores=out.npy
  sterna run select.xml --input cond='[1,0]' --input then='[1,2]' --input else='[3,4]'";
