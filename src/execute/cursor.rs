//! A tile of a nest, and the address of every access in it.

use smallvec::SmallVec;

use super::bindings::Bindings;
use crate::kernels::Extent;
use crate::kernels::gemm::Matrix;
use crate::kernels::prefetch::MemRange;
use crate::plan::{AccessId, Base, Loop, LoopNest, LoopSet, MAX_LOOPS};

/// Accesses that a cursor follows without an allocation.
const INLINE_ACCESSES: usize = 8;

/// Goes through the tiles of a nest. Their numbers count the innermost loop first.
#[derive(Clone)]
pub(super) struct Cursor<'a> {
    nest: &'a LoopNest,
    /// Number of the tile.
    tile: usize,
    /// The address of each access in the tile.
    at: SmallVec<[*mut u8; INLINE_ACCESSES]>,
    /// For each loop, the iteration of the tile.
    iteration: [usize; MAX_LOOPS],
    /// Rows and columns of the tile, if the driver says them.
    clip: Option<Extent>,
}

impl<'a> Cursor<'a> {
    /// Starts at the first tile of a nest of a plan with these constants. Inlined, so that the cursor is not
    /// moved after it is made.
    #[inline(always)]
    pub(super) fn new(nest: &'a LoopNest, constants: &[[u8; 8]], bindings: &Bindings) -> Self {
        let accesses = nest.program.accesses.len();
        let mut at = match accesses <= INLINE_ACCESSES {
            true => SmallVec::from_buf_and_len([std::ptr::null_mut(); INLINE_ACCESSES], accesses),
            false => SmallVec::from_elem(std::ptr::null_mut(), accesses),
        };
        let (ports, buffers) = (&bindings.ports[..], &bindings.buffers[..]);
        for (access, at) in nest.program.accesses.iter().zip(&mut at[..]) {
            let base = match access.base {
                Base::Port(port) => ports[port],
                Base::Constant(constant) => constants[constant..].as_ptr().cast_mut().cast(),
                Base::Buffer(buffer) => buffers[buffer],
                Base::Index | Base::Driver(_) => std::ptr::null_mut(),
            };
            *at = base.wrapping_offset(access.offset);
        }
        Self { nest, tile: 0, at, iteration: [0; MAX_LOOPS], clip: None }
    }

    pub(super) fn tile(&self) -> usize {
        self.tile
    }

    /// The address of an access that has no driver slot as its base.
    #[inline(always)]
    pub(super) fn at(&self, access: AccessId) -> *mut u8 {
        self.at[access.0]
    }

    /// The address of a row of an access in the present tile.
    pub(super) fn row(&self, access: AccessId, row: usize) -> *mut u8 {
        self.at(access).wrapping_offset(self.nest.program.accesses[access].row_stride * row as isize)
    }

    /// An access in the present tile as an operand of a product.
    pub(super) fn matrix(&self, access: AccessId) -> Matrix {
        let of = &self.nest.program.accesses[access];
        Matrix { at: self.at(access), row_stride: of.row_stride, col_stride: of.col_stride }
    }

    /// The start of an access.
    pub(super) fn base(&self, access: AccessId) -> Base {
        self.nest.program.accesses[access].base
    }

    /// Rows and columns of the tile.
    #[inline(always)]
    pub(super) fn extent(&self) -> Extent {
        if let Some(clip) = self.clip {
            return clip;
        }
        let LoopNest { space, tile, row_blocks, column_blocks, .. } = self.nest;
        Extent {
            rows: tile.rows.min(space.rows - self.iteration[*row_blocks] * tile.rows),
            columns: tile.columns.min(space.columns - self.iteration[*column_blocks] * tile.columns),
        }
    }

    /// Gives this and the following tiles so many rows and columns, at most those of a tile of the nest. The
    /// blocks of a nest whose loops go token by token have as many as their driver says.
    pub(super) fn clip(&mut self, extent: Extent) {
        self.clip = Some(extent);
    }

    /// The iteration of a loop.
    pub(super) fn iteration(&self, index: usize) -> usize {
        self.iteration[index]
    }

    /// The first row of the tile.
    pub(super) fn first_row(&self) -> usize {
        self.iteration[self.nest.row_blocks] * self.nest.tile.rows
    }

    /// The first column of the tile.
    pub(super) fn first_column(&self) -> usize {
        self.iteration[self.nest.column_blocks] * self.nest.tile.columns
    }

