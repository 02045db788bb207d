//! Random attention graphs against the intervals of the reference, in which masked keys do not exist.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sterna_fuzz::attention;
use sterna_fuzz::common::Random;
use sterna_fuzz::one_of_the_engines;

fuzz_target!(|bytes: &[u8]| {
    let mut random = Random::from_bytes(bytes);
    let engine = one_of_the_engines(&mut random);
    let setup = attention::random(&mut random);
    if let Err(why) = setup.check(engine, &setup.enclosures()) {
        panic!("{why}\n{}", setup.describe());
    }
});
