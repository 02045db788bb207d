//! A tile of a nest, and where everything that is walked lies in it.

use smallvec::SmallVec;

use super::Bound;
use crate::kernels::Extent;
use crate::kernels::asks::Piece;
use crate::plan::loops::Loop;
use crate::plan::{Base, MAX_LOOPS, Nest};

/// How many walks a cursor follows without an allocation.
const FEW_WALKS: usize = 8;

/// Goes through the tiles of a nest, which are numbered with the innermost loop first.
#[derive(Clone)]
pub(super) struct Cursor<'a> {
    nest: &'a Nest,
    /// The number of the tile.
    tile: usize,
    /// For each walk, where it is in the tile.
    at: SmallVec<[*mut u8; FEW_WALKS]>,
    /// For each loop, the turn that the tile is in.
    turn: [usize; MAX_LOOPS],
}

impl<'a> Cursor<'a> {
    /// Starts at the first tile of a nest of a plan with these constants. Inlined, so that the cursor is made where it stays.
    #[inline(always)]
    pub(super) fn new(nest: &'a Nest, constants: &[[u8; 8]], bound: &Bound) -> Self {
        let walks = nest.walks.len();
        let mut at = match walks <= FEW_WALKS {
            true => SmallVec::from_buf_and_len([std::ptr::null_mut(); FEW_WALKS], walks),
            false => SmallVec::from_elem(std::ptr::null_mut(), walks),
        };
        for (walk, at) in nest.walks.iter().zip(&mut at) {
            *at = match walk.base {
                Base::Port(port) => bound.ports[port],
                Base::Constant(constant) => constants[constant].as_ptr().cast_mut(),
                Base::Index => std::ptr::null_mut(),
            };
        }
        Self { nest, tile: 0, at, turn: [0; MAX_LOOPS] }
    }

    pub(super) fn tile(&self) -> usize {
        self.tile
    }

    /// Where a walk is.
    #[inline(always)]
    pub(super) fn at(&self, walk: usize) -> *mut u8 {
        self.at[walk]
    }

    /// Rows and columns of the tile.
    pub(super) fn extent(&self) -> Extent {
        let Nest { space, tile, row_blocks, column_blocks, .. } = self.nest;
        Extent {
            rows: tile.rows.min(space.rows - self.turn[*row_blocks] * tile.rows),
            columns: tile.columns.min(space.columns - self.turn[*column_blocks] * tile.columns),
        }
    }

    /// The memory that a walk reads in the tile, where that is all in one piece.
    pub(super) fn piece(&self, walk: usize) -> Piece {
        let Extent { rows, columns } = self.extent();
        let width = self.nest.walks[walk].step.unsigned_abs();
        Piece { at: self.at(walk), bytes: rows * columns * width }
    }

    /// Goes on to the next tile, and says which loop turned; none behind the last tile, where everything is as in the first.
    pub(super) fn advance(&mut self) -> Option<usize> {
        self.tile += 1;
        for (place, l) in self.nest.loops.iter().enumerate().rev().filter(|(_, l)| l.extent > 1) {
            let turn = &mut self.turn[place];
            *turn += 1;
            if *turn < l.extent {
                shift(&mut self.at, l, 1);
                return Some(place);
            }
            *turn = 0;
            shift(&mut self.at, l, 1 - l.extent as isize);
        }
        None
    }

    /// Goes to any tile.
    pub(super) fn go_to(&mut self, tile: usize) {
        self.tile = tile;
        let mut rest = tile;
        for (l, turn) in self.nest.loops.iter().zip(&mut self.turn).rev() {
            shift(&mut self.at, l, (rest % l.extent) as isize - *turn as isize);
            *turn = rest % l.extent;
            rest /= l.extent;
        }
    }
}

/// Moves all walks by so many turns of a loop.
#[inline(always)]
fn shift(walks: &mut [*mut u8], l: &Loop, turns: isize) {
    walks.iter_mut().zip(&l.steps).for_each(|(at, step)| *at = at.wrapping_offset(step * turns));
}

#[cfg(test)]
mod tests {
    use smallvec::smallvec;

    use super::*;
    use crate::plan::Walk;
    use crate::plan::loops::Role;

    /// Three blocks of up to four rows in each of two turns, of one block of columns: ten rows of five elements. The first walk
    /// reads all, one after the other, the second one the same rows in both turns.
    fn nest() -> Nest {
        let turning = |extent, steps: [isize; 2]| Loop {
            extent,
            steps: steps.as_slice().into(),
            role: Role::Spatial,
            pinned: false,
        };
        let walk = || Walk { base: Base::Index, pitch: 5, step: 1 };
        Nest {
            loops: smallvec![turning(2, [50, 0]), turning(3, [20, 20]), turning(1, [5, 5])],
            row_blocks: 1,
            column_blocks: 2,
            space: Extent { rows: 10, columns: 5 },
            tile: Extent { rows: 4, columns: 5 },
            steps: Vec::new(),
            roots: smallvec![],
            outdated: smallvec![],
            walks: smallvec![walk(), walk()],
            chain_scratch: 0,
            sudden: None,
        }
    }

    /// The number of the tile, where both walks are, and its rows.
    fn state(cursor: &Cursor<'_>) -> (usize, [usize; 2], usize) {
        (cursor.tile(), [0, 1].map(|walk| cursor.at(walk).addr()), cursor.extent().rows)
    }

    const TILES: [(usize, [usize; 2], usize); 6] = [
        (0, [0, 0], 4),
        (1, [20, 20], 4),
        (2, [40, 40], 2),
        (3, [50, 0], 4),
        (4, [70, 20], 4),
        (5, [90, 40], 2),
    ];

    #[test]
    fn tiles_follow_each_other_and_the_loop_that_turns_is_told() {
        let nest = nest();
        let mut cursor = Cursor::new(&nest, &[], &Bound::default());
        let mut tiles = vec![state(&cursor)];
        let mut turned = Vec::new();
        while let Some(place) = cursor.advance() {
            turned.push(place);
            tiles.push(state(&cursor));
        }
        assert_eq!(tiles, TILES);
        assert_eq!(turned, [1, 1, 0, 1, 1]);
        assert_eq!(state(&cursor), (6, [0, 0], 4));
    }

    #[test]
    fn every_tile_is_reached_from_every_other() {
        let nest = nest();
        let mut wrong = Vec::new();
        for from in 0..TILES.len() {
            for (to, expected) in TILES.iter().enumerate() {
                let mut cursor = Cursor::new(&nest, &[], &Bound::default());
                cursor.go_to(from);
                cursor.go_to(to);
                if state(&cursor) != *expected {
                    wrong.push((from, to, state(&cursor)));
                }
            }
        }
        assert!(wrong.is_empty(), "{wrong:?}");
    }

    #[test]
    fn a_piece_is_all_that_a_walk_reads_in_the_tile() {
        let nest = nest();
        let mut cursor = Cursor::new(&nest, &[], &Bound::default());
        cursor.go_to(5);
        let Piece { at, bytes } = cursor.piece(0);
        assert_eq!((at.addr(), bytes), (90, 10));
    }
}
