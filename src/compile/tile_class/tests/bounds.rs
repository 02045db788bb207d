//! Classes that intervals of each tile must find: random conditions whose intervals are exact, and a plain
//! bound below which the classes of other conditions may not fall.

use std::collections::BTreeMap;

use super::{D, K, MaskGraph, Random, SCORE, by_tile, floats};
use crate::graph::op::Op;
use crate::plan::TileClass;
use crate::types::kind::{Level, OpKind};

/// From the least to the largest number of a tile; a boolean is 0 or 1.
type Interval = [f64; 2];

const ANYTHING: Interval = [f64::NEG_INFINITY, f64::INFINITY];
const MASKED: Interval = [f64::NEG_INFINITY; 2];

/// A block of queries and of keys in a plane.
type Tile = [usize; 3];

/// The plain bound of a chain.
struct Bounds<'a> {
    chain: &'a MaskGraph,
    /// The op that makes each value.
    makers: BTreeMap<usize, &'a Op>,
    /// The elements of inputs and indices.
    leaves: BTreeMap<usize, Vec<f64>>,
}

fn elements(chain: &MaskGraph, id: usize) -> Vec<f64> {
    let value = &chain.values[id];
    match value.data_type() {
        D::S32 => value.elements::<i32>().expect("it is s32").into_iter().map(f64::from).collect(),
        D::Boolean => value.bytes().iter().map(|&byte| f64::from(u8::from(byte != 0))).collect(),
        _ => floats(value).into_iter().map(f64::from).collect(),
    }
}

fn is_finite(interval: Interval) -> bool {
    interval.iter().all(|end| end.is_finite())
}

/// The truth of a comparison, if it is the same everywhere.
fn compared(kind: OpKind, a: Interval, b: Interval) -> Interval {
    let truth = |is_true: bool, is_false: bool| match (is_true, is_false) {
        (true, _) => [1.0; 2],
        (_, true) => [0.0; 2],
        _ => [0.0, 1.0],
    };
    match kind {
        K::Less => truth(a[1] < b[0], a[0] >= b[1]),
        K::LessEqual => truth(a[1] <= b[0], a[0] > b[1]),
        K::Greater => truth(a[0] > b[1], a[1] <= b[0]),
        K::GreaterEqual => truth(a[0] >= b[1], a[1] < b[0]),
        _ => {
            let (is_same, is_apart) = (a[0] == a[1] && a == b, a[1] < b[0] || b[1] < a[0]);
            if kind == K::Equal { truth(is_same, is_apart) } else { truth(is_apart, is_same) }
        }
    }
}

/// Of the numbers at the ends, for what is monotonic in each operand.
fn of_ends(a: Interval, b: Interval, of: impl Fn(f64, f64) -> f64) -> Interval {
    let ends = [of(a[0], b[0]), of(a[0], b[1]), of(a[1], b[0]), of(a[1], b[1])];
    if ends.iter().any(|end| end.is_nan()) {
        return ANYTHING;
    }
    [ends.iter().copied().fold(f64::INFINITY, f64::min), ends.iter().copied().fold(-f64::INFINITY, f64::max)]
}

impl<'a> Bounds<'a> {
    fn new(chain: &'a MaskGraph) -> Self {
        let makers: BTreeMap<usize, &Op> =
            chain.ops.iter().map(|op| (op.outputs()[0].id().get(), op)).collect();
        let is_leaf = |id: &usize| *id != SCORE && makers.get(id).is_none_or(|op| op.kind() == K::GenIndex);
        let leaves = (0..chain.values.len()).filter(is_leaf).map(|id| (id, elements(chain, id))).collect();
        Self { chain, makers, leaves }
    }

    /// The interval of an input in a tile.
    fn of_leaf(&self, id: usize, [plane, query, key]: Tile) -> Interval {
        let (all, own) = (&self.chain.dims, self.chain.values[id].dims());
        let rank = all.len();
        let place = |axis: usize, at: usize| {
            let Some(own_axis) = (own.len() + axis).checked_sub(rank) else { return 0 };
            let stride: i64 = own[own_axis + 1..].iter().product();
            if own[own_axis] == 1 { 0 } else { at * stride as usize }
        };
        let (mut base, mut rest) = (0, plane);
        for axis in (0..rank - 2).rev() {
            base += place(axis, rest % all[axis] as usize);
            rest /= all[axis] as usize;
        }
        let ends = |axis: usize, block: usize| block * 64..(all[axis] as usize).min(block * 64 + 64);
        let numbers = &self.leaves[&id];
        let places = ends(rank - 2, query).flat_map(|i| ends(rank - 1, key).map(move |j| (i, j)));
        places.fold([f64::INFINITY, f64::NEG_INFINITY], |[least, most], (i, j)| {
            let number = numbers[base + place(rank - 2, i) + place(rank - 1, j)];
            [least.min(number), most.max(number)]
        })
    }

