//! How long functions take on a row that stays in the first-level cache, level by level: to be read, not to be passed.

use std::hint::black_box;
use std::time::{Duration, Instant};

use super::source;
use crate::kernels::pointwise::{Params, binary, convert, unary};
use crate::kernels::{Extent, Inner, Target};
use crate::types::dtype::DataType;
use crate::types::kind::Level;

const COLUMNS: usize = 1024;

/// The shortest time that a call took, in nanoseconds for 16 elements.
fn time(mut call: impl FnMut()) -> f64 {
    const CALLS: u32 = 200;
    let mut best = Duration::MAX;
    for _ in 0..50 {
        let start = Instant::now();
        (0..CALLS).for_each(|_| call());
        best = best.min(start.elapsed() / CALLS);
    }
    best.as_secs_f64() * 1e9 * 16.0 / COLUMNS as f64
}

fn say(name: &str, of_level: impl Fn(Level) -> f64) {
    let times: Vec<String> = Level::all_available().map(|level| format!("{:8.2}", of_level(level))).collect();
    println!("{name:28}{}", times.concat());
}

#[test]
#[ignore = "prints times; of use in release mode alone"]
fn times_of_functions() {
    let x: Vec<f32> = (0..COLUMNS).map(|i| (i as f32 - 512.0) * 0.01).collect();
    let y = vec![1.5f32; COLUMNS];
    let mut to = vec![0u64; COLUMNS];
    let target = Target { at: to.as_mut_ptr().cast(), pitch: 0 };
    let extent = Extent { rows: 1, columns: COLUMNS };
    let params: Params = [0.7, 0.3];
    println!("ns for 16 elements at {:?}", Level::all_available().map(Level::name).collect::<Vec<_>>());
    for &function in crate::kernels::pointwise::unary::ALL {
        say(&format!("{function:?}"), |level| {
            let kernel = unary(level, function);
            // SAFETY: the rows are as long as the extent says.
            time(|| unsafe { kernel(extent, source(black_box(&x)), target, &params) })
        });
    }
    for &function in crate::kernels::pointwise::binary::ALL {
        say(&format!("{function:?}"), |level| {
            let kernel = binary(level, function, DataType::F32, Inner::Dense, Inner::Dense).unwrap();
            // SAFETY: as above.
            time(|| unsafe { kernel(extent, source(black_box(&x)), source(&y), target, &params) })
        });
    }
    let wide = vec![0u64; COLUMNS];
    for from in [DataType::F16, DataType::Bf16, DataType::F32, DataType::S32, DataType::S64, DataType::U8] {
        for to in [DataType::F16, DataType::Bf16, DataType::F32, DataType::S32, DataType::S64, DataType::U8] {
            say(&format!("{from} to {to}"), |level| {
                let kernel = convert(level, from, to).unwrap();
                // SAFETY: as above; elements are of 8 bytes at most.
                time(|| unsafe { kernel(extent, source(black_box(&wide)), target, &params) })
            });
        }
    }
}
