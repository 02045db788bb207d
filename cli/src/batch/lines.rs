//! A batch file as the cases that it names, each with the settings in force there.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::{self, Display, Formatter};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::batch::rewrite::{Alternative, Knob};
use crate::batch::word::{self, Word};
use crate::words::{did_you_mean, plain};

/// The most graphs of one `--case`, and of all together.
const MAX_OF_CASE: u64 = 10_000;
const MAX_GRAPHS: u64 = 1_000_000;

/// The most files that are within each other, and that are read.
const MAX_DEPTH: usize = 8;
const MAX_FILES: usize = 1_000;

/// The effect of a word of a batch file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// Lists values, of which each makes a graph.
    Lists(Knob),
    /// Says the number of partitions.
    Expects,
    /// Names a graph.
    Names,
    /// Names another batch file.
    Includes,
    /// Takes all settings back.
    Resets,
    /// Says where graphs run.
    Places,
    /// Says how benchdnn runs, and nothing about graphs.
    Passes,
    /// Cannot be taken, for a reason.
    Fails(&'static str),
}

/// The options of benchdnn that stand in batch files of its graph driver.
const OPTIONS: &[(&str, Role)] = &[
    ("case", Role::Names),
    ("in-shapes", Role::Lists(Knob::InShapes)),
    ("io-shapes", Role::Lists(Knob::InShapes)),
    ("op-attrs", Role::Lists(Knob::OpAttrs)),
    ("dt", Role::Lists(Knob::DataTypes)),
    ("op-kind", Role::Lists(Knob::OpKinds)),
    ("tensor-property", Role::Lists(Knob::Properties)),
    ("attr-fpmath", Role::Lists(Knob::MathModes)),
    ("fpmath", Role::Lists(Knob::MathModes)),
    ("mb", Role::Lists(Knob::Batches)),
    ("expected-n-partitions", Role::Expects),
    ("batch", Role::Includes),
    ("reset", Role::Resets),
    ("engine", Role::Places),
    ("graph", Role::Passes),
    ("allow-enum-tags-only", Role::Passes),
    ("attr-same-pd-check", Role::Passes),
    ("canonical", Role::Passes),
    ("check-ref-impl", Role::Passes),
    ("cold-cache", Role::Passes),
    ("cpu-isa-hints", Role::Passes),
    ("ctx-exe", Role::Passes),
    ("ctx-init", Role::Passes),
    ("execution-mode", Role::Passes),
    ("fast-ref", Role::Passes),
    ("fast-ref-gpu", Role::Passes),
    ("fix-times-per-prb", Role::Passes),
    ("global-impl", Role::Passes),
    ("impl", Role::Passes),
    ("max-ms-per-prb", Role::Passes),
    ("mem-check", Role::Passes),
    ("memory-kind", Role::Passes),
    ("mode", Role::Passes),
    ("mode-modifier", Role::Passes),
    ("num-streams", Role::Passes),
    ("perf-template", Role::Passes),
    ("repeats-per-prb", Role::Passes),
    ("skip-impl", Role::Passes),
    ("stream-kind", Role::Passes),
    ("summary", Role::Passes),
    ("verbose", Role::Passes),
    ("start", Role::Fails("it leaves out cases by their numbers, which are not the same here")),
    ("attr-deterministic", Role::Fails("results here are always the same")),
    ("attr-acc-mode", Role::Fails("--op-attrs=ID:accumulation_mode:MODE says so of a MatMul")),
];

/// The drivers of benchdnn beside that of graphs.
const DRIVERS: &[&str] = &[
    "binary",
    "bnorm",
    "brgemm",
    "concat",
    "conv",
    "deconv",
    "eltwise",
    "gnorm",
    "ip",
    "lnorm",
    "lrn",
    "matmul",
    "pool",
    "prelu",
    "reduction",
    "reorder",
    "resampling",
    "rnn",
    "self",
    "shuffle",
    "softmax",
    "sum",
    "zeropad",
];

/// Why a word of a batch file cannot be taken.
#[derive(Debug)]
pub(crate) struct BatchFault {
    file: PathBuf,
    line: usize,
    word: String,
    complaint: Complaint,
}

#[derive(Debug)]
enum Complaint {
    /// No option is called so; the question behind it may be empty.
    Unknown(String),
    /// The option is one of another driver.
    Driver,
    /// The option needs a value, or takes none.
    Lacks,
    Excess,
    /// The value cannot be.
    Value(String),
    /// The option cannot be taken.
    Refused(&'static str),
    /// The file that is included is not there, or cannot be read.
    Missing,
    Unreadable(String),
    TooDeep,
    TooManyFiles,
    /// So many graphs.
    TooMany {
        graphs: u64,
        most: u64,
        of: &'static str,
    },
}

impl Display for BatchFault {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { file, line, word, complaint } = self;
        write!(f, "{}, line {line}, `{}`: {complaint}", file.display(), plain(word))
    }
}

