//! One phase of an op on rows: its tiles, its accesses, and the scratch of a thread.

use smallvec::{SmallVec, smallvec};

use crate::compile::arena::Arena;
use crate::compile::memory::{self, whole_lines};
use crate::compile::row_axes::{AxisOperand, RowAxes, along, given_loops, place_loops};
use crate::kernels::pack::pack_tile;
use crate::kernels::pointwise::convert;
use crate::kernels::rows::{COLUMNS, LANES_OF_FOLD, RowPass, room_of_channels};
use crate::kernels::transpose::transpose_tile;
use crate::kernels::unpack::unpack_tile;
use crate::kernels::vector::RowType;
use crate::kernels::{Extent, StorePolicy, Width};
use crate::plan::{
    Access, AccessId, FoldWork, FusedRows, Loop, LoopNest, Measured, PART, PRODUCT_ROWS, Packed,
    PlaceNumbers, PlacedRows, RowMap, RowParameter, RowPlace, RowWork, RowsPhase, TileProgram,
};
use crate::types::dtype::DataType;
use crate::types::kind::{Level, OpKind};

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

/// A phase of an op of a kind, with its floating-point operations; `cost` is the time for an element. The
/// phase takes its programs of `fused`.
pub(super) fn rows_phase(
    kind: OpKind,
    cost: usize,
    work: RowWork,
    axes: &RowAxes,
    roles: Roles,
    fused: &mut Fused,
    level: Level,
) -> (RowsPhase, usize) {
    let length = axes.length();
    let (part, parts) = parts_of(&work, axes, &roles);
    let pass = roles.measured.as_ref().map_or(RowPass::Whole, |measured| measured.pass);
    let all = roles.all();
    let (loops, places) = loops_of(axes, &all, fused);
    let work = with_direction(work, axes, &roles, &places, level);
    let mut placement = RowPlacement::new(&work, axes, &roles, (part.min(length), &places), fused, level);
    let rows = placement.rows;
    let operands = roles.operands.iter().map(|operand| placement.rows_of(operand)).collect();
    let result = roles.result.as_ref().map(|result| placement.rows_of(result));
    let parameters = roles.parameters.iter().map(|parameter| placement.parameter(parameter)).collect();
    let is_given_along = work.is_given_along();
    let given = roles.given.iter().map(|given| placement.given(given, is_given_along)).collect();
    let numbers = roles.numbers.iter().map(|of| placement.written(of.as_ref())).collect();
    let keeps_row = matches!(work, RowWork::SoftMax { is_logarithm: false, .. })
        && pass == RowPass::Whole
        && memory::keeps_exponentials(length);
    let kept_row = keeps_row.then(|| placement.arena.take(length * size_of::<f32>()));
    let measured = roles.measured.as_ref().map(|&MeasuredParts { part, .. }| Measured {
        pass,
        // The access of the numbers of parts is the last one.
        access: AccessId(all.len().saturating_sub(1)),
        part,
        parts: length.div_ceil(part),
        scratch: [(); 2].map(|()| placement.arena.take(rows.saturating_mul(size_of::<f64>()))),
    });
    let room = placement.arena.take(room_of(&work, rows, placement.count));
    // A prologue belongs to each phase that goes through the source, the epilogue to the last phase.
    let is_of_parts = matches!(work, RowWork::Fold(FoldWork { finish: None, .. }));
    let is_last = !is_of_parts && pass != RowPass::Measure;
    let prologue = fused.prologues.pop().map(|program| placement.program(program));
    let epilogue = fused.epilogue.take_if(|_| is_last).map(|program| placement.program(program));
    let accesses = accesses_of(axes, &all, &places);
    let nest = nest_of(
        loops,
        &places,
        rows,
        TileProgram { accesses, scratch: placement.arena.bytes(), ..TileProgram::default() },
    );
    let tiles = nest.loops.iter().map(|l| l.extent);
    let elements = tiles.fold(length.saturating_mul(rows), usize::saturating_mul);
    // Each of two phases does half of the work.
    let flops = elements.saturating_mul(cost / if pass == RowPass::Whole { 1 } else { 2 });
    let phase = RowsPhase {
        name: kind.name(),
        nest,
        length,
        part: part.max(1),
        parts,
        work,
        operands,
        result,
        parameters,
        given,
        numbers,
        measured,
        kept_row,
        room,
        prologue,
        epilogue,
    };
    (phase, flops)
}

