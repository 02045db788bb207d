//! Masks whose tiles are known: every form of a mask finds all that the mask's rule gives.

use super::{D, K, MaskGraph, Random, SCORE};
use crate::plan::TileClass;
use crate::types::kind::{Level, OpKind};

/// Queries and keys of the masks, which are no multiple of a tile.
const S: usize = 1000;

/// Conditions on the indices of a query and a key, from 1-D inputs too.
struct Mask {
    name: &'static str,
    /// True if query i sees key j.
    sees: fn(usize, usize) -> bool,
    /// The same as an expression.
    expr: fn(&mut MaskGraph, i: usize, j: usize) -> usize,
}

impl MaskGraph {
    fn both(&mut self, a: usize, b: usize) -> usize {
        self.plain(K::LogicalAnd, &[a, b], D::Boolean)
    }

    fn either(&mut self, a: usize, b: usize) -> usize {
        self.plain(K::LogicalOr, &[a, b], D::Boolean)
    }

    fn compare(&mut self, kind: OpKind, a: usize, b: usize) -> usize {
        self.plain(kind, &[a, b], D::Boolean)
    }

    fn less_than(&mut self, a: usize, number: usize) -> usize {
        let number = self.integer(number as i32);
        self.compare(K::Less, a, number)
    }

    fn causal(&mut self, i: usize, j: usize) -> usize {
        self.compare(K::LessEqual, j, i)
    }

    /// i − j < w.
    fn window(&mut self, i: usize, j: usize, w: usize) -> usize {
        let distance = self.plain(K::Subtract, &[i, j], D::S32);
        self.less_than(distance, w)
    }

    /// ⌊i / n⌋.
    fn block(&mut self, i: usize, n: usize) -> usize {
        let n = self.integer(n as i32);
        self.plain(K::Divide, &[i, n], D::S32)
    }

    fn same_block(&mut self, i: usize, j: usize, n: usize) -> usize {
        let (i, j) = (self.block(i, n), self.block(j, n));
        self.compare(K::Equal, i, j)
    }

    fn of_query(&mut self, number: fn(usize) -> usize) -> usize {
        self.integers(&[S as i64, 1], |i| number(i) as i32)
    }

    fn of_key(&mut self, number: fn(usize) -> usize) -> usize {
        self.integers(&[1, S as i64], |j| number(j) as i32)
    }

    fn same(&mut self, number: fn(usize) -> usize) -> usize {
        let (i, j) = (self.of_query(number), self.of_key(number));
        self.compare(K::Equal, i, j)
    }
}

/// The document of a token: five of them, of unequal lengths.
fn document(i: usize) -> usize {
    [0, 128, 300, 551, 800, S].partition_point(|&start| start <= i)
}

/// Up to where the keys of the document of a query are its prefix.
fn prefix(i: usize) -> usize {
    [0, 40, 200, 320, 700, 900][document(i)]
}

/// The query from which on a key is evicted.
fn evicted(j: usize) -> usize {
    let mut random = Random(j as u64);
    j + 1 + random.below(S)
}

/// A number for each pair that looks random.
fn hash(i: usize, j: usize) -> usize {
    (i * 7919 + j * 104_729) % 1009
}

fn hashed(chain: &mut MaskGraph, i: usize, j: usize, below: usize) -> usize {
    let factors = [7919, 104_729].map(|factor| chain.integer(factor));
    let i = chain.plain(K::Multiply, &[i, factors[0]], D::S32);
    let j = chain.plain(K::Multiply, &[j, factors[1]], D::S32);
    let sum = chain.plain(K::Add, &[i, j], D::S32);
    let modulus = chain.integer(1009);
    let hash = chain.plain(K::Modulo, &[sum, modulus], D::S32);
    chain.less_than(hash, below)
}

