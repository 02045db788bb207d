//! Compares Sterna with plain loops, interleaved in one process, and prints Markdown tables: each row on one
//! thread and on two, and the gain of a second thread for rows that the last-level cache holds.
//!
//! `cargo bench --bench ratio -- [--quick] [--huge] [--rounds N] [FILTER ...]` measures the rows whose names
//! contain any of the filters. Each round times both in alternating order, so that a disturbance longer than
//! a round slows both. The ratio is the median over the rounds of the loop's time divided by Sterna's. Sterna
//! runs on the workers of its engine, which stay awake for a moment after an execution; the loop's worker is
//! another thread. Run as a test, the bench only checks that both give the same results.

#[path = "../baseline/mod.rs"]
mod baseline;
#[path = "../interleave/mod.rs"]
mod interleave;
#[path = "../rows/mod.rs"]
mod rows;
mod second_thread;

use std::thread::sleep;
use std::time::Duration;

use baseline::{Store, of_row};
use interleave::{Options, SAMPLE_SECONDS, median, seconds};
use rayon::{ThreadPool, ThreadPoolBuilder};
use rows::{Baseline, Operands, Pages, Row};

/// Least time of a loop on one thread for which it is split into two halves for two threads.
const WORTH_TWO_THREADS: f64 = 200e-6;

/// Pause before each sample on two threads, in which the workers of the other candidate fall asleep.
const PAUSE: Duration = Duration::from_micros(500);

/// Figures of one row on some number of threads.
struct Outcome {
    store: Store,
    /// Median seconds of one run.
    baseline: f64,
    sterna: f64,
    /// Median of the ratios of the rounds.
    ratio: f64,
}

fn main() -> Result<(), String> {
    let options = Options::parse(15, |options, arg| {
        let is_quick = arg == "--quick";
        options.rounds = if is_quick { 3 } else { options.rounds };
        is_quick
    })?;
    // The caller takes part, so one worker makes two threads.
    let pool = ThreadPoolBuilder::new().num_threads(1).build().map_err(|error| error.to_string())?;
    let mut rows: Vec<Row> = rows::all().into_iter().filter(|row| options.takes(&row.to_string())).collect();
    if options.pages == Pages::Huge {
        rows.iter_mut().for_each(|row| row.pages = Pages::Huge);
    }
    if !options.bench {
        let check = |row: Row| check(&row, &mut Operands::new(&row, row.pages));
        return rows.into_iter().try_for_each(check);
    }
    println!("Ratios are the limit's time divided by Sterna's, medians of {} rounds.\n", options.rounds);
    println!(
        "| row | MB | stores of the limit | limit, 1 thread, GB/s | Sterna | ratio \
         | limit, 2 threads, GB/s | Sterna | ratio |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for &row in &rows {
        let mut operands = Operands::new(&row, row.pages);
        check(&row, &mut operands)?;
        let bytes = row.compile(&row.engine().threads(1).build()).bytes_moved() as f64;
        let one = measure(&row, &operands, 1, None, &pool, options.rounds);
        let two = measure(&row, &operands, 2, Some(&one), &pool, options.rounds);
        let speed = |seconds: f64| bytes / seconds / 1e9;
        println!(
            "| {row} | {:.3} | {} | {:.1} | {:.1} | {:.2} | {:.1} | {:.1} | {:.2} |",
            bytes / 1e6,
            one.store,
            speed(one.baseline),
            speed(one.sterna),
            one.ratio,
            speed(two.baseline),
            speed(two.sterna),
            two.ratio,
        );
    }
    second_thread::measure(&rows, &pool, options.rounds);
    Ok(())
}

/// Checks that both write the same result, if they read the same operands.
fn check(row: &Row, operands: &mut Operands) -> Result<(), String> {
    let baseline = of_row(row);
    if row.shape.baseline != Baseline::Same {
        return Ok(());
    }
    let compiled = row.compile(&row.engine().threads(1).build());
    operands.with_execution(&compiled, |execute| execute());
    let expected = digest(operands.result());
    for store in baseline.stores() {
        operands.fill();
        // SAFETY: the addresses are those of the row's operands.
        unsafe { baseline.with_stores(store).run(operands.addresses()) };
        if digest(operands.result()) != expected {
            return Err(format!("{row}: the loop with {store} stores gives another result than Sterna"));
        }
    }
    Ok(())
}

fn digest(bytes: &[u8]) -> u64 {
    let words = bytes.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_ne_bytes(word)
    });
    words.fold(0, |digest, word| (digest ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29))
}

fn measure(
    row: &Row,
    operands: &Operands,
    threads: usize,
    one_thread: Option<&Outcome>,
    pool: &ThreadPool,
    rounds: usize,
) -> Outcome {
    let engine = row.engine().threads(threads).build();
    let compiled = row.compile(&engine);
    let addresses = operands.addresses();
    let halves = one_thread.is_some_and(|one| one.baseline >= WORTH_TWO_THREADS);
    // SAFETY: the addresses are those of the row's operands.
    let baseline = unsafe { of_row(row).fastest(addresses) };
    let mut run_baseline = || match halves {
        // SAFETY: as above.
        true => unsafe { baseline.run_on(addresses, pool, 2) },
        // SAFETY: as above.
        false => unsafe { baseline.run(addresses) },
    };
    operands.with_execution(&compiled, |execute| {
        let runs = (SAMPLE_SECONDS / seconds(1, execute).min(seconds(1, execute))).ceil().max(1.0) as usize;
        seconds(runs, execute);
        seconds(runs, &mut run_baseline);
        let timed = |run: &mut dyn FnMut()| {
            if threads > 1 {
                sleep(PAUSE);
            }
            seconds(runs, run)
        };
        let mut times: Vec<(f64, f64)> = Vec::new();
        for round in 0..rounds {
            let pair = if round % 2 == 0 {
                let baseline = timed(&mut run_baseline);
                (baseline, timed(execute))
            } else {
                let sterna = timed(execute);
                (timed(&mut run_baseline), sterna)
            };
            times.push(pair);
        }
        Outcome {
            store: baseline.store,
            baseline: median(times.iter().map(|&(baseline, _)| baseline)),
            sterna: median(times.iter().map(|&(_, sterna)| sterna)),
            ratio: median(times.iter().map(|&(baseline, sterna)| baseline / sterna)),
        }
    })
}