impl Roles {
    /// All tensors, in the order of their accesses.
    fn all(&self) -> SmallVec<[&AxisOperand; 8]> {
        (self.operands.iter().chain(&self.result).chain(&self.parameters))
            .chain(&self.given)
            .chain(self.numbers.iter().flatten())
            .chain(self.measured.iter().map(|measured| &measured.numbers))
            .collect()
    }
}

/// Elements of a part of a row, and the number of parts.
fn parts_of(work: &RowWork, axes: &RowAxes, roles: &Roles) -> (usize, usize) {
    let length = axes.length();
    let part = match work {
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
    (part, parts)
}

/// The loops over places around tiles, and the loop over the places of a tile.
fn loops_of(axes: &RowAxes, all: &[&AxisOperand], fused: &Fused) -> (SmallVec<[Loop; 6]>, Loop) {
    let (loops, places) = match fused.tile {
        None => {
            let mut loops = place_loops(axes, all);
            let places = loops.pop();
            (loops, places)
        }
        Some((_, rows)) => given_loops(axes, all, rows),
    };
    (loops, places.unwrap_or_else(|| Loop { extent: 1, strides: smallvec![0; all.len()] }))
}

/// The work, along places where these lie contiguous and rows do not.
fn with_direction(work: RowWork, axes: &RowAxes, roles: &Roles, places: &Loop, level: Level) -> RowWork {
    // Rows of one element are contiguous, but their places are what lies side by side.
    let is_wide = |(index, operand): (usize, &AxisOperand)| {
        places.strides[index] == operand.bytes() as isize
            && (axes.length() == 1 || !is_contiguous(axes, operand))
    };
    let fold = match work {
        RowWork::Fold(fold) => fold,
        RowWork::Scan { kernels, order, .. } => {
            let by_columns =
                places.extent >= 8 && roles.operands.iter().chain(&roles.result).enumerate().all(is_wide);
            return RowWork::Scan { kernels, order, by_columns };
        }
        _ => return work,
    };
    // Products of columns are computed for rows at one stride.
    let has_one_stride = |operand: &AxisOperand| along(axes, operand).len() <= 1;
    let by_columns = places.extent >= 8
        && roles.operands.iter().enumerate().all(is_wide)
        && (matches!(fold.map, RowMap::None) || roles.operands.iter().all(has_one_stride));
    let is_short = (1..=LANES_OF_FOLD).contains(&axes.length()) && places.extent >= LANES_OF_FOLD;
    let is_few = is_short && !by_columns && matches!(fold.map, RowMap::None) && fold.kernels.few.is_some();
    let transpose =
        is_few.then(|| transpose_tile(level, width(roles.operands[0].bytes()), StorePolicy::Temporal));
    RowWork::Fold(FoldWork { by_columns, transpose, ..fold })
}

fn is_contiguous(axes: &RowAxes, operand: &AxisOperand) -> bool {
    operand.is_of_program() || is_dense(&along(axes, operand), operand.bytes())
}

/// Bytes for rows that are combined, for partial results of columns, or for numbers of channels.
fn room_of(work: &RowWork, rows: usize, count: usize) -> usize {
    match *work {
        RowWork::Fold(FoldWork { by_columns: true, map, .. }) => {
            let products = if matches!(map, RowMap::None) { 0 } else { PRODUCT_ROWS * COLUMNS };
            LANES_OF_FOLD * COLUMNS * size_of::<f64>() + products * size_of::<f32>()
        }
        RowWork::Fold(FoldWork { transpose: Some(_), .. }) => LANES_OF_FOLD * COLUMNS * size_of::<f32>(),
        RowWork::Fold(FoldWork { map: RowMap::Norm { .. } | RowMap::Prelu(_), .. }) => {
            rows.saturating_mul(count).saturating_mul(size_of::<f32>())
        }
        RowWork::Scan { .. } => rows.saturating_mul(size_of::<u64>()),
        RowWork::ChannelNorm { channels, .. } => room_of_channels(rows.saturating_mul(channels)),
        _ => 0,
    }
}

fn accesses_of(axes: &RowAxes, all: &[&AxisOperand], places: &Loop) -> SmallVec<[Access; 4]> {
    let access = |(index, operand): (usize, &&AxisOperand)| Access {
        base: operand.base,
        offset: operand.offset,
        row_stride: places.strides[index],
        col_stride: along(axes, operand).last().map_or(operand.bytes() as isize, |&(_, stride)| stride),
    };
    all.iter().enumerate().map(access).collect()
}

/// The loops around tiles of so many places.
fn nest_of(outer: SmallVec<[Loop; 6]>, places: &Loop, rows: usize, program: TileProgram) -> LoopNest {
    let blocks = Loop {
        extent: places.extent.div_ceil(rows),
        strides: places.strides.iter().map(|stride| stride * rows as isize).collect(),
    };
    let column = Loop { extent: 1, strides: smallvec![0; places.strides.len()] };
    LoopNest {
        row_blocks: outer.len(),
        column_blocks: outer.len() + 1,
        loops: outer.into_iter().chain([blocks, column]).collect(),
        space: Extent { rows: places.extent, columns: 1 },
        tile: Extent { rows, columns: 1 },
        program,
    }
}

/// Places that are scanned side by side: their sums stay in the first-level cache.
const SCANNED: usize = 2 * COLUMNS;

/// Hands out accesses and scratch, in the order of the tensors.
struct RowPlacement<'p> {
    axes: &'p RowAxes,
    level: Level,
    /// Elements of a part of a row, and rows of a tile.
    count: usize,
    rows: usize,
    /// True if kernels read rows by their strides.
    reads_strides: bool,
    /// True if a tile has all channels.
    by_channels: bool,
    accesses: usize,
    arena: Arena,
}

