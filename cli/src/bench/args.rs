//! The arguments of `sterna bench`.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::str::FromStr;
use std::thread::available_parallelism;
use std::time::Duration;

use clap::{ArgGroup, ValueEnum};

use crate::endings;
use crate::fill::Fill;
use crate::form::FormOptions;
use crate::named::Named;
use crate::parse::{self, MAX_THREADS, join, named_fill};
use crate::source::GraphOptions;

/// The arguments of `sterna bench`.
#[derive(Debug, clap::Args)]
#[command(
    group = ArgGroup::new("subject").required(true).args(["graph", "suite", "load"]),
    after_help = join(&[HOW, EXAMPLES, EXIT_CODES])
)]
pub(crate) struct BenchArgs {
    /// The graph in JSON, or a model of ONNX or OpenVINO; `-` reads standard input. Each partition that runs
    /// is a case, on inputs filled at random.
    pub(crate) graph: Option<PathBuf>,
    /// Measures cases that are built in.
    #[arg(long, value_enum, conflicts_with = "GraphOptions")]
    pub(crate) suite: Option<Suite>,
    /// Measures nothing and takes what --save wrote.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["threads", "time", "list", "GraphOptions"])]
    pub(crate) load: Option<PathBuf>,
    /// Numbers of threads, each measured for itself; unless given, 1 and as many as the machine runs at once.
    #[arg(long, value_name = "N,N")]
    pub(crate) threads: Option<Threads>,
    /// Callers that run a graph as a whole at once, for its latency and how many runs a second there are; 1
    /// unless given. A graph of one partition is measured as a whole if this is given.
    #[arg(long, value_name = "N", value_parser = parse::whole(1, parse::MAX_STREAMS))]
    #[arg(conflicts_with_all = ["suite", "load"])]
    pub(crate) streams: Option<u16>,
    /// How long to measure each case on each number of threads, warm-up aside.
    #[arg(long, value_name = "SECONDS", default_value = "0.5", value_parser = parse::seconds(3600.0))]
    pub(crate) time: Duration,
    /// Takes only cases whose names contain this; given more than once, any of them.
    #[arg(long, value_name = "TEXT")]
    pub(crate) filter: Vec<String>,
    /// Prints the names of the cases and measures nothing.
    #[arg(long)]
    pub(crate) list: bool,
    /// Fills a tensor of GRAPH, as `sterna run` does.
    #[arg(long, value_name = "NAME=FILL", value_parser = named_fill)]
    #[arg(conflicts_with_all = ["suite", "load"])]
    pub(crate) fill: Vec<Named<Fill>>,
    #[command(flatten)]
    pub(crate) options: GraphOptions,
    /// Seeds the random fill.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = parse::whole(0, u64::MAX))]
    pub(crate) seed: u64,
    /// Writes what was measured as JSON, for --against and --load.
    #[arg(long, value_name = "FILE.json", value_parser = endings::file(&["json"]))]
    pub(crate) save: Option<PathBuf>,
    /// Compares with what --save wrote.
    #[arg(long, value_name = "FILE")]
    pub(crate) against: Option<PathBuf>,
    /// Exits with 1 if a case is slower than in the saved run, which must be of this machine.
    #[arg(long, requires = "against")]
    pub(crate) fail_if_slower: bool,
    /// Draws each case beneath the streaming limit by the bytes that it moves, with its quartiles.
    #[arg(long, value_name = "FILE.svg", value_parser = endings::file(&["svg"]))]
    pub(crate) plot: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) form: FormOptions,
}

impl BenchArgs {
    /// True if the filters take a case.
    pub(crate) fn wants(&self, case: &str) -> bool {
        self.filter.is_empty() || self.filter.iter().any(|filter| case.contains(filter.as_str()))
    }
}

/// One line for each paragraph: the line breaks are those of the terminal.
const HOW: &str = "How it measures:

A case is executed a few times to warm up, then in rounds: each times some executions that together take \
2 ms or more, and as many milliseconds of the streaming limit, in alternating order. Times are medians \
over the rounds, quartiles say between what parts below and above the median the middle half of the \
rounds lies, share is the median of the limit's time divided by the case's.

The streaming limit is the machine's own: as many bytes as the case reads and writes, streamed by plain \
copies from one buffer to another (what is read beyond that is summed, what is written beyond it filled). \
The fastest of several ways is taken: on one thread or on as many as the case has, in one piece, where \
the system's copy stores non-temporally if it is long, in blocks of 32 KiB, or of 512 bytes at two or \
four places in rotation. A case that reads only what it needs of its inputs may pass it, and so may one \
that fits into a cache, where wide vectors count.

A graph of several partitions is also a case as a whole, in one session that keeps its constants. The \
second table has the latency of single runs, of --streams callers at once, measured as long again behind \
the rounds: the least, and what 50, 90 and 99 of 100 runs do not exceed.

The limit of a case of `attention` is the longer of that and of its arithmetic: as many multiplications \
and additions in registers, by the widest instructions for its type. Pairs of a query and a key that a \
mask leaves out count as no arithmetic.

--plot draws the streaming limit as lines, by size, read and written in equal parts, the best of several \
runs.

--against judges by the ratio of a case's time to that of the limit measured beside it, so that a machine \
that is slower as a whole does not count. A case is faster or slower where the middle halves of both runs \
do not overlap, the medians differ by more than 3 %, and the medians of the time itself differ the same \
way by more than 3 %; where the time does not, the two disagree. A case is the same where the medians \
differ by less and the middle halves by at most 10 %. Otherwise it cannot tell; a longer --time or a \
machine with nothing else to do help. It compares runs of different machines as well, and says so.";

const EXAMPLES: &str = "\
Examples:
  sterna bench --suite select --threads 1,2
  sterna bench graph.json --shape cond=1x1x512x512 --fill cond=causal
  sterna bench model.onnx --dim seq=128 --filter whole --threads 1,2 --streams 4
  sterna bench --suite fusion --save before.json
  sterna bench --suite fusion --against before.json --fail-if-slower --plot fusion.svg
  sterna bench --load after.json --against before.json --format markdown";

const EXIT_CODES: &str = "\
Exit codes:
  0    all is well
  1    the graph, or something done with it, failed, or --fail-if-slower found a case that is slower
  2    wrong usage, or a file that cannot be used
  130  interrupted by Ctrl-C, after the cases that were finished";

/// Cases that are built in.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Suite {
    /// One select, of the shapes that masks of transformers and kernels of other libraries are known by.
    Select,
    /// Pointwise groups around selects, each at three sizes.
    Fusion,
    /// Attention with and without masks, of prompts and of one query on a cache.
    Attention,
    /// Matrix products from 16³ to 2048³, and of few rows.
    Matmul,
    /// SoftMax, norms and sums of rows.
    Rows,
}

/// Numbers of threads, each once, in the order given.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Threads(pub(crate) Vec<usize>);

impl FromStr for Threads {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.trim().is_empty() {
            return Err(
                "it names no number; write numbers of threads with commas between them, such as 1,2".into()
            );
        }
        let mut seen = BTreeSet::new();
        let number = |text: &str| match text.trim().parse() {
            Ok(number) if (1..=usize::from(MAX_THREADS)).contains(&number) => Ok(number),
            _ => Err(format!(
                "{text:?} is no number of threads; write numbers from 1 to {MAX_THREADS}, such as 1,2"
            )),
        };
        let numbers = text.split(',').map(number).collect::<Result<Vec<usize>, _>>()?;
        Ok(Self(numbers.into_iter().filter(|&number| seen.insert(number)).collect()))
    }
}

impl Default for Threads {
    fn default() -> Self {
        match available_parallelism().map_or(1, NonZeroUsize::get) {
            1 => Self(vec![1]),
            most => Self(vec![1, most]),
        }
    }
}