    /// The memory that an access reads in the tile, if it is one range.
    pub(super) fn range(&self, access: AccessId) -> MemRange {
        let Extent { rows, columns } = self.extent();
        let width = self.nest.program.accesses[access].col_stride.unsigned_abs();
        MemRange { at: self.at(access), bytes: rows * columns * width }
    }

    /// Advances to the next tile and returns the loops that advanced or began anew; none after the last tile,
    /// with everything as in the first.
    pub(super) fn advance(&mut self) -> LoopSet {
        self.tile += 1;
        let mut changed = 0;
        for (loop_index, l) in self.nest.loops.iter().enumerate().rev().filter(|(_, l)| l.extent > 1) {
            changed |= 1 << loop_index;
            let iteration = &mut self.iteration[loop_index];
            *iteration += 1;
            if *iteration < l.extent {
                shift(&mut self.at, l, 1);
                return changed;
            }
            *iteration = 0;
            shift(&mut self.at, l, 1 - l.extent as isize);
        }
        0
    }

    /// Goes to any tile.
    pub(super) fn go_to(&mut self, tile: usize) {
        self.tile = tile;
        let mut rest = tile;
        for (l, iteration) in self.nest.loops.iter().zip(&mut self.iteration).rev() {
            shift(&mut self.at, l, (rest % l.extent) as isize - *iteration as isize);
            *iteration = rest % l.extent;
            rest /= l.extent;
        }
    }
}

/// Moves all accesses by a number of iterations of a loop.
#[inline(always)]
fn shift(accesses: &mut [*mut u8], l: &Loop, iterations: isize) {
    accesses
        .iter_mut()
        .zip(&l.strides)
        .for_each(|(at, stride)| *at = at.wrapping_offset(stride * iterations));
}

#[cfg(test)]
mod tests {
    use smallvec::smallvec;

    use super::*;
    use crate::plan::{Access, TileProgram};

    /// Three blocks of up to four rows in each of two iterations, and one block of columns: ten rows of five
    /// elements. The first access reads all rows in order, the second the same rows in both iterations.
    fn nest() -> LoopNest {
        let iterating = |extent, strides: [isize; 2]| Loop { extent, strides: strides.as_slice().into() };
        let access = || Access { base: Base::Index, offset: 0, row_stride: 5, col_stride: 1 };
        LoopNest {
            loops: smallvec![iterating(2, [50, 0]), iterating(3, [20, 20]), iterating(1, [5, 5])],
            row_blocks: 1,
            column_blocks: 2,
            space: Extent { rows: 10, columns: 5 },
            tile: Extent { rows: 4, columns: 5 },
            program: TileProgram { accesses: smallvec![access(), access()], ..TileProgram::default() },
        }
    }

    /// The number of the tile, the offsets of both accesses, and the tile's rows.
    fn state(cursor: &Cursor<'_>) -> (usize, [usize; 2], usize) {
        (cursor.tile(), [0, 1].map(|access| cursor.at(AccessId(access)).addr()), cursor.extent().rows)
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
    fn tiles_follow_each_other_and_the_changed_loops_are_told() {
        let nest = nest();
        let mut cursor = Cursor::new(&nest, &[], &Bindings::default());
        let mut tiles = vec![state(&cursor)];
        let mut changed = Vec::new();
        loop {
            match cursor.advance() {
                0 => break,
                loops => changed.push(loops),
            }
            tiles.push(state(&cursor));
        }
        assert_eq!(tiles, TILES);
        assert_eq!(changed, [0b10, 0b10, 0b11, 0b10, 0b10]);
        assert_eq!(state(&cursor), (6, [0, 0], 4));
    }

    #[test]
    fn every_tile_is_reached_from_every_other() {
        let nest = nest();
        let mut wrong = Vec::new();
        for from in 0..TILES.len() {
            for (to, expected) in TILES.iter().enumerate() {
                let mut cursor = Cursor::new(&nest, &[], &Bindings::default());
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
    fn a_range_is_all_that_an_access_reads_in_the_tile() {
        let nest = nest();
        let mut cursor = Cursor::new(&nest, &[], &Bindings::default());
        cursor.go_to(5);
        let MemRange { at, bytes } = cursor.range(AccessId(0));
        assert_eq!((at.addr(), bytes), (90, 10));
    }
}
