//! The masks: one definition each, from which follow the boolean tensor, the ops of the expression, and the
//! share of tiles that are kept.

use sterna::{Attr, DataType, LogicalTensor, Op, OpKind};

use DataType::{Boolean, S32};
use OpKind as K;

/// Queries and keys of a tile whose computation a mask can save.
pub(crate) const TILE: usize = 64;

/// A number that belongs to a pair of a query and a key.
#[derive(Debug, Clone)]
pub(crate) enum Number {
    Query,
    Key,
    Constant(i32),
    /// An entry of a list, by the query, or by the key.
    OfQuery(usize),
    OfKey(usize),
    Minus(Box<[Number; 2]>),
    Modulo(Box<[Number; 2]>),
}

/// A condition on a pair of a query and a key.
#[derive(Debug, Clone)]
pub(crate) enum Condition {
    Less(Number, Number),
    LessEqual(Number, Number),
    Equal(Number, Number),
    Both(Box<[Condition; 2]>),
    Either(Box<[Condition; 2]>),
    Not(Box<Condition>),
    /// Drawn for each pair; no expression says it. The number is per 10,000.
    Random(u64),
}

use Condition as C;
use Number as N;

impl Number {
    fn of(&self, lists: &[Vec<i32>], query: usize, key: usize) -> i32 {
        match self {
            N::Query => query as i32,
            N::Key => key as i32,
            N::Constant(number) => *number,
            N::OfQuery(list) => lists[*list][query],
            N::OfKey(list) => lists[*list][key],
            N::Minus(pair) => pair[0].of(lists, query, key) - pair[1].of(lists, query, key),
            N::Modulo(pair) => pair[0].of(lists, query, key) % pair[1].of(lists, query, key),
        }
    }

    fn minus(self, other: Self) -> Self {
        N::Minus(Box::new([self, other]))
    }

    fn modulo(self, other: i32) -> Self {
        N::Modulo(Box::new([self, N::Constant(other)]))
    }
}

impl Condition {
    fn of(&self, lists: &[Vec<i32>], query: usize, key: usize) -> bool {
        let pair = |[left, right]: [&Number; 2]| [left.of(lists, query, key), right.of(lists, query, key)];
        let is = |condition: &Self| condition.of(lists, query, key);
        match self {
            C::Less(left, right) => {
                let [left, right] = pair([left, right]);
                left < right
            }
            C::LessEqual(left, right) => {
                let [left, right] = pair([left, right]);
                left <= right
            }
            C::Equal(left, right) => {
                let [left, right] = pair([left, right]);
                left == right
            }
            C::Both(both) => is(&both[0]) && is(&both[1]),
            C::Either(either) => is(&either[0]) || is(&either[1]),
            C::Not(condition) => !is(condition),
            C::Random(parts) => mixed((query as u64) << 32 | key as u64) % 10_000 < *parts,
        }
    }

    fn and(self, other: Self) -> Self {
        C::Both(Box::new([self, other]))
    }

    fn or(self, other: Self) -> Self {
        C::Either(Box::new([self, other]))
    }

    fn not(self) -> Self {
        C::Not(Box::new(self))
    }

    fn is_drawn(&self) -> bool {
        match self {
            C::Random(_) => true,
            C::Both(pair) | C::Either(pair) => pair.iter().any(Self::is_drawn),
            C::Not(condition) => condition.is_drawn(),
            C::Less(..) | C::LessEqual(..) | C::Equal(..) => false,
        }
    }
}

/// A number that follows no simple pattern, always the same for the same place.
pub(crate) fn mixed(at: u64) -> u64 {
    let mut x = at.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

/// A mask of `size` queries and as many keys.
pub(crate) struct Mask {
    pub(crate) name: &'static str,
    condition: Condition,
    /// Lists of as many numbers as there are queries.
    pub(crate) lists: Vec<Vec<i32>>,
}

/// The share of elements, and of tiles with any element, that are kept.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kept {
    pub(crate) pairs: f64,
    pub(crate) tiles: f64,
}

const FEW_KEYS: i32 = 4;
const GLOBAL_KEYS: i32 = 16;

