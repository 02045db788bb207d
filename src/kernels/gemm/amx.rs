//! Products in the tile registers of AMX: two by two accumulators of 16 × 16 elements, each the sum over 64
//! bytes of the depth at once.
//!
//! The tiles read the panels of pairs and of quads as they are: 16 rows of a panel are one register. The
//! remainder of the depth is copied to rows that end with zeros.
//!
//! The instructions are assembly, because no stable intrinsic stands for them.

use std::arch::asm;
use std::mem::{MaybeUninit, offset_of};

use super::form::Form;
use super::product::Product;

/// Rows, and elements of a row, of an accumulator.
const SIDE: usize = 16;

/// Rows and columns of the accumulators that are used side by side.
const BLOCK: usize = Form::S8Tiles.row_block();
const _: () = assert!(BLOCK == 2 * SIDE && BLOCK == Form::Bf16Tiles.row_block());

/// Rows of a panel in a register.
const STEPS: usize = 16;

/// Rows whose depth remainder is copied together.
const CHUNK: usize = 160;

/// Bytes of a row of a register.
const ROW: usize = 64;

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
                        $(concat!($multiply, " ", $sum, ", ", $x, ", ", $y),)*
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

/// Computes a product, panel by panel.
///
/// # Safety
///
/// As [`GemmKernel::run`](super::GemmKernel::run), for [`Form::Bf16Tiles`] or [`Form::S8Tiles`].
pub(super) unsafe fn run(panel: usize, form: Form, product: &Product) {
    let loops: [[DepthLoop; 2]; 2] = match form {
        Form::S8Tiles => [[s8_one, s8_row], [s8_column, s8_square]],
        _ => [[bf16_one, bf16_row], [bf16_column, bf16_square]],
    };
    let step = form.depth_step();
    let element = ROW / STEPS / step;
    let (whole, rest) = (product.depth / (STEPS * step), product.depth % (STEPS * step));
    // An empty product is 0: it has only a padded remainder of zeros.
    let segments = usize::from(whole == 0)..if whole == 0 || rest != 0 { 2 } else { 1 };
    let mut left_rest = [const { MaybeUninit::<[u8; ROW]>::uninit() }; CHUNK];
    let mut right_rest = [const { MaybeUninit::<[u8; 2 * ROW]>::uninit() }; STEPS];
    let mut configured = [0; 2];
    for first_row in (0..product.rows).step_by(CHUNK) {
        let chunk = CHUNK.min(product.rows - first_row);
        let left = product.left.at.wrapping_offset(product.left.row_stride * first_row as isize);
        let left_at = |row: usize, depth: usize| {
            left.wrapping_offset(product.left.row_stride * row as isize).wrapping_add(depth * ROW)
        };
        for (row, to) in left_rest[..chunk].iter_mut().enumerate().filter(|_| segments.end == 2) {
            // SAFETY: the caller promises that the rows of the left operand can be read.
            unsafe { copy(left_at(row, whole), to, rest * element) };
        }
        for first in (0..product.columns).step_by(BLOCK) {
            let columns = BLOCK.min(product.columns - first);
            let right =
                product.right.at.wrapping_offset(product.right.panel_stride * (first / panel) as isize);
            let right = right.wrapping_add(first % panel * 4);
            let right_at = |step: usize| right.wrapping_offset(product.right.row_stride * step as isize);
            for (index, to) in right_rest.iter_mut().enumerate().filter(|_| segments.end == 2) {
                let bytes = if index < rest.div_ceil(step) { columns * 4 } else { 0 };
                // SAFETY: as above, for the right operand.
                unsafe { copy(right_at(whole * STEPS + index), to, bytes) };
            }
            for row in (0..chunk).step_by(BLOCK) {
                let rows = BLOCK.min(chunk - row);
                if configured != [rows, columns] {
                    configured = [rows, columns];
                    let config = TileConfig::new(rows, columns);
                    // SAFETY: the machine has AMX, and the sizes are those that registers can have.
                    unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const config, options(nostack, readonly)) };
                }
                let parts = [
                    Segment {
                        left: left_at(row, 0),
                        left_row: product.left.row_stride,
                        right,
                        right_row: product.right.row_stride,
                        depth: whole,
                    },
                    Segment {
                        left: left_rest[row].as_ptr().cast(),
                        left_row: ROW as isize,
                        right: right_rest.as_ptr().cast(),
                        right_row: 2 * ROW as isize,
                        depth: 1,
                    },
                ];
                let to = product.to.wrapping_byte_offset(product.to_row * (first_row + row) as isize);
                let block = Accumulators {
                    segments: &parts[segments.clone()],
                    to: to.wrapping_add(first),
                    to_row: product.to_row,
                    accumulate: product.accumulate,
                };
                // SAFETY: the block is a part of the product, so the caller's promise holds for it.
                unsafe { loops[usize::from(rows > SIDE)][usize::from(columns > SIDE)](&block) };
            }
        }
    }
    // SAFETY: the machine has AMX. Registers that are in use would be saved whenever threads take turns.
    unsafe { asm!("tilerelease", options(nostack, nomem, preserves_flags)) };
}

/// Copies bytes to the start of a row, and fills the rest with 0.
///
/// # Safety
///
/// The bytes can be read, and are no more than the row has.
unsafe fn copy<const N: usize>(from: *const u8, to: &mut MaybeUninit<[u8; N]>, bytes: usize) {
    let to: *mut u8 = to.as_mut_ptr().cast();
    // SAFETY: as the caller promises.
    unsafe {
        from.copy_to_nonoverlapping(to, bytes);
        to.wrapping_add(bytes).write_bytes(0, N - bytes);
    }
}
