//! Promise: any dim of attention may be 0, in every form of its tensors, and a query that sees no key gets 0.

use std::collections::BTreeMap;

use crate::common::open::{self, OPEN};
use crate::common::{Random, report};
use crate::options::{interpreted, try_run};
use sterna::reference::Value;
use sterna::{Attention, AttentionBackward, Causal, DataType, Graph, LogicalTensor, MaskTrue};

const NAMES: [&str; 6] = ["batch", "heads", "queries", "keys", "depth", "width"];
const SIZES: [i64; 6] = [2, 4, 5, 7, 8, 6];
const GROUPS: i64 = 2;

const Q: usize = 0;
const K: usize = 1;
const V: usize = 2;
const MASK: usize = 3;
const BIAS: usize = 4;
const DST: usize = 5;
const STATS: usize = 6;
const D_DST: usize = 7;
const D_Q: usize = 8;
const D_K: usize = 9;
const D_V: usize = 10;

/// How heads share keys.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Sharing {
    None,
    Rank4,
    Rank5,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Mask {
    None,
    Causal,
    /// One row for each member of the batch.
    Padding,
    /// One number for each score, of heads in front.
    Full,
    Bias,
}

#[derive(Debug, Clone, Copy)]
struct Case {
    sizes: [i64; 6],
    sharing: Sharing,
    mask: Mask,
    k_transposed: bool,
    inf_as_zero: bool,
    /// The graph leaves batch, queries and keys open.
    is_open: bool,
    has_stats: bool,
}

impl Case {
    fn name(&self) -> String {
        let zeros = NAMES.iter().zip(self.sizes).filter(|(_, size)| *size == 0).map(|(name, _)| *name);
        format!("no {:?}: {self:?}", zeros.collect::<Vec<_>>())
    }

    /// Dims of four in the form of the case; heads of keys are shared.
    fn dims(&self, [batch, heads, rows, columns]: [i64; 4], of_keys: bool) -> Vec<i64> {
        match (self.sharing, of_keys, heads) {
            (Sharing::None, ..) => vec![batch, heads, rows, columns],
            (Sharing::Rank4, true, _) => vec![batch, heads / GROUPS, rows, columns],
            (Sharing::Rank4, false, _) => vec![batch, heads, rows, columns],
            (Sharing::Rank5, true, _) => vec![batch, heads / GROUPS, 1, rows, columns],
            (Sharing::Rank5, false, 1) => vec![batch, 1, 1, rows, columns],
            (Sharing::Rank5, false, _) => vec![batch, heads / GROUPS, GROUPS, rows, columns],
        }
    }

    fn values(&self, random: &mut Random) -> BTreeMap<usize, Value> {
        let [batch, heads, queries, keys, depth, width] = self.sizes;
        let of_keys =
            if self.k_transposed { [batch, heads, depth, keys] } else { [batch, heads, keys, depth] };
        let mut floats = |dims: Vec<i64>| {
            let count = dims.iter().product::<i64>();
            let numbers: Vec<f32> = (0..count).map(|_| random.below(4001) as f32 / 1000.0 - 2.0).collect();
            Value::from_slice(&dims, &numbers).unwrap()
        };
        let mut values = BTreeMap::from([
            (Q, floats(self.dims([batch, heads, queries, depth], false))),
            (K, floats(self.dims(of_keys, true))),
            (V, floats(self.dims([batch, heads, keys, width], true))),
            (D_DST, floats(self.dims([batch, heads, queries, width], false))),
        ]);
        let full = self.dims([batch, heads, queries, keys], false);
        match self.mask {
            Mask::None | Mask::Causal => {}
            Mask::Bias => drop(values.insert(BIAS, floats(full[1..].to_vec()))),
            Mask::Padding | Mask::Full => {
                let dims = match self.mask {
                    Mask::Padding => self.dims([batch, 1, 1, keys], false),
                    _ => full,
                };
                let count = dims.iter().product::<i64>() as usize;
                // The first row of the first member sees no key.
                let keeps: Vec<bool> = (0..count).map(|i| i as i64 >= keys && i % 3 > 0).collect();
                values.insert(MASK, Value::from_slice(&dims, &keeps).unwrap());
            }
        }
        values
    }

    fn options(&self, values: &BTreeMap<usize, Value>) -> Attention {
        let desc = |id: usize| {
            let mut dims = values[&id].dims().to_vec();
            let rank = dims.len();
            let last = if id == K && self.k_transposed { rank - 1 } else { rank - 2 };
            if self.is_open && id < MASK {
                (dims[0], dims[last]) = (OPEN, OPEN);
            }
            open::strided(id, values[&id].data_type(), &dims).unwrap()
        };
        let open = |id| LogicalTensor::unknown(id, DataType::F32);
        Attention::new(desc(Q), desc(K), desc(V), open(DST))
            .k_transposed(self.k_transposed)
            .nan_without_keys(!self.inf_as_zero)
            .stats(self.has_stats.then(|| open(STATS)))
            .mask(values.contains_key(&MASK).then(|| desc(MASK)), MaskTrue::Keeps)
            .bias(values.contains_key(&BIAS).then(|| desc(BIAS)))
            .causal((self.mask == Mask::Causal).then_some(Causal::TopLeft))
            .groups((self.sharing != Sharing::None).then_some(GROUPS))
    }

