//! Products in the tile registers of AMX: two by two accumulators of 16 × 16 elements, each the sum over 64
//! bytes of the depth at once.
//!
//! The tiles read the panels of pairs and of quads as they are: 16 rows of a panel are one register. The
//! remainder of the depth is copied to rows that end with zeros.
//!
//! The instructions are assembly, because no stable intrinsic stands for them.

use std::arch::asm;
use std::mem::{MaybeUninit, offset_of};
use std::ops::Range;

use super::form::Form;
use super::product::{PanelPrefetch, Product};
use crate::kernels::LINE;

/// Rows, and elements of a row, of an accumulator.
const SIDE: usize = 16;

/// Rows and columns of the accumulators that are used side by side.
const BLOCK: usize = Form::S8Tiles.row_block();
const _: () = assert!(BLOCK == 2 * SIDE && BLOCK == Form::Bf16Tiles.row_block());

/// Rows of a panel in a register.
const STEPS: usize = 16;

/// Columns that pass by the rows of a block together, and whose depth remainder is copied together.
const CHUNK: usize = 4 * BLOCK;

/// Bytes of a row of a register.
const ROW: usize = 64;

/// Bytes of the right operand that are prefetched with each register along the depth: a row of eight blocks,
/// the most that a tile of a product has, prefetches a panel.
const PREFETCHED: usize = 4 * LINE;

/// The sizes of the tile registers, as the processor reads them. Registers 0 to 3 hold sums, row by row; 4
/// and 5 hold the left operand, 6 and 7 the right one.
#[repr(C, align(64))]
struct TileConfig {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

impl TileConfig {
    /// For a block of so many rows and columns, each at least 1 and at most [`BLOCK`].
    fn new(rows: usize, columns: usize) -> Self {
        let part = |of: usize, index: usize| of.saturating_sub(index * SIDE).min(SIDE);
        let mut config =
            Self { palette: 1, start_row: 0, reserved: [0; 14], row_bytes: [0; 16], rows: [0; 16] };
        let mut set = |register: usize, rows: usize, row_bytes: usize| {
            // A register is without rows and columns, or has both.
            if rows != 0 && row_bytes != 0 {
                (config.rows[register], config.row_bytes[register]) = (rows as u8, row_bytes as u16);
            }
        };
        for i in 0..2 {
            for j in 0..2 {
                set(2 * i + j, part(rows, i), 4 * part(columns, j));
            }
            set(4 + i, part(rows, i), ROW);
            set(6 + i, STEPS, 4 * part(columns, i));
        }
        config
    }
}

/// A part of the depth of both operands; strides count in bytes.
#[repr(C)]
struct Segment {
    left: *const u8,
    left_row: isize,
    right: *const u8,
    right_row: isize,
    /// Registers along the depth, at least 1.
    depth: usize,
}

/// A block of sums, and the segments that it sums up one after the other.
struct Accumulators<'a> {
    /// At least one.
    segments: &'a [Segment],
    /// Memory that is read later, of which each register along the depth prefetches [`PREFETCHED`] bytes.
    next: *const u8,
    to: *mut f32,
    to_row: isize,
    accumulate: bool,
}

