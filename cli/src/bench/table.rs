//! A run, and how it compares, as text, CSV and Markdown.

use sterna_inspect::{Cell, Table, Time, size};

use super::compare::{Comparison, RunComparison};
use super::record::{Run, WholeCase};
use super::session::counted;
use crate::latency::Latency;
use crate::terminal::{BAD, GOOD, ODD};

/// The measured cases, and what the comparison found, if there is one.
pub(super) fn text(run: &Run, compared: Option<&RunComparison>) -> String {
    let comparison = compared.map_or_else(String::new, |compared| {
        format!("\n{}\n{}", changes(compared).text(), remarks(compared).concat())
    });
    let whole = wholes(run).map_or_else(String::new, |table| format!("\n{}", table.text()));
    format!("{}\n\n{}\n{}\n{whole}{comparison}", head(run), cases(run).text(), legend(run))
}

/// The same as tables of Markdown.
pub(super) fn markdown(run: &Run, compared: Option<&RunComparison>) -> String {
    let comparison = compared.map_or_else(String::new, |compared| {
        format!("\n{}\n{}", changes(compared).markdown(), remarks(compared).join("\n"))
    });
    let whole = wholes(run).map_or_else(String::new, |table| format!("\n{}", table.markdown()));
    format!("{}\n\n{}\n{}\n{whole}{comparison}", head(run), cases(run).markdown(), legend(run))
}

fn head(run: &Run) -> String {
    let Run { sterna, machine, level, subject, seconds_per_case, date, .. } = run;
    let date = if date.is_empty() { String::new() } else { format!("{date}, ") };
    format!("{subject}: sterna {sterna}, level {level}, {machine}, {date}{seconds_per_case} s a case")
}

fn legend(run: &Run) -> String {
    let work = match run.cases.iter().any(|case| case.operations.is_some()) {
        true => ", or as much arithmetic in registers",
        false => "",
    };
    format!("times are medians; limit: plain copies of as many bytes{work}; share: of that limit")
}

fn cases(run: &Run) -> Table {
    let head = ["case", "threads", "moved", "time", "quartiles", "rate", "", "limit", "share"];
    let has_masks = run.cases.iter().any(|case| case.mask_tiles.is_some());
    let head: Vec<&str> = head.into_iter().chain(has_masks.then_some("mask tiles")).collect();
    let mut table = Table::new(&head);
    for case in &run.cases {
        let (amount, unit) = case.counted();
        let [below, above] = case.seconds.spread().map(|part| format!("{:+.1}", 100.0 * part));
        let tiles = case
            .mask_tiles
            .map_or_else(String::new, |tiles| format!("{}/{} skipped", tiles.masked, tiles.all()));
        let cells: [Cell; 9] = [
            case.name.as_str().into(),
            case.threads.to_string().into(),
            size(case.bytes.bytes()).into(),
            time(case.seconds.median).into(),
            format!("{below} {above} %").into(),
            rate(amount / case.seconds.median / 1e9).into(),
            unit.into(),
            rate(amount / case.limit.median / 1e9).into(),
            format!("{:.2}", case.share).into(),
        ];
        table.push(cells.into_iter().chain(has_masks.then(|| tiles.into())));
    }
    table
}

/// Single runs of graphs as a whole, if there are any.
fn wholes(run: &Run) -> Option<Table> {
    let head =
        ["runs of a whole graph", "threads", "streams", "best", "p50", "p90", "p99", "runs/s", "memory"];
    let mut table = Table::new(&head);
    for (case, whole) in run.cases.iter().filter_map(|case| Some((case, case.whole.as_ref()?))) {
        let Latency { min, p50, p90, p99 } = whole.latency;
        table.push([
            case.name.as_str().into(),
            case.threads.to_string().into(),
            whole.streams.to_string().into(),
            time(min).into(),
            time(p50).into(),
            time(p90).into(),
            time(p99).into(),
            rate(whole.runs_per_second).into(),
            size(whole.run_memory).into(),
        ]);
    }
    run.cases.iter().any(|case| case.whole.is_some()).then_some(table)
}

/// How each case changed: its time, that of the limit beside it, and their ratio, by which it is judged.
fn changes(compared: &RunComparison) -> Table {
    let head = ["against the saved run", "threads", "before", "now", "time", "limit", "ratio", "verdict"];
    let mut table = Table::new(&head);
    let percent = |part: f64| Cell::from(format!("{:+.1} %", 100.0 * part));
    for case in &compared.cases {
        let style = match case.verdict {
            Comparison::Faster => Some(GOOD),
            Comparison::Slower => Some(BAD),
            Comparison::CannotTell | Comparison::Disagree => Some(ODD),
            Comparison::Same => None,
        };
        table.push([
            case.name.as_str().into(),
            case.threads.to_string().into(),
            time(case.before.median).into(),
            time(case.now.median).into(),
            percent(case.change),
            percent(case.limit_change),
            percent(case.ratio_change),
            Cell::styled(case.verdict.name(), style),
        ]);
    }
    table
}

