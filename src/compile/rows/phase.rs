//! One phase of an op on rows: its tiles, its accesses, and the scratch of a thread.

use smallvec::{SmallVec, smallvec};

use crate::compile::memory::{self, whole_lines};
use crate::compile::row_axes::{AxisOperand, RowAxes, along, given_loops, place_loops};
use crate::kernels::pack::{pack_tile, unpack_tile};
use crate::kernels::pointwise::convert;
use crate::kernels::rows::{COLUMNS, LANES_OF_FOLD, RowPass, RowType, room_of_channels};
use crate::kernels::{Extent, LINE, Width};
use crate::plan::{
    Access, AccessId, FoldWork, FusedRows, Loop, LoopNest, Measured, PART, PRODUCT_ROWS, Packed,
    PlaceNumbers, PlacedRows, RowMap, RowParameter, RowPlace, RowWork, RowsPhase, TileProgram,
};
use crate::types::dtype::DataType;
use crate::types::kind::{Level, OpKind};

/// Time for an element, in bytes that could be moved in the same time.
fn cost_of(kind: OpKind) -> usize {
    match kind {
        OpKind::SoftMax | OpKind::LogSoftmax | OpKind::LogSoftmaxBackward => 16,
        OpKind::LayerNormBackward => 16,
        _ => 8,
    }
}

/// The tensors that a phase reads and writes.
#[derive(Default)]
pub(super) struct Roles {
    pub(super) operands: SmallVec<[AxisOperand; 3]>,
    pub(super) result: Option<AxisOperand>,
    pub(super) parameters: SmallVec<[AxisOperand; 2]>,
    pub(super) given: SmallVec<[AxisOperand; 2]>,
    /// Numbers that are computed whether or not they are written.
    pub(super) numbers: SmallVec<[Option<AxisOperand>; 2]>,
    /// Elements of a part of a row, if the results of a row depend on the whole row and it is not done at
    /// once.
    pub(super) part: Option<usize>,
    /// The numbers of parts, and what becomes of them; they are written or read if it is not the whole work.
    pub(super) measured: Option<MeasuredParts>,
}

/// The numbers of parts of rows.
#[derive(Clone)]
pub(super) struct MeasuredParts {
    pub(super) numbers: AxisOperand,
    pub(super) pass: RowPass,
    /// Elements of a part.
    pub(super) part: usize,
}

/// The programs that run in the tiles of a phase beside its own work.
#[derive(Default)]
pub(super) struct Fused {
    /// Number of places of a tile, and the axis along which they lie, by its index among the axes of places.
    /// No loops of the programs are merged or reordered.
    pub(super) tile: Option<(usize, Option<usize>)>,
    /// One for each phase that goes through the source.
    pub(super) prologues: SmallVec<[RowsProgram; 2]>,
    pub(super) epilogue: Option<RowsProgram>,
}

/// A tile program, and the rows that it hands over.
pub(super) struct RowsProgram {
    pub(super) nest: LoopNest,
    pub(super) row_stride: usize,
    pub(super) element: usize,
    pub(super) is_by_place: bool,
}