impl Error for BatchFault {}

impl Display for Complaint {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(hint) => write!(f, "there is no such option{hint}"),
            Self::Driver => f.write_str("files of another driver than that of graphs cannot be read"),
            Self::Lacks => f.write_str("a value is missing behind a `=`"),
            Self::Excess => f.write_str("it takes no value"),
            Self::Value(what) => f.write_str(what),
            Self::Refused(why) => write!(f, "this option cannot be taken: {why}"),
            Self::Missing => {
                f.write_str("there is no such file, neither beside this one nor in a --case-dir")
            }
            Self::Unreadable(why) => write!(f, "the file cannot be read: {why}"),
            Self::TooDeep => write!(f, "more than {MAX_DEPTH} files are within each other"),
            Self::TooManyFiles => write!(f, "more than {MAX_FILES} files are read"),
            Self::TooMany { graphs, most, of } => {
                write!(f, "the settings make {graphs} graphs of {of}, and at most {most} are taken")
            }
        }
    }
}

/// The settings that are in force.
#[derive(Debug, Clone)]
struct Settings {
    /// The values of each setting that lists some.
    lists: [Rc<Vec<Alternative>>; Knob::COUNT],
    /// The number of partitions that there should be; 0 is any.
    expected: usize,
}

impl Default for Settings {
    fn default() -> Self {
        let as_in_the_file = Rc::new(vec![Alternative::new()]);
        Self { lists: [(); Knob::COUNT].map(|()| as_in_the_file.clone()), expected: 1 }
    }
}

/// A graph file that a batch file names, with the settings in force there.
#[derive(Debug, Clone)]
pub(crate) struct CaseLine {
    /// The batch file, and the line in it.
    pub(crate) file: Rc<Path>,
    pub(crate) line: usize,
    /// As it is written.
    pub(crate) name: String,
    /// None if there is no such file.
    pub(crate) path: Option<PathBuf>,
    settings: Rc<Settings>,
}

impl CaseLine {
    /// The number of partitions that there should be; 0 is any.
    pub(crate) fn expected(&self) -> usize {
        self.settings.expected
    }

    /// The graphs that the settings make of the file, as options of `sterna run`; the last setting varies
    /// fastest.
    pub(crate) fn graphs(&self) -> impl Iterator<Item = Alternative> {
        let lists = &self.settings.lists;
        let count = lists.iter().fold(1, |count: usize, list| count.saturating_mul(list.len()));
        (0..count).map(|mut index| {
            let mut chosen: Vec<&Alternative> = Vec::new();
            for list in lists.iter().rev() {
                chosen.push(&list[index % list.len()]);
                index /= list.len();
            }
            chosen.into_iter().rev().flatten().cloned().collect()
        })
    }
}

/// The contents of batch files.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) cases: Vec<CaseLine>,
    /// How many graphs the cases make.
    pub(crate) graphs: u64,
    /// The options that were passed over, with how often.
    pub(crate) passed_over: BTreeMap<String, usize>,
    files: usize,
    settings: Rc<Settings>,
    /// The folders of the files that are being read, each within the one before.
    folders: Vec<PathBuf>,
}

impl Batch {
    /// Adds what a file holds. Settings go on into the files that it includes, and come back from there.
    pub(crate) fn read(&mut self, path: &Path, case_dirs: &[PathBuf]) -> anyhow::Result<()> {
        self.settings = Rc::default();
        self.folders.clear();
        self.files += 1;
        let words = word::read(path)
            .map_err(|why| anyhow::anyhow!("the batch file {} cannot be read: {why}", path.display()))?;
        Ok(self.take(path, words, case_dirs, 1)?)
    }

