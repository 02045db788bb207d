//! Parts of partial tiles that are masked.

use super::*;

/// The masked parts of a tile of queries and keys of one plane, as rows of keys by queries.
fn drawn(chain: &MaskGraph, [query_block, key_block]: [usize; 2]) -> Vec<String> {
    let (tiles, _) = chain.tiles(Level::Portable).expect("something masks the scores");
    let parts = tiles.masked_parts(0, query_block, key_block);
    let row = |key: usize| [0, 16, 32, 48].map(|query| if parts.contains(key, query) { '.' } else { '#' });
    [0, 16, 32, 48].map(|key| row(key).iter().collect()).to_vec()
}

/// Scores of which a query sees the keys of a distance below `width`, at and before its own index; the others
/// are filled.
fn window(size: i64, width: i32, fill: f32) -> MaskGraph {
    let mut chain = MaskGraph::new(&[size, size]);
    let (i, j) = (chain.index(-2), chain.index(-1));
    let distance = chain.plain(K::Subtract, &[i, j], D::S32);
    let width = chain.integers(&[], |_| width);
    let (is_before, is_near) = (
        chain.plain(K::LessEqual, &[j, i], D::Boolean),
        chain.plain(K::Less, &[distance, width], D::Boolean),
    );
    let cond = chain.plain(K::LogicalAnd, &[is_before, is_near], D::Boolean);
    let fill = chain.numbers(&[], |_| fill);
    chain.select(cond, SCORE, fill);
    chain
}

#[test]
fn edges_of_a_window_have_masked_parts() {
    let chain = window(200, 64, -f32::INFINITY);
    assert_eq!(drawn(&chain, [1, 1]), ["####", ".###", "..##", "...#"]);
    assert_eq!(drawn(&chain, [1, 0]), ["#...", "##..", "###.", "####"]);
    // Keys and queries beyond the last ones are masked.
    assert_eq!(drawn(&chain, [3, 3]), ["#...", "....", "....", "...."]);
}

#[test]
fn parts_of_low_numbers_are_as_masked_ones() {
    for fill in [f32::MIN, -65504.0, -1e4] {
        let chain = window(200, 64, fill);
        assert_eq!(drawn(&chain, [1, 1]), ["####", ".###", "..##", "...#"], "{fill}");
        assert_eq!(drawn(&chain, [1, 0]), ["#...", "##..", "###.", "####"], "{fill}");
    }
    assert_eq!(drawn(&window(200, 64, -100.0), [1, 1]), ["####"; 4]);
}

#[test]
fn booleans_have_masked_parts_in_the_first_partial_tiles_of_a_row() {
    let mut chain = MaskGraph::new(&[64, 640]);
    let sees = |index: usize| u8::from(index % 640 % 64 < 20 && index / 640 >= 32);
    let (mask, fill) = (chain.booleans(&[64, 640], sees), chain.numbers(&[], |_| -f32::INFINITY));
    chain.select(mask, SCORE, fill);
    for block in 0..10 {
        let expected = if block < 8 { ["..##", "..##", "....", "...."] } else { ["####"; 4] };
        assert_eq!(drawn(&chain, [0, block]), expected, "block {block}");
    }
}