/// A phase of an op of a kind, with its floating-point operations. The phase takes its programs of `fused`.
pub(super) fn rows_phase(
    kind: OpKind,
    mut work: RowWork,
    axes: &RowAxes,
    roles: Roles,
    fused: &mut Fused,
    level: Level,
) -> (RowsPhase, usize) {
    let length = axes.length();
    let part = match &work {
        RowWork::Fold(_) => axes.part(),
        // No element of the results depends on another of the row; or, in a scan, a part begins with the sums
        // of the part before.
        RowWork::Copy | RowWork::PreluBackward(_) | RowWork::Scan { .. } => PART.min(length),
        _ => roles.part.unwrap_or(length),
    };
    let parts = match work {
        RowWork::Scan { .. } => 1,
        _ => length.div_ceil(part.max(1)).max(1),
    };
    let count = part.min(length);
    let Roles { operands, result, parameters, given, numbers, measured, .. } = roles;
    let pass = measured.as_ref().map_or(RowPass::Whole, |measured| measured.pass);
    let all: SmallVec<[&AxisOperand; 8]> = (operands.iter().chain(&result).chain(&parameters))
        .chain(&given)
        .chain(numbers.iter().flatten())
        .chain(measured.iter().map(|measured| &measured.numbers))
        .collect();
    let (mut loops, places) = match fused.tile {
        None => {
            let mut loops = place_loops(axes, &all);
            let places = loops.pop();
            (loops, places)
        }
        Some((_, rows)) => given_loops(axes, &all, rows),
    };
    let places = places.unwrap_or_else(|| Loop { extent: 1, strides: smallvec![0; all.len()] });

    // Which rows lie contiguous.
    let row = |operand: &AxisOperand| along(axes, operand);
    let is_contiguous =
        |operand: &AxisOperand| operand.is_of_program() || is_dense(&row(operand), operand.bytes());
    if let RowWork::Fold(fold) = &mut work {
        // Rows of one element are contiguous, but their places are what lies side by side.
        let is_wide = |(index, operand): (usize, &AxisOperand)| {
            places.strides[index] == operand.bytes() as isize && (length == 1 || !is_contiguous(operand))
        };
        // Products of columns are computed for rows at one stride.
        let has_one_stride = |operand: &AxisOperand| row(operand).len() <= 1;
        fold.by_columns = places.extent >= 8
            && operands.iter().enumerate().all(is_wide)
            && (matches!(fold.map, RowMap::None) || operands.iter().all(has_one_stride));
    }
    let by_columns = matches!(work, RowWork::Fold(FoldWork { by_columns: true, .. }));
    let is_merge = matches!(work, RowWork::Merge { .. });
    let by_channels = matches!(work, RowWork::ChannelNorm { .. });
    let in_place = by_columns || by_channels || is_merge;
    let is_packed = |operand: &AxisOperand| !in_place && !is_contiguous(operand);
    let packs = operands.iter().chain(&result).chain(&parameters).any(is_packed);
    let rows = match () {
        () if by_columns => COLUMNS,
        () if packs => memory::packed_rows_of_tile(count),
        () => memory::rows_of_tile(count),
    };
    let rows = fused.tile.map_or(rows, |(rows, _)| rows).min(places.extent).max(1);

    let mut scratch = Scratch(0);
    let mut next = 0;
    let mut access = || {
        next += 1;
        AccessId(next - 1)
    };
    let width = |bytes: usize| Width::of(bytes).unwrap_or(Width::W4);
    let mut row_operand =
        |operand: &AxisOperand, (along, packs, count): RowLoops, rows: usize, scratch: &mut Scratch| {
            let bytes = operand.bytes();
            let packed = packs.then(|| {
                let row_stride = whole_lines(count.saturating_mul(bytes));
                Packed {
                    scratch: scratch.take(row_stride.saturating_mul(rows)),
                    row_stride,
                    pack: pack_tile(level, width(bytes)),
                    unpack: unpack_tile(level, width(bytes)),
                }
            });
            let float = RowType::of(operand.data_type).unwrap_or(RowType::F32);
            let place = place_of(operand, access());
            PlacedRows { place, bytes, float, along, packed }
        };
    let of_row = |operand: &AxisOperand| (row(operand), is_packed(operand), count);
    let row_operands: SmallVec<[PlacedRows; 3]> =
        operands.iter().map(|operand| row_operand(operand, of_row(operand), rows, &mut scratch)).collect();
    let row_result = result.as_ref().map(|result| row_operand(result, of_row(result), rows, &mut scratch));
    let row_parameters: SmallVec<[RowParameter; 2]> = (parameters.iter())
        .map(|parameter| {
            let is_same = axes.places.iter().all(|&axis| parameter.strides[axis] == 0);
            let (of_parameter, is_same) = match by_channels {
                // A tile has all channels.
                true => {
                    let axes = axes.of_channels();
                    let along = along(&axes, parameter);
                    let packs = !is_dense(&along, parameter.bytes());
                    ((along, packs, axes.length()), true)
                }
                false => (of_row(parameter), is_same),
            };
            let rows = if is_same { 1 } else { rows };
            let count = of_parameter.2;
            let operand = row_operand(parameter, of_parameter, rows, &mut scratch);
            let widen = convert(level, parameter.data_type, DataType::F32)
                .filter(|_| parameter.data_type != DataType::F32)
                .map(|widen| {
                    let row_stride = whole_lines(count.saturating_mul(size_of::<f32>()));
                    (widen.kernel, scratch.take(row_stride.saturating_mul(rows)), row_stride)
                });
            RowParameter { operand, widen, is_same }
        })
        .collect();
    let is_given_along = matches!(work, RowWork::Fold(_));
    let mut place_numbers = |operand: Option<&AxisOperand>, is_read: bool, scratch: &mut Scratch| {
        let data_type = operand.map_or(DataType::F64, |operand| operand.data_type);
        let bytes = data_type.size().unwrap_or(8);
        let room = if is_read && is_given_along { count } else { rows };
        let (from, to) = match is_read {
            true => (data_type, DataType::F64),
            false => (DataType::F64, data_type),
        };
        PlaceNumbers {
            place: operand.map_or(RowPlace::Unused, |operand| place_of(operand, access())),
            along: operand.map(row).filter(|_| is_read && is_given_along).unwrap_or_default(),
            convert: convert(level, from, to).map(|convert| convert.kernel),
            bytes,
            // Columns are combined vector by vector.
            scratch: scratch.take(room.next_multiple_of(COLUMNS).saturating_mul(size_of::<f64>())),
            narrow: scratch.take(room.saturating_mul(bytes)),
            pack: pack_tile(level, width(bytes)),
            unpack: unpack_tile(level, width(bytes)),
        }
    };
    let given_numbers: SmallVec<[PlaceNumbers; 2]> =
        given.iter().map(|operand| place_numbers(Some(operand), true, &mut scratch)).collect();
    let row_numbers: SmallVec<[PlaceNumbers; 2]> =
        numbers.iter().map(|operand| place_numbers(operand.as_ref(), false, &mut scratch)).collect();
    let kept_row = match work {
        RowWork::SoftMax { is_logarithm: false, .. }
            if pass == RowPass::Whole && memory::keeps_exponentials(length) =>
        {
            Some(scratch.take(length * size_of::<f32>()))
        }
        _ => None,
    };
    // The access of the numbers of parts is the last one.
    let last_access = AccessId(all.len().saturating_sub(1));
    let measured = measured.as_ref().map(|&MeasuredParts { part, .. }| Measured {
        pass,
        access: last_access,
        part,
        parts: length.div_ceil(part),
        scratch: [(); 2].map(|()| scratch.take(rows.saturating_mul(size_of::<f64>()))),
    });
    let room = match work {
        RowWork::Fold(FoldWork { by_columns: true, map, .. }) => {
            let products = if matches!(map, RowMap::None) { 0 } else { PRODUCT_ROWS * COLUMNS };
            LANES_OF_FOLD * COLUMNS * size_of::<f64>() + products * size_of::<f32>()
        }
        RowWork::Fold(FoldWork { map: RowMap::Norm { .. } | RowMap::Prelu(_), .. }) => {
            rows.saturating_mul(count).saturating_mul(size_of::<f32>())
        }
        RowWork::Scan { .. } => rows.saturating_mul(size_of::<u64>()),
        RowWork::ChannelNorm { channels, .. } => room_of_channels(rows.saturating_mul(channels)),
        _ => 0,
    };
    let room = scratch.take(room);
    // A prologue belongs to each phase that goes through the source, the epilogue to the last phase.
    let mut with_scratch = |program: Option<RowsProgram>| {
        program.map(|RowsProgram { nest, row_stride, element, is_by_place }| FusedRows {
            scratch: scratch.take(nest.program.scratch),
            rows: scratch.take(row_stride.saturating_mul(rows)),
            nest,
            row_stride,
            element,
            is_by_place,
        })
    };
    let is_of_parts = matches!(work, RowWork::Fold(FoldWork { finish: None, .. }));
    let is_last = !is_of_parts && pass != RowPass::Measure;
    let prologue = with_scratch(fused.prologues.pop());
    let epilogue = with_scratch(fused.epilogue.take_if(|_| is_last));

    let accesses = (all.iter().enumerate())
        .map(|(index, operand)| Access {
            base: operand.base,
            offset: operand.offset,
            row_stride: places.strides[index],
            col_stride: row(operand).last().map_or(operand.bytes() as isize, |&(_, stride)| stride),
        })
        .collect();
    let blocks = Loop {
        extent: places.extent.div_ceil(rows),
        strides: places.strides.iter().map(|stride| stride * rows as isize).collect(),
    };
    let row_blocks = loops.len();
    loops.extend([blocks, Loop { extent: 1, strides: smallvec![0; all.len()] }]);
    let elements = (loops.iter().map(|l| l.extent)).fold(length.saturating_mul(rows), usize::saturating_mul);
    let program = TileProgram {
        steps: Vec::new(),
        roots: SmallVec::new(),
        invalidated_by: SmallVec::new(),
        accesses,
        fused_scratch: 0,
        scratch: scratch.0,
        lookahead: None,
    };
    let nest = LoopNest {
        loops,
        row_blocks,
        column_blocks: row_blocks + 1,
        space: Extent { rows: places.extent, columns: 1 },
        tile: Extent { rows, columns: 1 },
        program,
    };
    let phase = RowsPhase {
        name: kind.name(),
        nest,
        length,
        part: part.max(1),
        parts,
        work,
        operands: row_operands,
        result: row_result,
        parameters: row_parameters,
        given: given_numbers,
        numbers: row_numbers,
        measured,
        kept_row,
        room,
        prologue,
        epilogue,
    };
    // Each of two phases does half of the work.
    let cost = cost_of(kind) / if pass == RowPass::Whole { 1 } else { 2 };
    let flops = elements.saturating_mul(cost);
    (phase, flops)
}

/// The loops along a row, whether the row is packed, and the number of its elements.
type RowLoops = (SmallVec<[(usize, isize); 2]>, bool, usize);

/// True if loops lead from element to element of so many bytes without a gap.
fn is_dense(along: &[(usize, isize)], bytes: usize) -> bool {
    match along {
        [] => true,
        [(_, stride)] => *stride == bytes as isize,
        _ => false,
    }
}

/// Where an operand is.
fn place_of(operand: &AxisOperand, access: AccessId) -> RowPlace {
    if operand.is_of_program() { RowPlace::Program } else { RowPlace::Access(access) }
}

/// Hands out scratch, line by line.
struct Scratch(usize);

impl Scratch {
    fn take(&mut self, bytes: usize) -> usize {
        let start = self.0;
        self.0 = start.saturating_add(bytes.checked_next_multiple_of(LINE).unwrap_or(usize::MAX));
        start
    }
}