impl Mask {
    /// Every mask for so many queries and keys.
    pub(crate) fn all(size: usize) -> Vec<Self> {
        let n = size as i32;
        let mask = |name, condition| Self { name, condition, lists: Vec::new() };
        let with = |name, condition, lists: Vec<Vec<i32>>| Self { name, condition, lists };
        let causal = || C::LessEqual(N::Key, N::Query);
        let near = || C::Less(N::Query.minus(N::Key), N::Constant((n / 16).max(1)));
        let window = || causal().and(near());
        let same = |list| C::Equal(N::OfQuery(list), N::OfKey(list));
        let first = |keys| C::Less(N::Key, N::Constant(keys));
        let chunk = |of: Number, size: i32| of.clone().minus(of.modulo(size));
        let same_chunk = |size: i32| C::Equal(chunk(N::Query, size), chunk(N::Key, size));
        let documents = documents(size);
        let ids: Vec<i32> = numbered(&documents, size);
        // The keys of two bands are seen by the first queries alone.
        let band = |from: i32, queries: i32| {
            let is_in =
                C::LessEqual(N::Constant(from), N::Key).and(C::Less(N::Key, N::Constant(from + n / 32)));
            is_in.and(C::LessEqual(N::Constant(queries), N::Query))
        };
        // The first half is a question, the eighths behind it are answers.
        let answers: Vec<i32> = (0..size).map(|at| (at / (size / 8).max(1)) as i32).collect();
        // Chunks of an eighth, but for the last, which is the last half.
        let chunks: Vec<i32> = answers.iter().map(|&eighth| eighth.min(4)).collect();
        let prefixes: Vec<i32> = documents
            .windows(2)
            .flat_map(|ends| (ends[0]..ends[1]).map(move |_| ((ends[0] + ends[1]) / 2) as i32))
            .collect();
        let evicted: Vec<i32> =
            (0..size).map(|key| (key + 1 + mixed(key as u64) as usize % (size - key)) as i32).collect();
        vec![
            mask("full", C::LessEqual(N::Constant(0), N::Key)),
            mask("causal", causal()),
            mask("window", window()),
            with("causal-document", causal().and(same(0)), vec![ids.clone()]),
            with("document", same(0), vec![ids.clone()]),
            with("share-question", causal().and(first(n / 2).or(same(0))), vec![answers]),
            mask(
                "global-window",
                causal().and(first(GLOBAL_KEYS).or(C::Less(N::Query, N::Constant(GLOBAL_KEYS))).or(near())),
            ),
            with(
                "causal-blockwise",
                causal().and(same(0).or(C::Equal(N::OfQuery(0), N::Constant(4)))),
                vec![chunks],
            ),
            mask("prefix-lm", causal().or(first(n / 2))),
            with(
                "prefix-lm-document",
                same(0).and(causal().or(C::Less(N::Key, N::OfQuery(1)))),
                vec![ids, prefixes],
            ),
            mask("qk-sparse", causal().and(band(n / 8, n / 2).or(band(n / 4, 3 * n / 4)).not())),
            with("random-eviction", causal().and(C::Less(N::Query, N::OfKey(0))), vec![evicted]),
            mask("padding", first((n * 3 / 5).max(1))),
            mask("sink-window", causal().and(first(FEW_KEYS).or(near()))),
            mask("strided", causal().and(same_chunk(64).or(C::Less(N::Key.modulo(256), N::Constant(64))))),
            mask("chunked-local", causal().and(same_chunk((n / 8).max(1)))),
            mask("random-50", C::Random(5_000)),
            mask("random-1", C::Random(100)),
        ]
    }

    /// True if ops compute the mask.
    pub(crate) fn is_expression(&self) -> bool {
        !self.condition.is_drawn()
    }

    /// The mask as bytes, 1 where a key is kept.
    pub(crate) fn bytes(&self, size: usize) -> Vec<u8> {
        let pairs = (0..size).flat_map(|query| (0..size).map(move |key| (query, key)));
        pairs.map(|(query, key)| u8::from(self.condition.of(&self.lists, query, key))).collect()
    }

    /// The pairs that the mask keeps.
    pub(crate) fn kept(&self, size: usize) -> Kept {
        let (mut pairs, mut tiles) = (0usize, 0usize);
        let across = size.div_ceil(TILE);
        for rows in (0..size).step_by(TILE) {
            let mut in_tiles = vec![0usize; across];
            for (query, key) in
                (rows..size.min(rows + TILE)).flat_map(|query| (0..size).map(move |key| (query, key)))
            {
                in_tiles[key / TILE] += usize::from(self.condition.of(&self.lists, query, key));
            }
            pairs += in_tiles.iter().sum::<usize>();
            tiles += in_tiles.iter().filter(|&&kept| kept > 0).count();
        }
        Kept { pairs: pairs as f64 / (size * size) as f64, tiles: tiles as f64 / (across * across) as f64 }
    }

    /// Adds the ops of the expression, whose indices have the shape of `scores`; answers with the condition.
    pub(crate) fn ops(&self, builder: &mut Builder, scores: &LogicalTensor) -> LogicalTensor {
        builder.condition(&self.condition, scores)
    }
}

