//! The variables of the environment that Sterna reads: in one table, each with its parser.
//!
//! ```
//! use sterna::environment;
//! assert_eq!(environment::NUM_THREADS.name(), "STERNA_NUM_THREADS");
//! assert_eq!(environment::MAX_CPU_ISA.name(), "STERNA_MAX_CPU_ISA");
//! ```

use std::fmt;
use std::io::Write;

use super::kind::CpuIsa;
use super::nearest::nearest;

/// A variable, with the reader of its values. An empty value counts as none.
///
/// ```
/// use sterna::environment;
/// assert_eq!(environment::NUM_THREADS.name(), "STERNA_NUM_THREADS");
/// ```
#[derive(Debug)]
pub struct Variable<T> {
    name: &'static str,
    /// The values that it takes, in words.
    takes: &'static str,
    /// The words that it takes, if it takes words alone.
    words: &'static [&'static str],
    parse: fn(&str) -> Option<T>,
}

/// The highest CPU level to use, and the CPU features beside it.
pub const MAX_CPU_ISA: Variable<CpuIsa> = Variable {
    name: "STERNA_MAX_CPU_ISA",
    takes: "portable, avx2, avx512, avx512_vnni, avx512_bf16, avx512_amx or neon",
    words: &["portable", "avx2", "avx512", "avx512_vnni", "avx512_bf16", "avx512_amx", "neon"],
    parse: |text| text.parse().ok(),
};

/// The most threads of an engine.
pub const NUM_THREADS: Variable<usize> = Variable {
    name: "STERNA_NUM_THREADS",
    takes: "a whole number, such as 4",
    words: &[],
    parse: first_number,
};

/// The most threads of an engine, if [`NUM_THREADS`] does not say. OpenMP takes a list of numbers, one for
/// each nesting level.
pub const OMP_NUM_THREADS: Variable<usize> = Variable {
    name: "OMP_NUM_THREADS",
    takes: "a whole number, or several with commas between them",
    words: &[],
    parse: first_number,
};

/// Workers stay awake for a moment after work, or sleep at once.
pub const STAY_AWAKE: Variable<bool> = Variable {
    name: "STERNA_STAY_AWAKE",
    takes: "0 or 1",
    words: &["0", "1"],
    parse: |text| match text {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    },
};

/// Lines of the C interface for each compilation and each execution: none at 0.
pub const VERBOSE: Variable<i32> = Variable {
    name: "STERNA_VERBOSE",
    takes: "0, 1, 2, none or all",
    words: &["0", "1", "2", "none", "all"],
    parse: |text| match text {
        "0" | "none" => Some(0),
        "1" => Some(1),
        "2" | "all" => Some(2),
        _ => None,
    },
};

/// The same, if [`VERBOSE`] does not say. oneDNN takes words and lists as well, and each of them switches
/// output on.
pub const ONEDNN_VERBOSE: Variable<i32> = Variable {
    name: "ONEDNN_VERBOSE",
    takes: "what oneDNN takes",
    words: &[],
    parse: |text| Some(text.parse().unwrap_or_else(|_| i32::from(text != "none")).clamp(0, 2)),
};

/// The graphs that the C interface writes to files: a sum of 1 for subgraphs and 2 for graphs.
pub const GRAPH_DUMP: Variable<i32> =
    Variable { name: "STERNA_GRAPH_DUMP", takes: DUMPS, words: &["none", "graph", "subgraph"], parse: dumps };

/// The same, if [`GRAPH_DUMP`] does not say.
pub const ONEDNN_GRAPH_DUMP: Variable<i32> =
    Variable { name: "ONEDNN_GRAPH_DUMP", takes: DUMPS, words: &["none", "graph", "subgraph"], parse: dumps };

const DUMPS: &str = "none, graph, subgraph, or several with commas between them";

fn first_number(text: &str) -> Option<usize> {
    let mut numbers = text.split(',').map(|number| number.trim().parse().ok());
    let first = numbers.next()??;
    numbers.all(|number: Option<usize>| number.is_some()).then_some(first)
}

fn dumps(text: &str) -> Option<i32> {
    text.split(',').try_fold(0, |set, word| match word.trim() {
        "none" => Some(set),
        "subgraph" => Some(set | 1),
        "graph" => Some(set | 2),
        _ => None,
    })
}

/// Faults of the values of all variables.
///
/// ```
/// let wrong: Vec<String> = sterna::environment::faults().iter().map(ToString::to_string).collect();
/// assert!(wrong.is_empty(), "{wrong:?}");
/// ```
#[must_use]
pub fn faults() -> Vec<EnvironmentFault> {
    let faults = [
        MAX_CPU_ISA.fault(),
        NUM_THREADS.fault(),
        OMP_NUM_THREADS.fault(),
        STAY_AWAKE.fault(),
        VERBOSE.fault(),
        ONEDNN_VERBOSE.fault(),
        GRAPH_DUMP.fault(),
        ONEDNN_GRAPH_DUMP.fault(),
    ];
    faults.into_iter().flatten().collect()
}

