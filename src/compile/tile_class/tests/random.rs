//! Random masks, whose classes hold for every element.

use std::collections::BTreeMap;

use super::{D, K, MaskGraph, Random, SCORE, bounds, check};
use crate::reference::Value;
use crate::types::dtype::DataType;
use crate::types::kind::Level;

/// A random condition on indices, integers in memory and booleans.
fn random_condition(chain: &mut MaskGraph, random: &mut Random, numbers: &[usize], depth: usize) -> usize {
    let comparisons = [K::Less, K::LessEqual, K::Greater, K::GreaterEqual, K::Equal, K::NotEqual];
    if depth == 0 || random.below(4) == 0 {
        let operands = [random_integer(chain, random, numbers, 2), random_integer(chain, random, numbers, 2)];
        return chain.plain(random.pick(&comparisons), &operands, D::Boolean);
    }
    match random.below(5) {
        0 => {
            let x = random_condition(chain, random, numbers, depth - 1);
            chain.plain(K::LogicalNot, &[x], D::Boolean)
        }
        1 => random_blocks(chain, random),
        2 => {
            let cond = random_condition(chain, random, numbers, depth - 1);
            let branches =
                [random_integer(chain, random, numbers, 1), random_integer(chain, random, numbers, 1)];
            let chosen = chain.select(cond, branches[0], branches[1]);
            let other = random_integer(chain, random, numbers, 1);
            chain.plain(random.pick(&comparisons), &[chosen, other], D::Boolean)
        }
        _ => {
            let operands = [
                random_condition(chain, random, numbers, depth - 1),
                random_condition(chain, random, numbers, depth - 1),
            ];
            let kind = random.pick(&[K::LogicalAnd, K::LogicalOr, K::LogicalXor]);
            chain.plain(kind, &operands, D::Boolean)
        }
    }
}

/// A random integer for each place.
fn random_integer(chain: &mut MaskGraph, random: &mut Random, numbers: &[usize], depth: usize) -> usize {
    if depth == 0 || random.below(3) == 0 {
        return match random.below(5) {
            0 => {
                let number = random.pick(&[0, 1, -1, 3, 64, 100, 7, -20, 1 << 30]);
                chain.integer(number)
            }
            _ => random.pick(numbers),
        };
    }
    let x = random_integer(chain, random, numbers, depth - 1);
    let y = random_integer(chain, random, numbers, depth - 1);
    match random.below(9) {
        0 => chain.plain(K::Abs, &[x], D::S32),
        1 => chain.plain(K::Negative, &[x], D::S32),
        2 => {
            let float = chain.plain(K::Cast, &[x], D::F32);
            chain.plain(K::Cast, &[float], D::S32)
        }
        _ => {
            let kinds =
                [K::Add, K::Subtract, K::Multiply, K::Divide, K::Modulo, K::Maximum, K::Minimum, K::Subtract];
            chain.plain(random.pick(&kinds), &[x, y], D::S32)
        }
    }
}

/// Booleans in random blocks, of random strides, for random axes.
fn random_blocks(chain: &mut MaskGraph, random: &mut Random) -> usize {
    let dims: Vec<i64> = chain.dims.iter().map(|&dim| if random.below(3) == 0 { 1 } else { dim }).collect();
    let value = blocks(&dims, random, |truth| vec![if truth { 3u8 } else { 0 }], D::Boolean);
    chain.strided_input(value, random)
}

/// One of two elements in each block of 64 × 64, or both of them.
fn blocks(dims: &[i64], random: &mut Random, bytes: impl Fn(bool) -> Vec<u8>, of: DataType) -> Value {
    let rank = dims.len();
    let (queries, keys) = (dims[rank - 2] as usize, dims[rank - 1] as usize);
    let planes = dims[..rank - 2].iter().product::<i64>() as usize;
    let mut kinds: BTreeMap<[usize; 3], usize> = BTreeMap::new();
    let mut all = Vec::new();
    for plane in 0..planes {
        for query in 0..queries {
            for key in 0..keys {
                let block = [plane, query / 64, key / 64];
                let kind = *kinds.entry(block).or_insert_with(|| random.below(5));
                let truth = match kind {
                    0 | 1 => false,
                    2 | 3 => true,
                    _ => random.below(2) == 0,
                };
                all.extend(bytes(truth));
            }
        }
    }
    Value::new(of, dims, all).expect("the bytes are those of the dims")
}