/// Computes a block of sums.
type DepthLoop = unsafe fn(&Accumulators<'_>);

/// The loops over the depth: for an instruction, one for each number of accumulators along rows and columns.
/// A group says which registers hold what, and where in memory it lies.
macro_rules! loops {
    ($($name:ident: $multiply:literal
        sums $([$sum:literal = $x:literal * $y:literal at $to:ident $to_column:literal])*
        left $([$left:literal at $left_row:ident])*
        right $([$right:literal at $right_column:literal])*;)*) => {
        $(
            /// # Safety
            ///
            /// The block is within operands and result, and the registers have the sizes of the block.
            unsafe fn $name(block: &Accumulators<'_>) {
                let to_bottom = block.to.wrapping_byte_offset(block.to_row * SIDE as isize);
                // SAFETY: as the caller promises.
                unsafe {
                    asm!(
                        "test {depth}, {depth}",
                        "jnz 2f",
                        $(concat!("tilezero ", $sum),)*
                        "jmp 3f",
                        "2:",
                        $(concat!(
                            "tileloadd ", $sum, ", [{", stringify!($to), "} + {to_row} + ", $to_column, "]"
                        ),)*
                        // A segment.
                        "3:",
                        "mov {top}, [{segment} + {left_at}]",
                        "mov {left_row}, [{segment} + {left_row_at}]",
                        "mov {right}, [{segment} + {right_at}]",
                        "mov {right_row}, [{segment} + {right_row_at}]",
                        "mov {depth}, [{segment} + {depth_at}]",
                        "mov {bottom}, {left_row}",
                        "shl {bottom}, 4",
                        "add {bottom}, {top}",
                        "mov {right_step}, {right_row}",
                        "shl {right_step}, 4",
                        // A register along the depth.
                        "4:",
                        $(concat!("tileloadd ", $right, ", [{right} + {right_row} + ", $right_column, "]"),)*
                        $(concat!("tileloadd ", $left, ", [{", stringify!($left_row), "} + {left_row}]"),)*
                        "prefetcht1 [{next}]",
                        "prefetcht1 [{next} + 64]",
                        "prefetcht1 [{next} + 128]",
                        "prefetcht1 [{next} + 192]",
                        $(concat!($multiply, " ", $sum, ", ", $x, ", ", $y),)*
                        "add {next}, {prefetched}",
                        "add {top}, 64",
                        "add {bottom}, 64",
                        "add {right}, {right_step}",
                        "dec {depth}",
                        "jnz 4b",
                        "add {segment}, {segment_size}",
                        "dec {segments}",
                        "jnz 3b",
                        // One row of accumulators has no use for the address of a second.
                        "/* {to_bottom} */",
                        $(concat!(
                            "tilestored [{", stringify!($to), "} + {to_row} + ", $to_column, "], ", $sum
                        ),)*
                        depth = inout(reg) usize::from(block.accumulate) => _,
                        segment = inout(reg) block.segments.as_ptr() => _,
                        segments = inout(reg) block.segments.len() => _,
                        next = inout(reg) block.next => _,
                        top = out(reg) _,
                        bottom = out(reg) _,
                        left_row = out(reg) _,
                        right = out(reg) _,
                        right_row = out(reg) _,
                        right_step = out(reg) _,
                        to_top = in(reg) block.to,
                        to_bottom = in(reg) to_bottom,
                        to_row = in(reg) block.to_row,
                        left_at = const offset_of!(Segment, left),
                        left_row_at = const offset_of!(Segment, left_row),
                        right_at = const offset_of!(Segment, right),
                        right_row_at = const offset_of!(Segment, right_row),
                        depth_at = const offset_of!(Segment, depth),
                        segment_size = const size_of::<Segment>(),
                        prefetched = const PREFETCHED,
                        out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                        out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                        options(nostack)
                    );
                }
            }
        )*
    };
}

/// [`loops`] for every number of accumulators.
macro_rules! loops_of {
    ($multiply:literal $one:ident $row:ident $column:ident $square:ident) => {
        loops! {
            $one: $multiply
                sums ["tmm0" = "tmm4" * "tmm6" at to_top "0"]
                left ["tmm4" at top]
                right ["tmm6" at "0"];
            $row: $multiply
                sums ["tmm0" = "tmm4" * "tmm6" at to_top "0"] ["tmm1" = "tmm4" * "tmm7" at to_top "64"]
                left ["tmm4" at top]
                right ["tmm6" at "0"] ["tmm7" at "64"];
            $column: $multiply
                sums ["tmm0" = "tmm4" * "tmm6" at to_top "0"] ["tmm2" = "tmm5" * "tmm6" at to_bottom "0"]
                left ["tmm4" at top] ["tmm5" at bottom]
                right ["tmm6" at "0"];
            $square: $multiply
                sums ["tmm0" = "tmm4" * "tmm6" at to_top "0"] ["tmm1" = "tmm4" * "tmm7" at to_top "64"]
                    ["tmm2" = "tmm5" * "tmm6" at to_bottom "0"] ["tmm3" = "tmm5" * "tmm7" at to_bottom "64"]
                left ["tmm4" at top] ["tmm5" at bottom]
                right ["tmm6" at "0"] ["tmm7" at "64"];
        }
    };
}

loops_of! { "tdpbf16ps" bf16_one bf16_row bf16_column bf16_square }
loops_of! { "tdpbusd" s8_one s8_row s8_column s8_square }

/// Multiplies in registers, a number of steps, and returns the number of operations: the operations that
/// [`arithmetic_in_registers`](crate::kernels::peak::arithmetic_in_registers) measures.
///
/// # Safety
///
/// The machine has AMX, with products of bf16 or else of 8-bit integers.
pub(in crate::kernels) unsafe fn peak(is_integer: bool, steps: usize) -> f64 {
    let config = TileConfig::new(BLOCK, BLOCK);
    macro_rules! multiply {
        ($instruction:literal) => {
            asm!(
                "ldtilecfg [{config}]",
                "tilezero tmm0", "tilezero tmm1", "tilezero tmm2", "tilezero tmm3",
                "tilezero tmm4", "tilezero tmm5", "tilezero tmm6", "tilezero tmm7",
                "test {steps}, {steps}",
                "jz 3f",
                "2:",
                concat!($instruction, " tmm0, tmm4, tmm6"),
                concat!($instruction, " tmm1, tmm4, tmm7"),
                concat!($instruction, " tmm2, tmm5, tmm6"),
                concat!($instruction, " tmm3, tmm5, tmm7"),
                "dec {steps}",
                "jnz 2b",
                "3:",
                "tilerelease",
                config = in(reg) &raw const config,
                steps = inout(reg) steps => _,
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack, readonly)
            )
        };
    }
    // SAFETY: the caller promises the instructions; registers have sizes that they can have.
    unsafe { if is_integer { multiply!("tdpbusd") } else { multiply!("tdpbf16ps") } };
    let depth = if is_integer { ROW } else { ROW / 2 };
    (steps * 4 * SIDE * SIDE * depth) as f64 * 2.0
}