    /// The interval of a value in a tile.
    fn of(&self, id: usize, tile: Tile, known: &mut BTreeMap<usize, Interval>) -> Interval {
        if let Some(&interval) = known.get(&id) {
            return interval;
        }
        let interval = match self.makers.get(&id) {
            _ if id == SCORE => [f64::from(f32::MIN), f64::from(f32::MAX)],
            Some(op) if op.kind() != K::GenIndex => {
                let operands: Vec<Interval> =
                    op.inputs().iter().map(|input| self.of(input.id().get(), tile, known)).collect();
                self.of_op(op, &operands)
            }
            _ => self.of_leaf(id, tile),
        };
        known.insert(id, interval);
        interval
    }

    fn of_op(&self, op: &Op, operands: &[Interval]) -> Interval {
        let to = self.chain.values[op.outputs()[0].id().get()].data_type();
        let a = operands[0];
        let b = operands.get(1).copied().unwrap_or(a);
        let interval = match op.kind() {
            kind @ (K::Less | K::LessEqual | K::Greater | K::GreaterEqual | K::Equal | K::NotEqual) => {
                return compared(kind, a, b);
            }
            K::LogicalNot => [1.0 - a[1], 1.0 - a[0]],
            K::LogicalAnd | K::Minimum => of_ends(a, b, f64::min),
            K::LogicalOr | K::Maximum => of_ends(a, b, f64::max),
            K::LogicalXor => match (a[0] == a[1], b[0] == b[1]) {
                (true, true) => [f64::from(u8::from(a != b)); 2],
                _ => [0.0, 1.0],
            },
            K::Select => match a {
                [1.0, 1.0] => b,
                [0.0, 0.0] => operands[2],
                _ => [b[0].min(operands[2][0]), b[1].max(operands[2][1])],
            },
            // A mask that is added to any finite score. Behind another mask, intervals know of no bound.
            K::Add if a == MASKED && is_finite(b) || b == MASKED && is_finite(a) => MASKED,
            K::Add if a == MASKED || b == MASKED => ANYTHING,
            K::Add => of_ends(a, b, |x, y| x + y),
            K::Subtract => of_ends(a, b, |x, y| x - y),
            K::Multiply => of_ends(a, b, |x, y| x * y),
            K::Divide if to == D::F32 && b[0] == b[1] => of_ends(a, b, |x, y| x / y),
            K::Negative => [-a[1], -a[0]],
            K::Abs if a[0] >= 0.0 => a,
            K::Abs => [0.0, a[1].abs().max(a[0].abs())],
            K::Cast if a[0] >= -16_777_216.0 && a[1] <= 16_777_216.0 => a,
            K::TypeCast if a == MASKED => MASKED,
            _ => ANYTHING,
        };
        // Integers that overflow may be any.
        let is_in_range = interval[0] >= f64::from(i32::MIN) && interval[1] <= f64::from(i32::MAX);
        if to == D::S32 && !is_in_range { ANYTHING } else { interval }
    }
}

/// Tiles that the plain bound finds to be masked, in all planes, and those of them that have another class.
pub(super) fn missed(chain: &MaskGraph) -> (usize, Vec<Tile>) {
    let bounds = Bounds::new(chain);
    let root = chain.values.len() - 1;
    let Some((tiles, table)) = chain.tiles(Level::Portable) else { return (0, Vec::new()) };
    let dims = &chain.dims;
    let planes = dims[..dims.len() - 2].iter().product::<i64>() as usize;
    let (mut found, mut missed) = (0, Vec::new());
    for plane in 0..planes {
        for query in 0..tiles.query_blocks() {
            for key in 0..tiles.key_blocks() {
                let tile = [plane, query, key];
                if bounds.of(root, tile, &mut BTreeMap::new()) != MASKED {
                    continue;
                }
                found += 1;
                let row = table.row(plane * tiles.query_blocks() + query);
                let row = row.start / row.len();
                let class = tiles.class(row / tiles.query_blocks(), row % tiles.query_blocks(), key);
                if class != Some(TileClass::Masked) {
                    missed.push(tile);
                }
            }
        }
    }
    (found, missed)
}