    fn take(
        &mut self,
        path: &Path,
        words: Vec<Word>,
        case_dirs: &[PathBuf],
        depth: usize,
    ) -> Result<(), BatchFault> {
        let file: Rc<Path> = path.into();
        self.folders.push(folder(path));
        for word in words {
            let line = word.line;
            let fault =
                |complaint| BatchFault { file: path.into(), line, word: word.text.clone(), complaint };
            let (option, value) = option(&word.text).map_err(fault)?;
            let taken = match (option.1, value) {
                (Role::Resets, None) => {
                    self.settings = Rc::default();
                    Ok(())
                }
                (Role::Resets, Some(_)) => Err(Complaint::Excess),
                (Role::Passes, _) => {
                    *self.passed_over.entry(format!("--{}", option.0)).or_default() += 1;
                    Ok(())
                }
                (Role::Fails(why), _) => Err(Complaint::Refused(why)),
                (_, None) => Err(Complaint::Lacks),
                (Role::Lists(knob), Some(list)) => self.list(knob, list),
                (Role::Expects, Some(number)) => match number.parse() {
                    Ok(expected) => {
                        Rc::make_mut(&mut self.settings).expected = expected;
                        Ok(())
                    }
                    Err(_) => {
                        Err(Complaint::Value(format!("{:?} is no number of partitions", plain(number))))
                    }
                },
                (Role::Places, Some(engine)) => match engine.split(':').next() {
                    Some("cpu") => Ok(()),
                    _ => Err(Complaint::Value("graphs run on the CPU alone".into())),
                },
                (Role::Names, Some("")) | (Role::Includes, Some("")) => Err(Complaint::Lacks),
                (Role::Names, Some(name)) => self.name(&file, line, name, case_dirs),
                (Role::Includes, Some(name)) => {
                    let (path, words) = self.include(name, case_dirs, depth).map_err(fault)?;
                    self.take(&path, words, case_dirs, depth + 1)?;
                    Ok(())
                }
            };
            taken.map_err(fault)?;
        }
        self.folders.pop();
        Ok(())
    }

    fn list(&mut self, knob: Knob, list: &str) -> Result<(), Complaint> {
        let most = MAX_OF_CASE as usize;
        let count = list.split(',').count();
        if count > most {
            let of = "one case";
            return Err(Complaint::TooMany { graphs: count as u64, most: MAX_OF_CASE, of });
        }
        let alternatives = knob.alternatives(list).map_err(Complaint::Value)?;
        Rc::make_mut(&mut self.settings).lists[knob as usize] = Rc::new(alternatives);
        Ok(())
    }

    fn name(
        &mut self,
        file: &Rc<Path>,
        line: usize,
        name: &str,
        case_dirs: &[PathBuf],
    ) -> Result<(), Complaint> {
        let count = |count: u64, list: &Rc<Vec<Alternative>>| count.saturating_mul(list.len() as u64);
        let graphs = self.settings.lists.iter().fold(1, count);
        if graphs > MAX_OF_CASE {
            return Err(Complaint::TooMany { graphs, most: MAX_OF_CASE, of: "one case" });
        }
        self.graphs += graphs;
        if self.graphs > MAX_GRAPHS {
            return Err(Complaint::TooMany { graphs: self.graphs, most: MAX_GRAPHS, of: "all files" });
        }
        self.cases.push(CaseLine {
            file: file.clone(),
            line,
            name: name.into(),
            path: self.found(name, case_dirs),
            settings: self.settings.clone(),
        });
        Ok(())
    }

    /// The path and the words of a file that another one includes.
    fn include(
        &mut self,
        name: &str,
        case_dirs: &[PathBuf],
        depth: usize,
    ) -> Result<(PathBuf, Vec<Word>), Complaint> {
        self.files += 1;
        if depth >= MAX_DEPTH {
            return Err(Complaint::TooDeep);
        }
        if self.files > MAX_FILES {
            return Err(Complaint::TooManyFiles);
        }
        let path = self.found(name, case_dirs).ok_or(Complaint::Missing)?;
        let words = word::read(&path).map_err(Complaint::Unreadable)?;
        Ok((path, words))
    }

    /// The path of a file that a batch file names: beside the batch file, beside one that includes it, or in
    /// one of the folders.
    fn found(&self, name: &str, case_dirs: &[PathBuf]) -> Option<PathBuf> {
        let folders = self.folders.iter().rev().chain(case_dirs);
        folders.map(|folder| folder.join(name)).find(|path| path.is_file())
    }
}

/// The option of a word, and its value, if it has one.
fn option(word: &str) -> Result<(&'static (&'static str, Role), Option<&str>), Complaint> {
    let row = |name: &str| OPTIONS.iter().find(|(known, _)| *known == name);
    // `-v1` and `-v=1` are `--verbose=1`.
    if let (Some(level), Some(verbose)) = (word.strip_prefix("-v"), row("verbose"))
        && level.trim_start_matches('=').parse::<u32>().is_ok()
    {
        return Ok((verbose, Some(level)));
    }
    let Some(text) = word.strip_prefix("--") else {
        return Err(Complaint::Unknown("; options are --NAME=VALUE".into()));
    };
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (text, None),
    };
    match row(name) {
        Some(found) => Ok((found, value)),
        None if DRIVERS.contains(&name) => Err(Complaint::Driver),
        None => Err(Complaint::Unknown(did_you_mean(name, OPTIONS.iter().map(|(known, _)| *known)))),
    }
}

/// The folder of a batch file.
fn folder(batch: &Path) -> PathBuf {
    match batch.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.into(),
        // Never a name that an option could be meant by.
        _ => ".".into(),
    }
}
