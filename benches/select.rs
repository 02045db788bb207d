//! Times every row of the selects and its limit, on one thread and on two.
//!
//! `cargo bench --bench select -- FILTER` measures the rows whose names match. Here rows run one after the
//! other; the bench `ratio` interleaves them, for ratios on a machine that is not quiet.

mod baseline;
mod rows;

use std::cell::OnceCell;
use std::sync::Arc;
use std::time::Duration;

use baseline::of_row;
use criterion::{Criterion, SamplingMode, Throughput, criterion_group, criterion_main};
use rayon::{ThreadPool, ThreadPoolBuilder};
use rows::{Operands, Row};

fn select(criterion: &mut Criterion) {
    // The caller takes part, so one worker makes two threads.
    let pool = Arc::new(ThreadPoolBuilder::new().num_threads(1).build().expect("a thread starts"));
    for row in rows::all() {
        bench(criterion, &row, &pool);
    }
}

fn bench(criterion: &mut Criterion, row: &Row, pool: &Arc<ThreadPool>) {
    // Memory is allocated only for rows that pass the filter.
    let operands = OnceCell::new();
    let operands = || operands.get_or_init(|| Operands::new(row, row.pages));
    let baseline = OnceCell::new();
    // SAFETY: the addresses are those of the row's operands.
    let fastest = || unsafe { of_row(row).fastest(operands().addresses()) };

    let mut group = criterion.benchmark_group(row.to_string());
    group.sampling_mode(SamplingMode::Flat).sample_size(20);
    group.warm_up_time(Duration::from_millis(200)).measurement_time(Duration::from_secs(1));
    for threads in [1, 2] {
        let engine = row.engine().pool(pool.clone()).threads(threads).build();
        let compiled = row.compile(&engine);
        group.throughput(Throughput::Bytes(compiled.bytes_moved() as u64));
        group.bench_function(format!("sterna/{threads}"), |bencher| {
            operands().with_execution(&compiled, |execute| bencher.iter(execute));
        });
        group.bench_function(format!("limit/{threads}"), |bencher| {
            let (baseline, addresses) = (baseline.get_or_init(fastest), operands().addresses());
            // SAFETY: the addresses are those of the row's operands.
            bencher.iter(|| unsafe {
                match threads {
                    1 => baseline.run(addresses),
                    _ => baseline.run_on(addresses, pool, 2),
                }
            });
        });
    }
    group.finish();
}

criterion_group!(benches, select);
criterion_main!(benches);