/// Ends of documents of very different lengths, 0 first: each takes between a quarter and three quarters of
/// what is left, down to a sixteenth of the whole.
fn documents(size: usize) -> Vec<usize> {
    let (mut ends, mut at) = (vec![0], 0);
    while size - at > size / 16 {
        let left = size - at;
        at += (left / 4 + mixed(at as u64) as usize % (left / 2).max(1)).max(1);
        ends.push(at);
    }
    if at < size {
        ends.push(size);
    }
    ends
}

/// The number of the document of each position.
fn numbered(ends: &[usize], size: usize) -> Vec<i32> {
    (0..size).map(|at| ends[1..].iter().filter(|&&end| end <= at).count() as i32).collect()
}

/// Ops that are added one after the other.
pub(crate) struct Builder {
    pub(crate) ops: Vec<Op>,
    next: usize,
    /// The ids of the first list, by query and by key.
    lists: usize,
    indices: [Option<LogicalTensor>; 2],
}

impl Builder {
    /// Tensors between the ops have ids from `next` on; list `i` is tensor `lists + 2 · i` as a column and
    /// `lists + 2 · i + 1` as a row.
    pub(crate) fn new(next: usize, lists: usize) -> Self {
        Self { ops: Vec::new(), next, lists, indices: [None, None] }
    }

    pub(crate) fn op(&mut self, kind: K, inputs: &[&LogicalTensor], t: DataType) -> LogicalTensor {
        self.add(Op::new(self.ops.len(), kind), inputs, t)
    }

    pub(crate) fn add(&mut self, op: Op, inputs: &[&LogicalTensor], t: DataType) -> LogicalTensor {
        let result = LogicalTensor::unknown(self.next, t);
        self.next += 1;
        self.ops.push(op.inputs_from(inputs.iter().copied().cloned()).output(result.clone()));
        result
    }

    pub(crate) fn constant(&mut self, t: DataType, number: f32) -> LogicalTensor {
        let scalar = LogicalTensor::strided(self.next, t, &[]).expect("a scalar has no dims");
        self.next += 1;
        let op = Op::new(self.ops.len(), K::Fill);
        let op = op.attr(Attr::Shape, Vec::<i64>::new()).attr(Attr::Value, number);
        self.ops.push(op.output(scalar.clone()));
        scalar
    }

    fn index(&mut self, axis: usize, scores: &LogicalTensor) -> LogicalTensor {
        if let Some(index) = &self.indices[axis] {
            return index.clone();
        }
        let op = Op::new(self.ops.len(), K::GenIndex).attr(Attr::Axis, axis as i64 - 2);
        let index = self.add(op, &[scores], S32);
        self.indices[axis] = Some(index.clone());
        index
    }

    fn number(&mut self, number: &Number, scores: &LogicalTensor) -> LogicalTensor {
        match number {
            N::Query => self.index(0, scores),
            N::Key => self.index(1, scores),
            N::Constant(number) => self.constant(S32, *number as f32),
            N::OfQuery(list) => LogicalTensor::unknown(self.lists + 2 * list, S32),
            N::OfKey(list) => LogicalTensor::unknown(self.lists + 2 * list + 1, S32),
            N::Minus(pair) => self.numbers(K::Subtract, &pair[0], &pair[1], S32, scores),
            N::Modulo(pair) => self.numbers(K::Modulo, &pair[0], &pair[1], S32, scores),
        }
    }

    fn numbers(
        &mut self,
        kind: K,
        left: &Number,
        right: &Number,
        t: DataType,
        scores: &LogicalTensor,
    ) -> LogicalTensor {
        let (left, right) = (self.number(left, scores), self.number(right, scores));
        self.op(kind, &[&left, &right], t)
    }

    fn condition(&mut self, condition: &Condition, scores: &LogicalTensor) -> LogicalTensor {
        match condition {
            C::Less(left, right) => self.numbers(K::Less, left, right, Boolean, scores),
            C::LessEqual(left, right) => self.numbers(K::LessEqual, left, right, Boolean, scores),
            C::Equal(left, right) => self.numbers(K::Equal, left, right, Boolean, scores),
            C::Both(pair) => self.conditions(K::LogicalAnd, pair, scores),
            C::Either(pair) => self.conditions(K::LogicalOr, pair, scores),
            C::Not(of) => {
                let of = self.condition(of, scores);
                self.op(K::LogicalNot, &[&of], Boolean)
            }
            C::Random(_) => unreachable!("a random mask is a tensor"),
        }
    }

    fn conditions(&mut self, kind: K, pair: &[Condition; 2], scores: &LogicalTensor) -> LogicalTensor {
        let [left, right] = [&pair[0], &pair[1]].map(|condition| self.condition(condition, scores));
        self.op(kind, &[&left, &right], Boolean)
    }
}
