//! Classes that follow for a tile from the values of its elements.

use super::{D, K, MaskGraph, SCORE, bias, masked, scaled};
use crate::plan::TileClass::{self, Constant, Full, Masked, Partial};
use crate::types::kind::Level;

/// A name, the ops that make the value, and the class of its tile.
type Row = (&'static str, fn(&mut MaskGraph), TileClass);

const ROWS: &[Row] = &[
    (
        "a fill of −∞",
        |c| {
            masked(c, -f32::INFINITY);
        },
        Masked,
    ),
    (
        "a finite fill",
        |c| {
            masked(c, -1e4);
        },
        Constant,
    ),
    (
        "a fill of +∞",
        |c| {
            masked(c, f32::INFINITY);
        },
        Partial,
    ),
    (
        "a fill of NaN",
        |c| {
            masked(c, f32::NAN);
        },
        Partial,
    ),
    (
        "a fill plus a finite bias",
        |c| {
            let x = masked(c, -f32::INFINITY);
            bias(c, x, 3.0);
        },
        Masked,
    ),
    (
        "a fill plus NaN",
        |c| {
            let x = masked(c, -f32::INFINITY);
            bias(c, x, f32::NAN);
        },
        Partial,
    ),
    (
        "a fill plus +∞",
        |c| {
            let x = masked(c, -f32::INFINITY);
            bias(c, x, f32::INFINITY);
        },
        Partial,
    ),
    (
        "a fill plus −∞",
        |c| {
            let x = masked(c, -f32::INFINITY);
            bias(c, x, -f32::INFINITY);
        },
        Masked,
    ),
    (
        "a score plus −∞",
        |c| {
            bias(c, SCORE, -f32::INFINITY);
        },
        Masked,
    ),
    (
        "a score plus a bias",
        |c| {
            bias(c, SCORE, 3.0);
        },
        Full,
    ),
    (
        "a score plus NaN",
        |c| {
            bias(c, SCORE, f32::NAN);
        },
        Partial,
    ),
    (
        "NaN plus −∞",
        |c| {
            let x = bias(c, SCORE, f32::NAN);
            bias(c, x, -f32::INFINITY);
        },
        Partial,
    ),
    (
        "a bias plus −∞",
        |c| {
            let x = bias(c, SCORE, 3.0);
            bias(c, x, -f32::INFINITY);
        },
        Masked,
    ),
    (
        "a fill times a number below 0",
        |c| {
            let x = masked(c, -f32::INFINITY);
            scaled(c, x, -2.0);
        },
        Partial,
    ),
    (
        "a fill times 0",
        |c| {
            let x = masked(c, -f32::INFINITY);
            scaled(c, x, 0.0);
        },
        Partial,
    ),
    (
        "a fill times a number above 0",
        |c| {
            let x = masked(c, -f32::INFINITY);
            scaled(c, x, 0.125);
        },
        Masked,
    ),
    (
        "a finite fill times a number",
        |c| {
            let x = masked(c, -1e4);
            scaled(c, x, 0.5);
        },
        Constant,
    ),
    (
        "a finite fill that overflows",
        |c| {
            let x = masked(c, -3e38);
            scaled(c, x, 2.0);
        },
        Masked,
    ),
    (
        "Tanh of a fill",
        |c| {
            let x = masked(c, -f32::INFINITY);
            c.plain(K::Tanh, &[x], D::F32);
        },
        Partial,
    ),
    (
        "Tanh of a score",
        |c| {
            let x = c.plain(K::Tanh, &[SCORE], D::F32);
            bias(c, x, 1.0);
        },
        Full,
    ),
    (
        "a second Select that undoes the first",
        |c| {
            let x = masked(c, -f32::INFINITY);
            let cond = c.booleans(&[1, 1], |_| 0);
            c.select(cond, x, SCORE);
        },
        Full,
    ),
    (
        "a maximum with a number",
        |c| {
            let x = masked(c, -f32::INFINITY);
            let y = c.numbers(&[1, 1], |_| -5.0);
            c.plain(K::Maximum, &[x, y], D::F32);
        },
        Constant,
    ),
    (
        "a condition on the score",
        |c| {
            let zero = c.numbers(&[1, 1], |_| 0.0);
            let cond = c.plain(K::Greater, &[SCORE, zero], D::Boolean);
            let fill = c.numbers(&[1, 1], |_| -f32::INFINITY);
            c.select(cond, SCORE, fill);
        },
        Full,
    ),
    (
        "a condition on the score, and a mask",
        |c| {
            let zero = c.numbers(&[1, 1], |_| 0.0);
            let cond = c.plain(K::Greater, &[SCORE, zero], D::Boolean);
            let never = c.booleans(&[1, 1], |_| 0);
            let cond = c.plain(K::LogicalAnd, &[cond, never], D::Boolean);
            let fill = c.numbers(&[1, 1], |_| -f32::INFINITY);
            c.select(cond, SCORE, fill);
        },
        Masked,
    ),
    (
        "NaN in a comparison",
        |c| {
            let nan = c.numbers(&[1, 1], |_| f32::NAN);
            let zero = c.numbers(&[1, 1], |_| 0.0);
            let cond = c.plain(K::Equal, &[nan, zero], D::Boolean);
            let fill = c.numbers(&[1, 1], |_| -f32::INFINITY);
            c.select(cond, SCORE, fill);
        },
        Partial,
    ),
];

#[test]
fn what_a_tile_holds_follows_from_its_values() {
    let mut wrong = Vec::new();
    for (name, build, expected) in ROWS {
        let mut chain = MaskGraph::new(&[1, 70, 70]);
        build(&mut chain);
        let Some((tiles, _)) = chain.tiles(Level::Portable) else {
            wrong.push(format!("{name}: no mask"));
            continue;
        };
        for (query, key) in [(0, 0), (1, 0), (1, 1)] {
            let class = tiles.class(0, query, key);
            if class != Some(*expected) {
                wrong.push(format!("{name}: {class:?}, not {expected:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