impl<'p> RowPlacement<'p> {
    fn new(
        work: &RowWork,
        axes: &'p RowAxes,
        roles: &Roles,
        (count, places): (usize, &Loop),
        fused: &Fused,
        level: Level,
    ) -> Self {
        let by_columns = matches!(
            work,
            RowWork::Fold(FoldWork { by_columns: true, .. }) | RowWork::Scan { by_columns: true, .. }
        );
        let by_channels = matches!(work, RowWork::ChannelNorm { .. });
        let reads_strides = by_columns || by_channels || matches!(work, RowWork::Merge { .. });
        let mut in_rows = roles.operands.iter().chain(&roles.result).chain(&roles.parameters);
        let packs = !reads_strides && in_rows.any(|operand| !is_contiguous(axes, operand));
        let rows = match work {
            RowWork::Scan { by_columns: true, .. } => SCANNED,
            _ if by_columns => COLUMNS,
            _ if packs => memory::packed_rows_of_tile(count),
            _ => memory::rows_of_tile(count),
        };
        let rows = fused.tile.map_or(rows, |(rows, _)| rows).min(places.extent).max(1);
        Self { axes, level, count, rows, reads_strides, by_channels, accesses: 0, arena: Arena::behind(0) }
    }

    fn access(&mut self) -> AccessId {
        self.accesses += 1;
        AccessId(self.accesses - 1)
    }

    /// An operand or a result in rows.
    fn rows_of(&mut self, operand: &AxisOperand) -> PlacedRows {
        self.placed(operand, self.row_of(operand), self.rows)
    }

    fn row_of(&self, operand: &AxisOperand) -> RowLoops {
        let is_packed = !self.reads_strides && !is_contiguous(self.axes, operand);
        (along(self.axes, operand), is_packed, self.count)
    }

