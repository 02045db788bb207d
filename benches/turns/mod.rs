//! What the benches that time by turns share: their options, and how long something takes.

use std::time::Instant;

use crate::rows::Pages;

/// How long the executions that are timed together take at least, so that the clock does not matter.
pub(crate) const SAMPLE_SECONDS: f64 = 0.002;

pub(crate) struct Options {
    filters: Vec<String>,
    pub(crate) rounds: usize,
    pub(crate) pages: Pages,
    /// Whether to time at all, which `cargo bench` asks for and `cargo test` does not.
    pub(crate) bench: bool,
}

impl Options {
    /// The options of the process, with so many rounds if it names none. `own` takes what the bench alone has: it says
    /// whether an argument is one of those.
    pub(crate) fn parse(rounds: usize, mut own: impl FnMut(&mut Self, &str) -> bool) -> Result<Self, String> {
        let mut options = Self { filters: Vec::new(), rounds, pages: Pages::Small, bench: false };
        let mut args = std::env::args().skip(1);
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--bench" => options.bench = true,
                "--huge" => options.pages = Pages::Huge,
                "--rounds" => {
                    let rounds = args.next().and_then(|rounds| rounds.parse().ok());
                    options.rounds = rounds.filter(|&rounds| rounds > 0).ok_or("--rounds takes a number")?;
                }
                _ if own(&mut options, &arg) => {}
                _ if arg.starts_with('-') => return Err(format!("unknown option {arg}")),
                _ => options.filters.push(arg),
            }
        }
        Ok(options)
    }

    /// Whether the row of a name is asked for.
    pub(crate) fn takes(&self, name: &str) -> bool {
        self.filters.is_empty() || self.filters.iter().any(|filter| name.contains(filter))
    }
}

/// Seconds that one run takes, of so many in a row.
pub(crate) fn seconds(runs: usize, run: &mut (dyn FnMut() + '_)) -> f64 {
    let start = Instant::now();
    (0..runs).for_each(|_| run());
    start.elapsed().as_secs_f64() / runs as f64
}

pub(crate) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