const MASKS: &[Mask] = &[
    Mask { name: "full", sees: |_, _| true, expr: |c, _, j| c.less_than(j, S) },
    Mask { name: "causal", sees: |i, j| j <= i, expr: MaskGraph::causal },
    Mask {
        name: "sliding window",
        sees: |i, j| j <= i && i < j + S / 16,
        expr: |c, i, j| {
            let (causal, window) = (c.causal(i, j), c.window(i, j, S / 16));
            c.both(causal, window)
        },
    },
    Mask {
        name: "causal document",
        sees: |i, j| j <= i && document(i) == document(j),
        expr: |c, i, j| {
            let (causal, same) = (c.causal(i, j), c.same(document));
            c.both(same, causal)
        },
    },
    Mask { name: "document", sees: |i, j| document(i) == document(j), expr: |c, _, _| c.same(document) },
    Mask {
        name: "share question",
        sees: |i, j| j <= i && (document(j) == 1 || document(i) == document(j)),
        expr: |c, i, j| {
            let (causal, same, key, one) =
                (c.causal(i, j), c.same(document), c.of_key(document), c.integer(1));
            let question = c.compare(K::Equal, key, one);
            let seen = c.either(question, same);
            c.both(causal, seen)
        },
    },
    Mask {
        name: "global and sliding",
        sees: |i, j| j <= i && (j < 16 || i < 16 || i < j + 100),
        expr: |c, i, j| {
            let (first_key, first_query) = (c.less_than(j, 16), c.less_than(i, 16));
            let (causal, window) = (c.causal(i, j), c.window(i, j, 100));
            let global = c.either(first_key, first_query);
            let seen = c.either(global, window);
            c.both(causal, seen)
        },
    },
    Mask {
        name: "causal blockwise",
        sees: |i, j| j <= i && (i / 128 == j / 128 || i / 128 == (S - 1) / 128),
        expr: |c, i, j| {
            let (causal, own, chunk) = (c.causal(i, j), c.same_block(i, j, 128), c.block(i, 128));
            let last = c.integer((S as i32 - 1) / 128);
            let is_last = c.compare(K::Equal, chunk, last);
            let seen = c.either(own, is_last);
            c.both(causal, seen)
        },
    },
    Mask {
        name: "prefix-LM",
        sees: |i, j| j < S / 2 || j <= i,
        expr: |c, i, j| {
            let (prefix, causal) = (c.less_than(j, S / 2), c.causal(i, j));
            c.either(prefix, causal)
        },
    },
    Mask {
        name: "prefix-LM document",
        sees: |i, j| document(i) == document(j) && (j <= i || j < prefix(i)),
        expr: |c, i, j| {
            let (same, causal, prefix) = (c.same(document), c.causal(i, j), c.of_query(prefix));
            let before = c.compare(K::Less, j, prefix);
            let seen = c.either(causal, before);
            c.both(same, seen)
        },
    },
    Mask {
        name: "QK-sparse",
        sees: |i, j| j <= i && !(i >= j + 200 && i < j + 330) && !(i >= j + 600 && i < j + 700),
        expr: |c, i, j| {
            let mut seen = c.causal(i, j);
            for (first, end) in [(200, 330), (600, 700)] {
                let (before, inside) = (c.window(i, j, first), c.window(i, j, end));
                let outside = c.plain(K::LogicalNot, &[inside], D::Boolean);
                let band = c.either(before, outside);
                seen = c.both(seen, band);
            }
            seen
        },
    },
    Mask {
        name: "random eviction",
        sees: |i, j| j <= i && i < evicted(j),
        expr: |c, i, j| {
            let (causal, end) = (c.causal(i, j), c.of_key(evicted));
            let kept = c.compare(K::Less, i, end);
            c.both(causal, kept)
        },
    },
    Mask { name: "padding", sees: |_, j| j < S * 6 / 10, expr: |c, _, j| c.less_than(j, S * 6 / 10) },
    Mask {
        name: "sink and window",
        sees: |i, j| j <= i && (j < 4 || i < j + 100),
        expr: |c, i, j| {
            let (sink, causal, window) = (c.less_than(j, 4), c.causal(i, j), c.window(i, j, 100));
            let seen = c.either(sink, window);
            c.both(causal, seen)
        },
    },
    Mask {
        name: "strided",
        sees: |i, j| j <= i && (i / 64 == j / 64 || j / 64 % 4 == 3),
        expr: |c, i, j| {
            let (causal, own, block) = (c.causal(i, j), c.same_block(i, j, 64), c.block(j, 64));
            let (four, three) = (c.integer(4), c.integer(3));
            let place = c.plain(K::Modulo, &[block, four], D::S32);
            let every = c.compare(K::Equal, place, three);
            let seen = c.either(own, every);
            c.both(causal, seen)
        },
    },
    Mask {
        name: "chunked local",
        sees: |i, j| j <= i && i / 125 == j / 125,
        expr: |c, i, j| {
            let (causal, own) = (c.causal(i, j), c.same_block(i, j, 125));
            c.both(causal, own)
        },
    },
    Mask { name: "random half", sees: |i, j| hash(i, j) < 505, expr: |c, i, j| hashed(c, i, j, 505) },
    Mask { name: "random hundredth", sees: |i, j| hash(i, j) < 10, expr: |c, i, j| hashed(c, i, j, 10) },
];

