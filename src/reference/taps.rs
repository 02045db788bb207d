//! The elements of a source that make each element of a result, dim by dim.

use super::value::count;

/// An element of the source: its place, and its share in the element of the result.
pub(super) type SourceTap = (usize, f64);

/// Calls a function for each element of a result with some dims, in row-major order: with its place, and with
/// the elements of the source that make it, those along the last dim the closest together. `of_dim` gives
/// the elements along a dim for an index: how far each is from the first, and its share.
pub(super) fn each_element(
    dims: &[i64],
    of_dim: &dyn Fn(usize, i64) -> Vec<SourceTap>,
    visit: &mut dyn FnMut(usize, &[SourceTap]),
) {
    // Without an element, other dims may be of any size.
    if dims.contains(&0) {
        return;
    }
    let along = |dim: usize| (0..dims[dim]).map(|index| of_dim(dim, index)).collect();
    let all: Vec<Vec<Vec<SourceTap>>> = (0..dims.len()).map(along).collect();
    // Those of the first dims, for the indices along them.
    let mut taps = vec![vec![(0, 1.0)]; dims.len() + 1];
    let mut index = vec![0; dims.len()];
    let mut changed = 0;
    for place in 0..count(dims) {
        for dim in changed..dims.len() {
            let (outer, inner) = taps.split_at_mut(dim + 1);
            let along = &all[dim][index[dim]];
            let with = |&(at, share): &SourceTap| along.iter().map(move |tap| (at + tap.0, share * tap.1));
            inner[0].clear();
            inner[0].extend(outer[dim].iter().flat_map(with));
        }
        visit(place, &taps[dims.len()]);
        changed = dims.len();
        while let Some(dim) = changed.checked_sub(1) {
            changed = dim;
            index[dim] += 1;
            if index[dim] < all[dim].len() {
                break;
            }
            index[dim] = 0;
        }
    }
}