impl<T> Variable<T> {
    /// The name of the variable.
    ///
    /// ```
    /// assert_eq!(sterna::environment::VERBOSE.name(), "STERNA_VERBOSE");
    /// ```
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Its value now, if it has one. One that it does not take counts as none, and a line on standard error
    /// says so, as a library has no other way: read it once.
    ///
    /// ```
    /// println!("at most {:?} threads", sterna::environment::NUM_THREADS.read());
    /// ```
    #[must_use]
    pub fn read(&self) -> Option<T> {
        let text = self.text()?;
        let value = (self.parse)(text.trim());
        if value.is_none() {
            // If standard error is closed, nobody can be told.
            let _ = writeln!(std::io::stderr(), "sterna: {}; it is ignored", self.fault_of(text));
        }
        value
    }

    /// The fault of its value now, if it has one.
    fn fault(&self) -> Option<EnvironmentFault> {
        let text = self.text()?;
        (self.parse)(text.trim()).is_none().then(|| self.fault_of(text))
    }

    fn fault_of(&self, value: String) -> EnvironmentFault {
        let meant = nearest(value.trim(), self.words.iter().copied());
        EnvironmentFault { name: self.name, value, takes: self.takes, nearest: meant }
    }

    fn text(&self) -> Option<String> {
        let text = std::env::var_os(self.name)?.to_string_lossy().into_owned();
        (!text.trim().is_empty()).then_some(text)
    }
}

/// A variable whose value it does not take.
///
/// ```
/// for fault in sterna::environment::faults() {
///     eprintln!("{} cannot be {:?}: {fault}", fault.name, fault.value);
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct EnvironmentFault {
    /// The variable.
    pub name: &'static str,
    /// Its value.
    pub value: String,
    /// The values that it takes, in words.
    pub takes: &'static str,
    /// The value that may be meant.
    pub nearest: Option<&'static str>,
}

impl fmt::Display for EnvironmentFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, value, takes, nearest } = self;
        write!(f, "the environment variable {name} is {value:?}; it takes {takes}")?;
        nearest.map_or(Ok(()), |meant| write!(f, "; did you mean {meant:?}?"))
    }
}

impl std::error::Error for EnvironmentFault {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_read_or_refused() {
        let isa = |text| (MAX_CPU_ISA.parse)(text).map(|isa| isa.to_string());
        assert_eq!(isa("avx512_bf16").as_deref(), Some("avx512_bf16"));
        assert_eq!(isa("avx1024"), None);
        let all: Vec<&str> = CpuIsa::ALL.iter().map(|isa| isa.name()).collect();
        assert_eq!(MAX_CPU_ISA.words, all);
        for name in all {
            assert!(MAX_CPU_ISA.takes.contains(name), "{name}");
        }
        type Row<'a> = (fn(&str) -> Option<usize>, &'a str, Option<usize>);
        let rows: &[Row<'_>] = &[
            (NUM_THREADS.parse, "4", Some(4)),
            (NUM_THREADS.parse, "0", Some(0)),
            (NUM_THREADS.parse, "banana", None),
            (NUM_THREADS.parse, "-2", None),
            (OMP_NUM_THREADS.parse, "4, 2", Some(4)),
            (OMP_NUM_THREADS.parse, "4,x", None),
            (|text| (STAY_AWAKE.parse)(text).map(usize::from), "0", Some(0)),
            (|text| (STAY_AWAKE.parse)(text).map(usize::from), "no", None),
            (|text| (VERBOSE.parse)(text).map(|level| level as usize), "all", Some(2)),
            (|text| (VERBOSE.parse)(text).map(|level| level as usize), "3", None),
            (|text| (ONEDNN_VERBOSE.parse)(text).map(|level| level as usize), "profile_exec", Some(1)),
            (|text| (ONEDNN_VERBOSE.parse)(text).map(|level| level as usize), "none", Some(0)),
            (|text| (GRAPH_DUMP.parse)(text).map(|set| set as usize), "graph, subgraph", Some(3)),
            (|text| (GRAPH_DUMP.parse)(text).map(|set| set as usize), "none", Some(0)),
            (|text| (GRAPH_DUMP.parse)(text).map(|set| set as usize), "graphs", None),
        ];
        let wrong: Vec<_> =
            rows.iter().filter(|(parse, text, expected)| parse(text) != *expected).map(|row| row.1).collect();
        assert!(wrong.is_empty(), "{wrong:?}");
        assert_eq!(
            MAX_CPU_ISA.fault_of("AVX2".into()).to_string(),
            "the environment variable STERNA_MAX_CPU_ISA is \"AVX2\"; it takes portable, avx2, avx512, \
             avx512_vnni, avx512_bf16, avx512_amx or neon; did you mean \"avx2\"?"
        );
    }
}
