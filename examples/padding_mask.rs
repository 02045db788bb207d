//! A padding mask on attention scores: texts of different lengths lie in one batch, and keys behind the end
//! of a text get no weight.
//!
//! `cargo run --example padding_mask`

use sterna::{Result, TensorView};

pub(crate) fn main() -> Result<()> {
    const HEADS: usize = 2;
    const QUERIES: usize = 3;
    const KEYS: usize = 4;
    let lengths = [4usize, 2];

    // One byte for each key of each text. The mask broadcasts over heads and queries; it is not repeated.
    let keep: Vec<bool> = lengths.iter().flat_map(|&length| (0..KEYS).map(move |key| key < length)).collect();
    let keep = TensorView::new(&keep, &[lengths.len() as i64, 1, 1, KEYS as i64]);
    let scores: Vec<f32> = (0..lengths.len() * HEADS * QUERIES * KEYS).map(|score| score as f32).collect();
    let dims = [lengths.len(), HEADS, QUERIES, KEYS].map(|dim| dim as i64);

    // The first call compiles; later calls with the same shapes find what it compiled.
    let masked = sterna::select(&keep, &TensorView::new(&scores, &dims), &f32::NEG_INFINITY)?;

    for (at, score) in masked.iter().enumerate() {
        let (text, key) = (at / (HEADS * QUERIES * KEYS), at % KEYS);
        let expected = if key < lengths[text] { at as f32 } else { f32::NEG_INFINITY };
        assert_eq!(*score, expected, "score {at}");
    }
    println!("{:?}", &masked[masked.len() - KEYS..]);
    Ok(())
}