/// Masked and full tiles of a mask.
fn exact(sees: impl Fn(usize, usize) -> bool) -> (usize, usize) {
    let (mut masked, mut full) = (0, 0);
    for query in (0..S).step_by(64) {
        for key in (0..S).step_by(64) {
            let mut all =
                (query..S.min(query + 64)).flat_map(|i| (key..S.min(key + 64)).map(move |j| (i, j)));
            let seen = all.clone().any(|(i, j)| sees(i, j));
            masked += usize::from(!seen);
            full += usize::from(seen && all.all(|(i, j)| sees(i, j)));
        }
    }
    (masked, full)
}

/// A form of a mask, and the ops that say it.
type Form<'a> = (&'a str, &'a dyn Fn(&mut MaskGraph));

#[test]
fn every_form_of_a_mask_has_the_exact_tiles() {
    let mut wrong = Vec::new();
    for mask in MASKS {
        let expected = exact(mask.sees);
        let dims = [1, 1, S as i64, S as i64];
        let plane = [S as i64, S as i64];
        let sees = |index: usize| (mask.sees)(index / S, index % S);
        let forms: [Form<'_>; 6] = [
            ("booleans", &|c| {
                let (mask, fill) = (
                    c.booleans(&plane, |index| u8::from(sees(index)) * 0x81),
                    c.numbers(&[], |_| -f32::INFINITY),
                );
                c.select(mask, SCORE, fill);
            }),
            ("booleans, true where masked", &|c| {
                let (mask, fill) =
                    (c.booleans(&plane, |index| u8::from(!sees(index))), c.numbers(&[], |_| -f32::INFINITY));
                c.select(mask, fill, SCORE);
            }),
            ("expression", &|c| {
                let (i, j, fill) = (c.index(-2), c.index(-1), c.numbers(&[], |_| -f32::INFINITY));
                let mask = (mask.expr)(c, i, j);
                c.select(mask, SCORE, fill);
            }),
            ("expression, true where masked", &|c| {
                let (i, j, fill) = (c.index(2), c.index(3), c.numbers(&[], |_| -f32::INFINITY));
                let mask = (mask.expr)(c, i, j);
                let mask = c.plain(K::LogicalNot, &[mask], D::Boolean);
                c.select(mask, fill, SCORE);
            }),
            ("sum", &|c| {
                let mask = c.numbers(&plane, |index| if sees(index) { 0.0 } else { -f32::INFINITY });
                let scale = c.numbers(&[], |_| 0.125);
                let scaled = c.plain(K::Multiply, &[SCORE, scale], D::F32);
                c.plain(K::Add, &[scaled, mask], D::F32);
            }),
            ("sum in bf16", &|c| {
                let mask = c.numbers(&plane, |index| if sees(index) { 0.0 } else { -f32::INFINITY });
                let half = c.plain(K::TypeCast, &[SCORE], D::Bf16);
                let mask = c.plain(K::TypeCast, &[mask], D::Bf16);
                c.plain(K::Add, &[half, mask], D::Bf16);
            }),
        ];
        for (form, build) in forms {
            // The values are not needed: the mask is known.
            let mut chain = MaskGraph { is_computed: false, ..MaskGraph::new(&dims) };
            build(&mut chain);
            for level in Level::all_available() {
                let (tiles, _) = chain.tiles(level).expect("there is a mask");
                let found = (tiles.count(TileClass::Masked), tiles.count(TileClass::Full));
                if found != expected {
                    wrong.push(format!("{}, {form}, {level}: {found:?}, not {expected:?}", mask.name));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
