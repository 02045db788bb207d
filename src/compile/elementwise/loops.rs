//! Loop normalisation: the fewest loops that access all operands of a nest.

use smallvec::SmallVec;

use crate::plan::{AccessId, Strides};

/// One loop of an index space before tiles are cut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SpaceLoop {
    /// Number of iterations.
    pub(super) extent: usize,
    /// The stride of each access, in bytes.
    pub(super) strides: Strides,
    /// Stand-ins for the strides of results, which have no place yet; 0 where a result does not vary.
    pub(super) results: Strides,
}

/// Drops loops of one iteration, orders the others by the stride of one access, the largest outermost, and
/// merges neighbours that all accesses and results go along alike.
///
/// The visited elements and their operands stay the same.
pub(super) fn normalise(
    loops: impl IntoIterator<Item = SpaceLoop>,
    order_by: AccessId,
) -> SmallVec<[SpaceLoop; 4]> {
    let mut ordered: SmallVec<[SpaceLoop; 4]> = SmallVec::new();
    // Insertion sort, because there are few loops and the library's sort would add 7 KB of code.
    for l in loops.into_iter().filter(|l| l.extent != 1) {
        let place = ordered.partition_point(|other| other.strides[order_by] >= l.strides[order_by]);
        ordered.insert(place, l);
    }
    let mut merged: SmallVec<[SpaceLoop; 4]> = SmallVec::new();
    for inner in ordered {
        match merged.last_mut() {
            Some(outer) if go_alike(outer, &inner) => {
                *outer = SpaceLoop { extent: outer.extent * inner.extent, ..inner };
            }
            _ => merged.push(inner),
        }
    }
    merged
}

/// True if one merged loop visits the same elements as the two nested loops, for all accesses and results.
fn go_alike(outer: &SpaceLoop, inner: &SpaceLoop) -> bool {
    let continues =
        |(&outer, &stride): (&isize, &isize)| Some(outer) == stride.checked_mul(inner.extent as isize);
    outer.extent.checked_mul(inner.extent).is_some()
        && outer.strides.iter().zip(&inner.strides).all(continues)
        && outer.results.iter().zip(&inner.results).all(continues)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The last stride stands for a result.
    fn loop_of(extent: usize, strides: &[isize]) -> SpaceLoop {
        let (result, accesses) = strides.split_last().expect("each loop has two strides");
        SpaceLoop { extent, strides: accesses.into(), results: [*result].as_slice().into() }
    }

    fn shape(loops: &[SpaceLoop]) -> Vec<(usize, Vec<isize>)> {
        loops.iter().map(|l| (l.extent, [&l.strides[..], &l.results[..]].concat())).collect()
    }

    #[test]
    fn loops_become_as_few_as_the_operands_allow() {
        type Loops<'a> = &'a [(usize, &'a [isize])];
        let rows: &[(&str, Loops<'_>, Loops<'_>)] = &[
            ("dense", &[(2, &[12, 12]), (3, &[4, 4]), (4, &[1, 1])], &[(24, &[1, 1])]),
            ("ones", &[(1, &[9, 9]), (3, &[4, 4]), (1, &[7, 0])], &[(3, &[4, 4])]),
            ("repeated inside", &[(3, &[4, 1]), (4, &[1, 0])], &[(3, &[4, 1]), (4, &[1, 0])]),
            (
                "repeated outside",
                &[(2, &[12, 0]), (3, &[4, 4]), (4, &[1, 1])],
                &[(2, &[12, 0]), (12, &[1, 1])],
            ),
            ("column-major", &[(3, &[1, 1]), (4, &[3, 3])], &[(12, &[1, 1])]),
            ("padded", &[(3, &[5, 4]), (4, &[1, 1])], &[(3, &[5, 4]), (4, &[1, 1])]),
            ("scalar", &[], &[]),
        ];
        let wrong: Vec<_> = rows
            .iter()
            .map(|(name, given, expected)| {
                let normal =
                    normalise(given.iter().map(|(extent, strides)| loop_of(*extent, strides)), AccessId(0));
                let expected: Vec<_> = expected.iter().map(|(n, strides)| (*n, strides.to_vec())).collect();
                (name, shape(&normal), expected)
            })
            .filter(|(_, given, expected)| given != expected)
            .collect();
        assert!(wrong.is_empty(), "{wrong:?}");
    }
}
