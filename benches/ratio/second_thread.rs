//! Measures the gain of a second thread for rows that the last-level cache holds, and the possible gain: that
//! of the plain loop on two threads that never wait for each other, each with one half.

use std::array;
use std::fs;

use rayon::ThreadPool;

use crate::baseline::{Store, of_row};
use crate::interleave::{median, rate, rate_of_all};
use crate::rows::{Operands, Row};

/// Least bytes of operands and result of a measured row.
const FROM: usize = 8 << 20;

pub(crate) fn measure(rows: &[Row], pool: &ThreadPool, rounds: usize) {
    println!(
        "\nTwo threads beside one, where the last-level cache holds operands and result. \
        Each half of the streamed loop runs again and again without waiting for the other.\n"
    );
    println!(
        "| row | MB | Sterna, 1 thread, GB/s | 2 threads | times \
         | streamed, 1 thread, GB/s | 2 threads | times | Sterna / streamed, 2 threads |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    let sizes = FROM..=last_level_cache();
    for row in rows.iter().filter(|row| sizes.contains(&row.sizes().sum())) {
        measure_row(row, &Operands::new(row, row.pages), pool, rounds);
    }
}

fn measure_row(row: &Row, operands: &Operands, pool: &ThreadPool, rounds: usize) {
    let [alone, both] = [1, 2].map(|threads| row.compile(&row.engine().threads(threads).build()));
    let bytes = alone.bytes_moved() as f64;
    let addresses = operands.addresses();
    let baseline = of_row(row);
    let sterna = |compiled| operands.with_execution(compiled, |execute| rate(execute));
    // SAFETY: the addresses are those of the row's operands, which live as long as this runs.
    let whole = |store: Store| rate(|| unsafe { baseline.with_stores(store).run(addresses) });
    let halves = |store: Store| {
        // SAFETY: as above.
        rate_of_all(pool, unsafe { baseline.with_stores(store).halves(addresses) }) / 2.0
    };
    let best = |rate: &dyn Fn(Store) -> f64| {
        let timed = baseline.stores().into_iter().map(|store| (rate(store), store));
        timed.max_by(|a, b| a.0.total_cmp(&b.0)).expect("there are stores").1
    };
    let [whole_store, halves_store] = [best(&whole), best(&halves)];
    let rates: Vec<[f64; 4]> = (0..rounds)
        .map(|_| [sterna(&alone), sterna(&both), whole(whole_store), halves(halves_store)])
        .collect();
    let [sterna_alone, sterna_both, whole, halves] =
        array::from_fn(|which| median(rates.iter().map(|round| round[which])) * bytes / 1e9);
    let ratio = |which: usize, to: usize| median(rates.iter().map(|round| round[which] / round[to]));
    println!(
        "| {row} | {:.1} | {sterna_alone:.0} | {sterna_both:.0} | {:.2} | {whole:.0} | {halves:.0} | {:.2} \
         | {:.2} |",
        bytes / 1e6,
        ratio(1, 0),
        ratio(3, 2),
        ratio(1, 3),
    );
}

/// Bytes of the last-level cache; `usize::MAX` if the system does not tell.
fn last_level_cache() -> usize {
    let kib = |index: usize| {
        let size =
            fs::read_to_string(format!("/sys/devices/system/cpu/cpu0/cache/index{index}/size")).ok()?;
        size.trim().strip_suffix('K')?.parse::<usize>().ok()
    };
    (0..).map_while(kib).last().map_or(usize::MAX, |kib| kib << 10)
}