#[test]
fn classes_of_random_masks_hold() {
    let mut wrong = Vec::new();
    let mut random = Random(5);
    let (mut found, mut exact, mut bounded) = (0, 0, 0);
    for case in 0..60 {
        let sizes = [1, 5, 64, 65, 100, 130, 200];
        let mut dims = vec![1 + random.below(2) as i64, random.pick(&sizes), random.pick(&sizes)];
        if random.below(2) == 0 {
            dims.insert(0, 1 + random.below(2) as i64);
        }
        let mut chain = MaskGraph::new(&dims);
        let rank = dims.len() as i64;
        let mut numbers =
            vec![chain.index(-1), chain.index(-2), chain.index(-1), chain.index(-2), chain.index(0)];
        for axis in [rank - 2, rank - 1] {
            let mut of = vec![1; dims.len()];
            of[axis as usize] = dims[axis as usize];
            let step = 1 + random.below(60);
            numbers.push(chain.integers(&of, |index| (index / step) as i32));
        }
        let mut value = SCORE;
        for _ in 0..1 + random.below(3) {
            value = random_link(&mut chain, &mut random, &numbers, value);
        }
        if random.below(4) == 0 {
            let of = random.pick(&[D::Bf16, D::F16]);
            chain.plain(K::TypeCast, &[value], of);
        }
        match chain.tiles(Level::Portable) {
            None => {}
            Some(_) => match check(&chain, !chain.adds_masks) {
                Ok((skipped, all)) => {
                    found += skipped;
                    exact += all;
                    // Behind a mask that is added, classes are right, but not of every tile that they could
                    // be.
                    let (bound, missed) =
                        if chain.adds_masks { (0, Vec::new()) } else { bounds::missed(&chain) };
                    bounded += bound;
                    if !missed.is_empty() {
                        wrong.push(format!(
                            "case {case}, {dims:?}: intervals find {missed:?} of {bound}\n{:#?}",
                            chain.kinds()
                        ));
                    }
                }
                Err(fault) => wrong.push(format!("case {case}, {dims:?}: {fault}\n{:#?}", chain.kinds())),
            },
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(found > 0 && bounded > 0, "of {exact} masked tiles, {found} were found, {bounded} by intervals");
}

/// Another link of a chain from the score to the value that enters SoftMax.
fn random_link(chain: &mut MaskGraph, random: &mut Random, numbers: &[usize], value: usize) -> usize {
    match random.below(6) {
        0..=2 => {
            let cond = random_condition(chain, random, numbers, 2);
            let number = random.pick(&[-f32::INFINITY, -f32::INFINITY, -f32::INFINITY, -1e4, f32::MIN]);
            let fill = chain.numbers(&[], |_| number);
            match random.below(2) {
                0 => chain.select(cond, value, fill),
                _ => chain.select(cond, fill, value),
            }
        }
        3 => {
            let dims = chain.dims.clone();
            let bytes = |truth| (if truth { 0.0 } else { -f32::INFINITY }).to_ne_bytes().to_vec();
            let mask = blocks(&dims, random, bytes, D::F32);
            chain.adds_masks = true;
            let mut mask = chain.strided_input(mask, random);
            if random.below(2) == 0 {
                let of = random.pick(&[D::Bf16, D::F16]);
                mask = chain.plain(K::TypeCast, &[mask], of);
                mask = chain.plain(K::TypeCast, &[mask], D::F32);
            }
            chain.plain(K::Add, &[value, mask], D::F32)
        }
        4 => {
            let number = random.pick(&[0.125f32, 2.0, -1.5, 0.3]);
            let factor = chain.numbers(&[], |_| number);
            let kind = random.pick(&[K::Multiply, K::Divide]);
            chain.plain(kind, &[value, factor], D::F32)
        }
        _ => {
            let distance = chain.plain(K::Subtract, &[numbers[0], numbers[1]], D::S32);
            let distance = chain.plain(K::Cast, &[distance], D::F32);
            chain.plain(K::Add, &[value, distance], D::F32)
        }
    }
}
