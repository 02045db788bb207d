//! Loop normalisation: the fewest loops that access all operands of a nest.

use smallvec::SmallVec;

/// The strides of the operands of a nest along one loop, in bytes, by operand.
pub(crate) type Strides = SmallVec<[isize; 4]>;

/// One loop of a nest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Loop {
    /// Number of iterations.
    pub(crate) extent: usize,
    /// The stride of each operand, in bytes.
    pub(crate) strides: Strides,
    /// How the iterations depend on each other.
    pub(crate) role: Role,
    /// Whether a step of the nest needs the loop as it is. Such a loop is not merged, and no loop moves past
    /// it.
    pub(crate) pinned: bool,
}

/// How the iterations of a loop depend on each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Each iteration writes its own elements, so iterations may run in any order and on any thread.
    Spatial,
    /// Iterations accumulate into the same elements, so they run in order on one thread.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "no kernel reduces yet; the form of a plan has room for it")
    )]
    Reducing,
}

/// Drops loops of one iteration, orders the others by the stride of one operand, the largest outermost, and
/// merges neighbours that all operands access alike.
///
/// The visited elements and their operands stay the same. Pinned loops keep their place, so no loop moves
/// past one; reducing loops merge with reducing ones only.
pub(crate) fn normalise(loops: impl IntoIterator<Item = Loop>, order_by: usize) -> SmallVec<[Loop; 4]> {
    let mut ordered: SmallVec<[Loop; 4]> = SmallVec::new();
    // Insertion sort, because there are few loops and the library's sort would add 7 KB of code.
    let mut behind_pinned = 0;
    for l in loops.into_iter().filter(|l| l.extent != 1 || l.pinned) {
        if l.pinned {
            ordered.push(l);
            behind_pinned = ordered.len();
        } else {
            let is_as_large = |other: &Loop| other.strides[order_by] >= l.strides[order_by];
            let place = behind_pinned + ordered[behind_pinned..].partition_point(is_as_large);
            ordered.insert(place, l);
        }
    }
    let mut merged: SmallVec<[Loop; 4]> = SmallVec::new();
    for inner in ordered {
        match merged.last_mut() {
            Some(outer) if walk_alike(outer, &inner) => {
                outer.extent *= inner.extent;
                outer.strides = inner.strides;
            }
            _ => merged.push(inner),
        }
    }
    merged
}

/// Whether one merged loop visits what the two nested loops visit, for all operands.
fn walk_alike(outer: &Loop, inner: &Loop) -> bool {
    let continues =
        |(&outer, &stride): (&isize, &isize)| Some(outer) == stride.checked_mul(inner.extent as isize);
    !outer.pinned
        && !inner.pinned
        && outer.role == inner.role
        && outer.extent.checked_mul(inner.extent).is_some()
        && outer.strides.iter().zip(&inner.strides).all(continues)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spatial(extent: usize, strides: &[isize]) -> Loop {
        Loop { extent, strides: strides.into(), role: Role::Spatial, pinned: false }
    }

    fn shape(loops: &[Loop]) -> Vec<(usize, Vec<isize>)> {
        loops.iter().map(|l| (l.extent, l.strides.to_vec())).collect()
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
                let normal = normalise(given.iter().map(|(extent, strides)| spatial(*extent, strides)), 0);
                let expected: Vec<_> = expected.iter().map(|(n, strides)| (*n, strides.to_vec())).collect();
                (name, shape(&normal), expected)
            })
            .filter(|(_, given, expected)| given != expected)
            .collect();
        assert!(wrong.is_empty(), "{wrong:?}");
    }

    #[test]
    fn a_pinned_loop_stays_as_it_is_and_where_it_is() {
        let pinned = Loop { pinned: true, ..spatial(3, &[4, 4]) };
        let loops = normalise([spatial(2, &[12, 12]), pinned.clone(), spatial(4, &[1, 1])], 0);
        assert_eq!(loops.len(), 3);
        assert_eq!(loops[1], pinned);
        let once = Loop { pinned: true, ..spatial(1, &[4, 4]) };
        assert_eq!(normalise([once.clone()], 0).as_slice(), [once]);
    }

    #[test]
    fn reducing_and_spatial_loops_do_not_merge() {
        let reducing = Loop { role: Role::Reducing, ..spatial(4, &[1, 1]) };
        assert_eq!(normalise([spatial(3, &[4, 4]), reducing], 0).len(), 2);
    }
}
