//! A run, and how it compares, as text for people.

use super::compare::{Comparison, RunComparison};
use super::record::Run;
use super::session::counted;

/// Columns beside each other; the first is aligned left, the others right.
struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    fn new(head: &[&str]) -> Self {
        Self { rows: vec![head.iter().map(|cell| (*cell).into()).collect()] }
    }

    fn text(&self) -> String {
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.rows[0].len()).map(width).collect();
        let line = |row: &Vec<String>| {
            let cells = row.iter().zip(&widths).enumerate();
            let cells = cells.map(|(column, (cell, &width))| match column {
                0 => format!("{cell:<width$}"),
                _ => format!("{cell:>width$}"),
            });
            cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
        };
        self.rows.iter().map(line).collect()
    }
}

/// The measured cases, and what the comparison found, if there is one.
pub(super) fn text(run: &Run, compared: Option<&RunComparison>) -> String {
    let Run { sterna, machine, level, subject, seconds_per_case, .. } = run;
    let mut text =
        format!("{subject}: sterna {sterna}, level {level}, {machine}, {seconds_per_case} s a case\n\n");
    let head = ["case", "threads", "moved", "time", "quartiles", "rate", "", "limit", "share"];
    let mut table = Table::new(&head);
    for case in &run.cases {
        let (amount, unit) = case.counted();
        let [below, above] = case.seconds.spread().map(|part| format!("{:+.1}", 100.0 * part));
        table.rows.push(vec![
            case.name.clone(),
            case.threads.to_string(),
            size(case.bytes.bytes()),
            time(case.seconds.median),
            format!("{below} {above} %"),
            rate(amount / case.seconds.median / 1e9),
            unit.into(),
            rate(amount / case.limit.median / 1e9),
            format!("{:.2}", case.share),
        ]);
    }
    text += &table.text();
    text += "\ntimes are medians; limit: plain copies of as many bytes";
    if run.cases.iter().any(|case| case.operations.is_some()) {
        text += ", or as much arithmetic in registers";
    }
    text += "; share: of that limit\n";
    text + &compared.map_or_else(String::new, comparison)
}

fn comparison(compared: &RunComparison) -> String {
    let mut table =
        Table::new(&["against the saved run", "threads", "before", "now", "change", "limit", "verdict"]);
    let percent = |part: f64| format!("{:+.1} %", 100.0 * part);
    for case in &compared.cases {
        table.rows.push(vec![
            case.name.clone(),
            case.threads.to_string(),
            time(case.before.median),
            time(case.now.median),
            percent(case.change),
            percent(case.limit_change),
            case.verdict.name().into(),
        ]);
    }
    let [faster, slower, same] =
        [Comparison::Faster, Comparison::Slower, Comparison::Same].map(|verdict| compared.count(verdict));
    let mut text =
        format!("\n{}\n{faster} faster, {slower} slower, {same} the same within the noise\n", table.text());
    let alone = [("the saved run", &compared.only_before), ("this run", &compared.only_now)];
    for (whose, cases) in alone.iter().filter(|(_, cases)| !cases.is_empty()) {
        const NAMED: usize = 4;
        let names = cases.iter().map(|(name, threads)| format!("{name} ({})", counted(*threads, "thread")));
        let names = names.take(NAMED).collect::<Vec<_>>().join(", ");
        let more = match cases.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        text += &format!("only in {whose}: {names}{more}\n");
    }
    text
}

/// Seconds in a unit that suits.
pub(super) fn time(seconds: f64) -> String {
    match seconds {
        s if s < 1e-6 => format!("{:.1} ns", s * 1e9),
        s if s < 1e-3 => format!("{:.2} µs", s * 1e6),
        s if s < 1.0 => format!("{:.2} ms", s * 1e3),
        s => format!("{s:.2} s"),
    }
}

/// Bytes in a unit that suits.
pub(super) fn size(bytes: usize) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    let mut number = bytes as f64;
    let mut unit = "B";
    for larger in UNITS {
        if number < 1024.0 {
            break;
        }
        (number, unit) = (number / 1024.0, larger);
    }
    match number {
        number if number.fract() == 0.0 || number >= 100.0 => format!("{number:.0} {unit}"),
        number => format!("{number:.1} {unit}"),
    }
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
        let rows = [
            (time(4.25e-8), "42.5 ns"),
            (time(3.456e-5), "34.56 µs"),
            (time(0.0123), "12.30 ms"),
            (time(2.0), "2.00 s"),
            (size(0), "0 B"),
            (size(208), "208 B"),
            (size(4096), "4 KiB"),
            (size(5000), "4.9 KiB"),
            (size(218_103_808), "208 MiB"),
            (size(5 << 40), "5 TiB"),
            (rate(1.234), "1.23"),
            (rate(12.34), "12.3"),
            (rate(123.4), "123"),
        ];
        let wrong: Vec<_> = rows.iter().filter(|(given, expected)| given != expected).collect();
        assert!(wrong.is_empty(), "{wrong:?}");
    }
}
