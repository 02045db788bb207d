//! Remainders of floats, bit for bit those of a remainder taken alone: quotients of every size, and divisors
//! that just divide or just fail to.

use super::run2;
use crate::kernels::InnerStride;
use crate::kernels::pointwise::binary;
use crate::types::dtype::DataType;
use crate::types::function::Binary;
use crate::types::kind::Level;

/// Pairs of each of the two types.
const PAIRS: usize = 60_000;

/// Random bits, by a linear congruential generator.
fn bits() -> impl FnMut() -> u64 {
    let mut state = 1u64;
    move || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        state >> 33 << 32 | state.wrapping_mul(0x9e3779b97f4a7c15) >> 32
    }
}

macro_rules! check {
    ($T:ident, $of:expr, $exponents:expr) => {{
        let mut bits = bits();
        let (mut xs, mut ys) = (Vec::new(), Vec::new());
        for i in 0..PAIRS {
            let y = <$T>::from_bits(bits() as _);
            let x = match i % 3 {
                // Most quotients are far from 1.
                0 => <$T>::from_bits(bits() as _),
                1 => y * (bits() % (1 << (bits() % $exponents))) as $T,
                _ => y * (bits() as i64 as $T / (1u64 << (bits() % 63)) as $T),
            };
            let x = match bits() % 3 {
                0 => x,
                1 => x.next_up(),
                _ => x.next_down(),
            };
            xs.push(x);
            ys.push(y);
        }
        let want: Vec<_> = (xs.iter().zip(&ys))
            .map(|(&x, &y)| {
                let rest = x % y;
                let moved = if rest != 0.0 && (rest < 0.0) != (y < 0.0) { rest + y } else { rest };
                let moved = if moved == 0.0 { moved.copysign(y) } else { moved };
                if moved.is_nan() { <$T>::NAN.to_bits() } else { moved.to_bits() }
            })
            .collect();
        let mut faults = Vec::new();
        for level in Level::all_available() {
            let inner = InnerStride::Contiguous;
            let kernel = binary(level, Binary::Modulo, $of, inner, inner).unwrap().kernel;
            let got: Vec<$T> = run2(kernel, &xs, &ys, [0.0; 2]);
            for i in 0..PAIRS {
                if got[i].to_bits() != want[i] {
                    faults.push(format!("{:e} modulo {:e} at {level}: {:e}", xs[i], ys[i], got[i]));
                }
            }
        }
        assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults[..faults.len().min(20)].join("\n"));
    }};
}

#[test]
fn remainders_of_f32_are_those_of_one_pair() {
    check!(f32, DataType::F32, 40);
}

#[test]
fn remainders_of_f64_are_those_of_one_pair() {
    check!(f64, DataType::F64, 60);
}
