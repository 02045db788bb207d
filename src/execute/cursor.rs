//! A tile of a nest, and where everything that is walked lies in it.

use smallvec::SmallVec;

use super::Bound;
use crate::kernels::Extent;
use crate::kernels::asks::Piece;
use crate::plan::{Base, MAX_LOOPS, Nest, Plan};

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
    /// Starts at the first tile. Inlined, so that the cursor is made where it stays.
    #[inline(always)]
    pub(super) fn new(plan: &Plan, nest: &'a Nest, bound: &Bound) -> Self {
        let walks = nest.walks.len();
        let mut at = match walks <= FEW_WALKS {
            true => SmallVec::from_buf_and_len([std::ptr::null_mut(); FEW_WALKS], walks),
            false => SmallVec::from_elem(std::ptr::null_mut(), walks),
        };
        for (walk, at) in nest.walks.iter().zip(&mut at) {
            *at = match walk.base {
                Base::Port(port) => bound.ports[port],
                Base::Constant(constant) => plan.constants[constant].as_ptr().cast_mut(),
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
                self.at.iter_mut().zip(&l.steps).for_each(|(at, step)| *at = at.wrapping_offset(*step));
                return Some(place);
            }
            *turn = 0;
            let turns = 1 - l.extent as isize;
            self.at.iter_mut().zip(&l.steps).for_each(|(at, step)| *at = at.wrapping_offset(step * turns));
        }
        None
    }

    /// Goes to any tile.
    pub(super) fn go_to(&mut self, tile: usize) {
        self.tile = tile;
        let mut rest = tile;
        for (l, turn) in self.nest.loops.iter().zip(&mut self.turn).rev() {
            let turns = (rest % l.extent) as isize - *turn as isize;
            *turn = rest % l.extent;
            rest /= l.extent;
            self.at.iter_mut().zip(&l.steps).for_each(|(at, step)| *at = at.wrapping_offset(step * turns));
        }
    }
}
