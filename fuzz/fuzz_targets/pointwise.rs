//! Random graphs of pointwise ops: fused, op by op and in the reference, in place and not.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sterna_fuzz::common::Random;
use sterna_fuzz::common::graphs::{self, RandomGraph};
use sterna_fuzz::one_of_the_engines;

const DIMS: &[i64] = &[1, 2, 3, 4, 5, 7, 16, 17, 40, 64, 130, 0];
const MOST_ELEMENTS: i64 = 1500;
const MOST_OPS: usize = 14;

fuzz_target!(|bytes: &[u8]| {
    let mut random = Random::from_bytes(bytes);
    let engine = one_of_the_engines(&mut random);
    let seed = random.below(1 << 16) as u64;
    let rank = random.below(5);
    let mut dims: Vec<i64> = (0..rank).map(|_| random.pick(DIMS)).collect();
    while dims.iter().product::<i64>() > MOST_ELEMENTS {
        dims.pop();
    }
    let graph = RandomGraph::on(&mut random, MOST_OPS, dims);
    if let Err(why) = graphs::check(&graph, seed, std::slice::from_ref(engine)) {
        panic!("{why}");
    }
});