    fn placed(&mut self, operand: &AxisOperand, (along, packs, count): RowLoops, rows: usize) -> PlacedRows {
        let bytes = operand.bytes();
        let packed = packs.then(|| {
            let row_stride = whole_lines(count.saturating_mul(bytes));
            Packed {
                scratch: self.arena.take(row_stride.saturating_mul(rows)),
                row_stride,
                pack: pack_tile(self.level, width(bytes)),
                unpack: unpack_tile(self.level, width(bytes)),
            }
        });
        let float = RowType::of(operand.data_type).unwrap_or(RowType::F32);
        PlacedRows { place: place_of(operand, self.access()), bytes, float, along, packed }
    }

    /// Rows of a parameter, as f32.
    fn parameter(&mut self, parameter: &AxisOperand) -> RowParameter {
        let is_same = self.by_channels || self.axes.places.iter().all(|&axis| parameter.strides[axis] == 0);
        let of_parameter = match self.by_channels {
            true => {
                let axes = self.axes.of_channels();
                let along = along(&axes, parameter);
                let packs = !is_dense(&along, parameter.bytes());
                (along, packs, axes.length())
            }
            false => self.row_of(parameter),
        };
        let rows = if is_same { 1 } else { self.rows };
        let count = of_parameter.2;
        let operand = self.placed(parameter, of_parameter, rows);
        let widen = convert(self.level, parameter.data_type, DataType::F32)
            .filter(|_| parameter.data_type != DataType::F32)
            .map(|widen| {
                let row_stride = whole_lines(count.saturating_mul(size_of::<f32>()));
                (widen.kernel, self.arena.take(row_stride.saturating_mul(rows)), row_stride)
            });
        RowParameter { operand, widen, is_same }
    }

    /// Numbers that the phase reads, for each place or along rows.
    fn given(&mut self, operand: &AxisOperand, is_along: bool) -> PlaceNumbers {
        let of_type = operand.data_type;
        let along = if is_along { along(self.axes, operand) } else { SmallVec::new() };
        let room = if is_along { self.count } else { self.rows };
        let place = place_of(operand, self.access());
        self.numbers(place, along, of_type, [of_type, DataType::F64], room)
    }

    /// Numbers that the phase computes for each place, and writes if there is an operand.
    fn written(&mut self, operand: Option<&AxisOperand>) -> PlaceNumbers {
        let of_type = operand.map_or(DataType::F64, |operand| operand.data_type);
        let place = operand.map_or(RowPlace::Unused, |operand| place_of(operand, self.access()));
        self.numbers(place, SmallVec::new(), of_type, [DataType::F64, of_type], self.rows)
    }

    fn numbers(
        &mut self,
        place: RowPlace,
        along: SmallVec<[(usize, isize); 2]>,
        of_type: DataType,
        [from, to]: [DataType; 2],
        room: usize,
    ) -> PlaceNumbers {
        let bytes = of_type.size().unwrap_or(8);
        PlaceNumbers {
            place,
            along,
            convert: convert(self.level, from, to).map(|convert| convert.kernel),
            bytes,
            // Columns are combined vector by vector.
            scratch: self.arena.take(room.next_multiple_of(COLUMNS).saturating_mul(size_of::<f64>())),
            narrow: self.arena.take(room.saturating_mul(bytes)),
            pack: pack_tile(self.level, width(bytes)),
            unpack: unpack_tile(self.level, width(bytes)),
        }
    }

    /// A program beside the work, with the rows that both hand over.
    fn program(&mut self, program: RowsProgram) -> FusedRows {
        let RowsProgram { nest, row_stride, element, is_by_place } = program;
        FusedRows {
            scratch: self.arena.take(nest.program.scratch),
            rows: self.arena.take(row_stride.saturating_mul(self.rows)),
            nest,
            row_stride,
            element,
            is_by_place,
        }
    }
}

/// The width of kernels that move elements of so many bytes.
fn width(bytes: usize) -> Width {
    Width::of(bytes).unwrap_or(Width::W4)
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