    /// Faults in the results of partitions beside those of the ops one by one.
    fn compared(&self, graph: &Graph, values: &BTreeMap<usize, Value>, results: &[usize]) -> Vec<String> {
        let (expected, found) = (interpreted(graph, values), try_run(graph, values));
        let found = match found {
            Ok(found) => found,
            Err(error) => return vec![format!("{}: {error}", self.name())],
        };
        let mut wrong = Vec::new();
        for id in results {
            if !found.contains_key(id) {
                wrong.push(format!("{}: no tensor {id}", self.name()));
                continue;
            }
            let of = |values: &BTreeMap<usize, Value>| values[id].elements::<f32>().unwrap();
            let is_near =
                |(x, y): (&f32, &f32)| (x - y).abs() <= 1e-5 || x == y || (x.is_nan() && y.is_nan());
            let (found, expected) = ((of(&found), found[id].dims()), (of(&expected), expected[id].dims()));
            if found.1 != expected.1 || !found.0.iter().zip(&expected.0).all(is_near) {
                wrong.push(format!("{}: {id} is {found:?}, not {expected:?}", self.name()));
            }
            if *id == DST && self.sizes[3] == 0 && found.0.iter().any(|&x| x != 0.0) {
                wrong.push(format!("{}: a query without keys gets {:?}", self.name(), found.0));
            }
        }
        wrong
    }
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let zeros = (0..6).flat_map(|a| (a..6).map(move |b| [a, b]));
    for (zeros, sharing) in
        zeros.flat_map(|z| [Sharing::None, Sharing::Rank4, Sharing::Rank5].map(|s| (z, s)))
    {
        let mut sizes = SIZES;
        zeros.iter().for_each(|&at| sizes[at] = 0);
        for mask in [Mask::None, Mask::Causal, Mask::Padding, Mask::Full, Mask::Bias] {
            let has_stats = mask == Mask::Full;
            let known = Case {
                sizes,
                sharing,
                mask,
                k_transposed: false,
                inf_as_zero: true,
                is_open: false,
                has_stats,
            };
            cases.push(known);
            if mask == Mask::None {
                cases.push(Case { k_transposed: true, ..known });
                cases.push(Case { inf_as_zero: false, ..known });
                // A graph that is open cannot tell heads of 0, nor numbers of 0 beside what is open.
                if [1, 4, 5].iter().all(|&at| sizes[at] > 0) {
                    cases.push(Case { is_open: true, ..known });
                    cases.push(Case { is_open: true, k_transposed: true, ..known });
                }
            }
        }
    }
    cases
}

#[test]
fn any_dim_may_be_zero() {
    let mut wrong = Vec::new();
    for (seed, case) in cases().iter().enumerate() {
        let values = case.values(&mut Random::new(seed as u64));
        let mut graph = Graph::new();
        match graph.attention(&case.options(&values)) {
            Ok(_) => {
                graph.finalize().unwrap();
                let results: &[usize] = if case.has_stats { &[DST, STATS] } else { &[DST] };
                wrong.extend(case.compared(&graph, &values, results));
            }
            Err(error) => wrong.push(format!("{}: {error}", case.name())),
        }
    }
    report(&wrong);
}

#[test]
fn any_dim_of_gradients_may_be_zero() {
    let mut wrong = Vec::new();
    for (seed, case) in cases().iter().enumerate().filter(|(_, case)| !case.has_stats && !case.is_open) {
        let values = case.values(&mut Random::new(seed as u64));
        let open = |id| LogicalTensor::unknown(id, DataType::F32);
        let d_dst = LogicalTensor::strided(D_DST, DataType::F32, values[&D_DST].dims()).unwrap();
        let options = AttentionBackward::new(case.options(&values), d_dst);
        let options = options.d_q(open(D_Q)).d_k(open(D_K)).d_v(open(D_V));
        let mut graph = Graph::new();
        match graph.attention_backward(&options) {
            Ok(_) => {
                graph.finalize().unwrap();
                wrong.extend(case.compared(&graph, &values, &[D_Q, D_K, D_V]));
            }
            Err(error) => wrong.push(format!("{}: {error}", case.name())),
        }
    }
    report(&wrong);
}

/// A mask that leaves out every key is not the lack of keys: there `inf_as_zero` decides.
#[test]
fn a_query_that_sees_no_key_is_zero_unless_nan_is_asked_for() {
    let mut wrong = Vec::new();
    for sharing in [Sharing::None, Sharing::Rank4, Sharing::Rank5] {
        for (mask, inf_as_zero) in
            [Mask::Padding, Mask::Full].into_iter().flat_map(|m| [(m, true), (m, false)])
        {
            let case = Case {
                sizes: SIZES,
                sharing,
                mask,
                k_transposed: false,
                inf_as_zero,
                is_open: false,
                has_stats: false,
            };
            let values = case.values(&mut Random::new(7));
            let mut graph = Graph::new();
            graph.attention(&case.options(&values)).unwrap();
            graph.finalize().unwrap();
            wrong.extend(case.compared(&graph, &values, &[DST]));
            let found = try_run(&graph, &values).unwrap()[&DST].elements::<f32>().unwrap();
            let is_right = |x: &f32| if inf_as_zero { *x == 0.0 } else { x.is_nan() };
            if !found[..SIZES[5] as usize].iter().all(is_right) {
                wrong.push(format!("{}: {:?}", case.name(), &found[..SIZES[5] as usize]));
            }
        }
    }
    report(&wrong);
}