/// A condition whose intervals are exact in each tile: a sum in which each index occurs once, against a
/// number; or numbers of queries and of keys that are the same, if those of a tile have no gaps.
fn exact_condition(chain: &mut MaskGraph, random: &mut Random, [queries, keys]: [i64; 2]) -> usize {
    let comparisons = [K::Less, K::LessEqual, K::Greater, K::GreaterEqual];
    let [i, j] = [-2, -1].map(|axis| chain.index(axis));
    match random.below(4) {
        0 | 1 => {
            let factors: [i32; 2] = [0; 2].map(|_| random.pick(&[-3, -2, -1, 1, 1, 2, 5]));
            let terms = [(i, factors[0]), (j, factors[1])].map(|(index, factor)| match factor {
                1 => index,
                _ => {
                    let factor = chain.integer(factor);
                    chain.plain(K::Multiply, &[index, factor], D::S32)
                }
            });
            let sum = chain.plain(K::Add, &terms, D::S32);
            // The number is that of some place, so that the condition holds for a part of the tensor.
            let [query, key] = [queries, keys].map(|most| random.below(most as usize) as i32);
            let bound = chain.integer(factors[0] * query + factors[1] * key + random.below(3) as i32 - 1);
            let both = if random.below(2) == 0 { [sum, bound] } else { [bound, sum] };
            chain.plain(random.pick(&comparisons), &both, D::Boolean)
        }
        kind => {
            let mut list = |random: &mut Random, dims: &[i64]| {
                let count = dims.iter().product::<i64>() as usize;
                let (mut numbers, mut last) = (Vec::new(), 0);
                while numbers.len() < count {
                    match kind {
                        // Documents, one behind the other.
                        2 => {
                            let length = 1 + random.below(120);
                            numbers.extend(std::iter::repeat_n(last, length));
                            last += 1;
                        }
                        // Any number for each block of a tile.
                        _ => numbers.extend(std::iter::repeat_n(random.below(3) as i32, 64)),
                    }
                }
                chain.integers(dims, |index| numbers[index])
            };
            let lists = [list(random, &[queries, 1]), list(random, &[keys])];
            chain.plain(random.pick(&[K::Equal, K::NotEqual]), &lists, D::Boolean)
        }
    }
}

#[test]
fn conditions_whose_intervals_are_exact_find_every_tile() {
    let mut wrong = Vec::new();
    let mut random = Random(17);
    let mut counted = [0; 2];
    for case in 0..120 {
        let sizes = [1, 40, 64, 65, 130, 200, 257, 330];
        let [queries, keys] = [0; 2].map(|_| random.pick(&sizes));
        let mut chain = MaskGraph::new(&[queries, keys]);
        let mut cond = exact_condition(&mut chain, &mut random, [queries, keys]);
        if random.below(3) == 0 {
            cond = chain.plain(K::LogicalNot, &[cond], D::Boolean);
        }
        let fill = chain.numbers(&[], |_| f32::NEG_INFINITY);
        let [then, other] = if random.below(2) == 0 { [SCORE, fill] } else { [fill, SCORE] };
        let value = chain.select(cond, then, other);
        if random.below(2) == 0 {
            super::scaled(&mut chain, value, 0.125);
        }
        let root = floats(&chain.values[chain.values.len() - 1]);
        let tiles = by_tile(&chain.dims, &root);
        let count = |is: fn(&f32) -> bool| tiles.iter().filter(|(_, tile)| tile.iter().all(is)).count();
        let exact = [count(|&x| x == f32::NEG_INFINITY), count(|&x| x != f32::NEG_INFINITY)];
        for level in Level::all_available() {
            let found = chain
                .tiles(level)
                .map(|(tiles, _)| [TileClass::Masked, TileClass::Full].map(|class| tiles.count(class)));
            if found != Some(exact) {
                wrong.push(format!(
                    "case {case}, {level}, {queries} by {keys}: {found:?}, not {exact:?}\n{:#?}",
                    chain.kinds()
                ));
            }
        }
        counted = [counted[0] + exact[0], counted[1] + exact[1]];
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(counted.iter().all(|&count| count > 200), "{counted:?} tiles are masked and full");
}

#[test]
fn tiles_to_which_zeros_are_added_are_unchanged() {
    let mut wrong = Vec::new();
    let dims = [130, 400];
    let added = |index: usize| {
        let (query, key) = (index / 400, index % 400);
        match (query / 64 + key / 64) % 4 {
            0 => 0.0,
            1 => -0.0,
            2 => 0.5,
            _ if query % 64 == 1 && key % 64 == 3 => -0.5,
            _ => 0.0,
        }
    };
    let mut chain = MaskGraph::new(&dims);
    let numbers = chain.numbers(&dims, added);
    let sum = chain.plain(K::Add, &[SCORE, numbers], D::F32);
    let [scores, sums] = [SCORE, sum].map(|value| by_tile(&dims, &floats(&chain.values[value])));
    for level in Level::all_available() {
        let (tiles, _) = chain.tiles(level).expect("numbers are added");
        for ((tile, of_scores), (_, of_sums)) in scores.iter().zip(&sums) {
            let &[plane, query_block, key_block] = tile;
            let found = tiles.is_unchanged(plane, query_block, key_block);
            if found != (of_scores == of_sums) {
                wrong.push(format!("{level}, {tile:?}: {found}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(scores != sums && scores.iter().zip(&sums).any(|(scores, sums)| scores == sums));
}