/// The verdicts in numbers, and the cases that only one run has, each in a line.
fn remarks(compared: &RunComparison) -> Vec<String> {
    use Comparison::{CannotTell, Disagree, Faster, Same, Slower};
    let [faster, slower, same, odd, open] =
        [Faster, Slower, Same, Disagree, CannotTell].map(|verdict| compared.count(verdict));
    let disagree = match odd {
        0 => String::new(),
        odd => format!("{odd} disagree, "),
    };
    let mut lines = vec![format!(
        "{faster} faster, {slower} slower, {same} the same, {disagree}{open} cannot tell; judged by the \
         ratio of the time to that of the limit beside it\n"
    )];
    if odd > 0 {
        lines.push(
            "disagree: the ratio changed and the time did not change with it, so the limit beside the case \
             changed; measure both again in one sitting\n"
                .into(),
        );
    }
    let alone = [("the saved run", &compared.only_before), ("this run", &compared.only_now)];
    for (whose, cases) in alone.iter().filter(|(_, cases)| !cases.is_empty()) {
        const NAMED: usize = 4;
        let names = cases.iter().map(|(name, threads)| format!("{name} ({})", counted(*threads, "thread")));
        let names = names.take(NAMED).collect::<Vec<_>>().join(", ");
        let more = match cases.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        lines.push(format!("only in {whose}: {names}{more}\n"));
    }
    lines
}

/// A line for each case, in seconds, bytes and operations; with a comparison, what the saved run says of it.
pub(super) fn csv(run: &Run, compared: Option<&RunComparison>) -> String {
    let measured = [
        "case",
        "threads",
        "bytes_read",
        "bytes_written",
        "operations",
        "rounds",
        "seconds",
        "seconds_lower",
        "seconds_upper",
        "limit_seconds",
        "limit_lower",
        "limit_upper",
        "share",
        "share_lower",
        "share_upper",
        "mask_tiles",
        "mask_tiles_skipped",
        "streams",
        "runs",
        "best_seconds",
        "p50_seconds",
        "p90_seconds",
        "p99_seconds",
        "runs_per_second",
        "run_memory",
    ];
    let saved = ["saved_seconds", "time_change", "limit_change", "ratio_change", "verdict"];
    let head: Vec<&str> = measured.into_iter().chain(compared.iter().flat_map(|_| saved)).collect();
    let mut table = Table::new(&head);
    for case in &run.cases {
        let shares = case.ratio();
        let mut row: Vec<Cell> = vec![
            case.name.as_str().into(),
            case.threads.to_string().into(),
            case.bytes.read.to_string().into(),
            case.bytes.written.to_string().into(),
            case.operations.map_or_else(String::new, |operations| operations.to_string()).into(),
            case.rounds.to_string().into(),
        ];
        let numbers = [
            case.seconds.median,
            case.seconds.lower,
            case.seconds.upper,
            case.limit.median,
            case.limit.lower,
            case.limit.upper,
            case.share,
            1.0 / shares.upper,
            1.0 / shares.lower,
        ];
        row.extend(numbers.map(|number| Cell::from(number.to_string())));
        let of_tiles = case.mask_tiles.map(|tiles| [tiles.all(), tiles.masked]);
        row.extend([0, 1].map(|at| Cell::from(of_tiles.map_or_else(String::new, |of| of[at].to_string()))));
        row.extend(whole_cells(case.whole.as_ref()).map(Cell::from));
        if let Some(compared) = compared {
            let is_it =
                |one: &&super::compare::Compared| one.name == case.name && one.threads == case.threads;
            let cells = match compared.cases.iter().find(is_it) {
                Some(one) => [
                    one.before.median.to_string(),
                    one.change.to_string(),
                    one.limit_change.to_string(),
                    one.ratio_change.to_string(),
                    one.verdict.name().to_owned(),
                ],
                None => Default::default(),
            };
            row.extend(cells.map(Cell::from));
        }
        table.push(row);
    }
    table.csv()
}

/// The columns of a graph as a whole.
fn whole_cells(whole: Option<&WholeCase>) -> [String; 8] {
    let Some(WholeCase { streams, runs, latency, runs_per_second, run_memory }) = whole else {
        return Default::default();
    };
    let Latency { min, p50, p90, p99 } = latency;
    let [streams, runs, run_memory] = [streams, runs, run_memory].map(ToString::to_string);
    let [min, p50, p90, p99, rate] = [min, p50, p90, p99, runs_per_second].map(ToString::to_string);
    [streams, runs, min, p50, p90, p99, rate, run_memory]
}

/// Seconds in a unit that suits.
pub(super) fn time(seconds: f64) -> String {
    Time(seconds).to_string()
}

/// A rate with three digits that matter.
pub(super) fn rate(rate: f64) -> String {
    match rate {
        rate if rate < 10.0 => format!("{rate:.2}"),
        rate if rate < 100.0 => format!("{rate:.1}"),
        rate => format!("{rate:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_the_digits_that_matter() {
        let rows = [(rate(1.234), "1.23"), (rate(12.34), "12.3"), (rate(123.4), "123")];
        let wrong: Vec<_> = rows.iter().filter(|(given, expected)| given != expected).collect();
        assert!(wrong.is_empty(), "{wrong:?}");
    }
}