/// Computes a product; a panel of the right operand is as wide as a block.
///
/// # Safety
///
/// As [`GemmKernel::run`](super::GemmKernel::run), for [`Form::Bf16Tiles`] or [`Form::S8Tiles`].
pub(super) unsafe fn run(form: Form, product: &Product, prefetch: PanelPrefetch) {
    let loops: [[DepthLoop; 2]; 2] = match form {
        Form::S8Tiles => [[s8_one, s8_row], [s8_column, s8_square]],
        _ => [[bf16_one, bf16_row], [bf16_column, bf16_square]],
    };
    let step = form.depth_step();
    let (whole, rest) = (product.depth / (STEPS * step), product.depth % (STEPS * step));
    // An empty product is 0: it has only a padded remainder of zeros.
    let segments = usize::from(whole == 0)..if whole == 0 || rest != 0 { 2 } else { 1 };
    let has_rest = segments.end == 2;
    let mut left_rest = [const { MaybeUninit::<[u8; ROW]>::uninit() }; BLOCK];
    let mut right_rests =
        [const { [const { MaybeUninit::<[u8; 2 * ROW]>::uninit() }; STEPS] }; CHUNK / BLOCK];
    let mut registers = Registers::default();
    for chunk in chunks(product.columns) {
        let right_of = |at: *const u8, column: usize| {
            at.wrapping_offset(product.right.panel_stride * (column / BLOCK) as isize)
        };
        let right = |column: usize| right_of(product.right.at, column);
        for (first, to) in chunk.clone().step_by(BLOCK).zip(&mut right_rests).filter(|_| has_rest) {
            let bytes = BLOCK.min(chunk.end - first) * 4;
            let from = right(first).wrapping_offset(product.right.row_stride * (whole * STEPS) as isize);
            // SAFETY: the caller promises that the rows of the right operand can be read.
            unsafe { copy_rows(from, product.right.row_stride, to, bytes, rest.div_ceil(step)) };
        }
        // The rows of a block stay in the first level while the columns pass by.
        for row in (0..product.rows).step_by(BLOCK) {
            let rows = BLOCK.min(product.rows - row);
            let left = product.left.at.wrapping_offset(product.left.row_stride * row as isize);
            if has_rest {
                let (from, bytes) = (left.wrapping_add(whole * ROW), rest * (ROW / STEPS / step));
                // SAFETY: as above, for the left operand.
                unsafe { copy_rows(from, product.left.row_stride, &mut left_rest, bytes, rows) };
            }
            let to = product.to.wrapping_byte_offset(product.to_row * row as isize);
            for (index, first) in chunk.clone().step_by(BLOCK).enumerate() {
                let columns = BLOCK.min(chunk.end - first);
                let parts = [
                    Segment {
                        left,
                        left_row: product.left.row_stride,
                        right: right(first),
                        right_row: product.right.row_stride,
                        depth: whole,
                    },
                    Segment {
                        left: left_rest.as_ptr().cast(),
                        left_row: ROW as isize,
                        right: right_rests[index].as_ptr().cast(),
                        right_row: 2 * ROW as isize,
                        depth: 1,
                    },
                ];
                let next = match prefetch {
                    PanelPrefetch::Block(at) => {
                        right_of(at, first).wrapping_add(row / BLOCK * whole * PREFETCHED)
                    }
                    // There is nothing to prefetch; these lines are on their way.
                    _ => left,
                };
                let block = Accumulators {
                    segments: &parts[segments.clone()],
                    next,
                    to: to.wrapping_add(first),
                    to_row: product.to_row,
                    accumulate: product.accumulate,
                };
                // SAFETY: the machine has AMX; the block is a part of the product, so the caller's promise
                // holds for it.
                unsafe {
                    registers.resize(rows, columns);
                    loops[usize::from(rows > SIDE)][usize::from(columns > SIDE)](&block);
                }
            }
        }
    }
    // SAFETY: the machine has AMX. Registers that are in use would be saved whenever threads take turns.
    unsafe { asm!("tilerelease", options(nostack, nomem, preserves_flags)) };
}

/// The sizes that the registers have: of a block of so many rows and columns.
#[derive(Default)]
struct Registers {
    rows: usize,
    columns: usize,
}

impl Registers {
    /// # Safety
    ///
    /// The machine has AMX.
    unsafe fn resize(&mut self, rows: usize, columns: usize) {
        if (self.rows, self.columns) != (rows, columns) {
            *self = Self { rows, columns };
            let config = TileConfig::new(rows, columns);
            // SAFETY: as the caller promises; the sizes are those that registers can have.
            unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const config, options(nostack, readonly)) };
        }
    }
}

/// The columns that pass by the rows of a block. A block that is not whole is a chunk of its own, so that
/// registers change their sizes once, not with every row.
fn chunks(columns: usize) -> impl Iterator<Item = Range<usize>> {
    let whole = columns / BLOCK * BLOCK;
    let of_whole = (0..whole).step_by(CHUNK).map(move |first| first..whole.min(first + CHUNK));
    of_whole.chain((whole < columns).then_some(whole..columns))
}

/// Copies bytes of so many rows to the starts of rows, and fills what is left of these, and further ones,
/// with 0.
///
/// # Safety
///
/// The bytes can be read, and are no more than a row has.
unsafe fn copy_rows<const N: usize>(
    from: *const u8,
    row_stride: isize,
    to: &mut [MaybeUninit<[u8; N]>],
    bytes: usize,
    rows: usize,
) {
    for (row, to) in to.iter_mut().enumerate() {
        let to: *mut u8 = to.as_mut_ptr().cast();
        let bytes = if row < rows { bytes } else { 0 };
        // SAFETY: as the caller promises.
        unsafe {
            from.wrapping_offset(row_stride * row as isize).copy_to_nonoverlapping(to, bytes);
            to.wrapping_add(bytes).write_bytes(0, N - bytes);
        }
    }
}
