//! Plans of several phases, made by hand: the second phase reads the first one's internal buffer transposed,
//! so it needs all that the first one wrote. And a tile program that a driver runs.

use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::Arc;

use smallvec::smallvec;

use super::bindings::Bindings;
use super::compiled::CompiledPartition;
use super::cursor::Cursor;
use super::engine::{Allocator, Engine};
use super::interpreter::{Interpreter, TileOperands};
use super::stream::Stream;
use super::tensor::{Tensor, TensorMut};
use crate::compile::tests::{DIMS, DRIVER_ROW, TILE, select_epilogue, select_partition};
use crate::error::{Error, ExecuteFault};
use crate::graph::logical_tensor::LogicalTensor;
use crate::kernels::{Extent, InnerStride, StorePolicy, Width, pack, select};
use crate::plan::register_fusion::RegisterFusionVerdict;
use crate::plan::scalar_op::StepLabel;
use crate::plan::{
    Access, AccessId, Base, Cost, Dest, Instr, Loop, LoopNest, Operand, Phase, PlacedBuffer, Plan,
    Preparation, Step, StepId, StepSet, StepSpace, Threading, TileProgram, Traversal,
};
use crate::types::dtype::DataType;
use crate::types::kind::Level;

const ROWS: usize = 60;
const COLUMNS: usize = 70;
const BYTES: usize = ROWS * COLUMNS * 4;

fn step(label: StepLabel, instr: Instr, to: Dest) -> Step {
    Step {
        labels: smallvec![label],
        instr,
        to,
        space: StepSpace { rows: true, columns: InnerStride::Contiguous },
        traversal: Traversal::RowByRow,
        register_fusion: RegisterFusionVerdict::NoPartner,
    }
}

/// A nest of one row a tile.
fn nest(rows: usize, columns: usize, row_strides: [usize; 2], program: TileProgram) -> LoopNest {
    let moving = Loop { extent: rows, strides: row_strides.map(|stride| stride as isize).as_slice().into() };
    let still = Loop { extent: 1, strides: smallvec![0, 0] };
    LoopNest {
        loops: smallvec![moving, still],
        row_blocks: 0,
        column_blocks: 1,
        space: Extent { rows, columns },
        tile: Extent { rows: 1, columns },
        program,
    }
}

fn invalidated_by(steps: usize) -> [StepSet; 2] {
    let mut all = StepSet::none_of(steps);
    all.extend(StepId::all(steps));
    [all.clone(), all]
}

/// Copies the input to the buffer, then transposes the buffer into the output through scratch.
fn plan(threading: Threading) -> Plan {
    let (level, width) = (Level::available(), Width::W4);
    let copy = select::copy(level, width, InnerStride::Contiguous, StorePolicy::Temporal);
    let access = |base, stride: usize| Access { base, offset: 0, row_stride: 0, col_stride: stride as isize };
    let first = TileProgram {
        steps: vec![step(
            StepLabel::Copy,
            Instr::Move { from: Operand::Access(AccessId(0)), kernel: copy },
            Dest::Access(AccessId(1)),
        )],
        roots: smallvec![StepId(0)],
        invalidated_by: invalidated_by(1).as_slice().into(),
        accesses: smallvec![access(Base::Port(0), 4), access(Base::Buffer(1), 4)],
        ..TileProgram::default()
    };
    let packed = Instr::PackTile { from: AccessId(0), distance: 0, kernel: pack::pack_tile(level, width) };
    let second = TileProgram {
        steps: vec![
            step(StepLabel::PackTile, packed, Dest::Scratch(0, 4 * ROWS)),
            step(
                StepLabel::Copy,
                Instr::Move { from: Operand::Step(StepId(0)), kernel: copy },
                Dest::Access(AccessId(1)),
            ),
        ],
        roots: smallvec![StepId(1)],
        invalidated_by: invalidated_by(2).as_slice().into(),
        accesses: smallvec![access(Base::Buffer(1), 4 * COLUMNS), access(Base::Port(1), 4)],
        fused_scratch: 256,
        scratch: 256,
        lookahead: None,
    };
    Plan {
        outputs: Vec::new(),
        sizes: vec![BYTES; 2],
        in_place: Vec::new(),
        // The first buffer is not used; it shifts the second one.
        buffers: PlacedBuffer::in_order(&[100, BYTES]),
        phases: vec![
            Phase::Map(nest(ROWS, COLUMNS, [4 * COLUMNS; 2], first)),
            Phase::Map(nest(COLUMNS, ROWS, [4, 4 * ROWS], second)),
        ],
        preparation: Preparation::default(),
        constants: Vec::new(),
        scratch: 256,
        cost: Cost { bytes: 2 * BYTES, ..Cost::default() },
        phase_flops: vec![0; 2],
        threading,
        computes_floats: false,
        stores: StorePolicy::Temporal,
        fallbacks: Vec::new(),
        index_checks: Vec::new(),
    }
}

fn compiled(engine: &Engine, threading: Threading) -> CompiledPartition {
    let dims = [ROWS, COLUMNS].map(|dim| dim as i64);
    let tensor = |id, dims: [i64; 2]| LogicalTensor::strided(id, DataType::F32, &dims).unwrap();
    let ports = vec![tensor(0, dims), tensor(1, [dims[1], dims[0]])];
    CompiledPartition::new(Arc::new(plan(threading)), engine.clone(), ports, 1)
}

fn values() -> Vec<f32> {
    (0..ROWS * COLUMNS).map(|value| value as f32).collect()
}

/// True if the second matrix is the first one transposed.
fn is_transposed(values: &[f32], result: &[f32]) -> bool {
    (0..ROWS * COLUMNS).all(|at| result[at % COLUMNS * ROWS + at / COLUMNS] == values[at])
}

#[test]
fn phases_hand_tensors_on_through_buffers_on_one_thread_and_on_more() {
    let values = values();
    let mut wrong = Vec::new();
    for (threads, threading) in
        [(1, Threading::Caller), (2, Threading::AllWorkers), (2, Threading::AwakeWorkers)]
    {
        let engine = Engine::builder().threads(threads).build();
        let (compiled, stream) = (compiled(&engine, threading), Stream::new(&engine));
        let input = Tensor::new(&compiled.inputs()[0], &engine, &values).unwrap();
        let expected = 128 + BYTES.next_multiple_of(64) + 256 * engine.threads() + 63;
        if compiled.scratchpad_size() != expected {
            wrong.push(format!("{threads} {threading:?}: {} bytes", compiled.scratchpad_size()));
        }
        for repetition in 0..20 {
            let mut result = vec![f32::NAN; ROWS * COLUMNS];
            let output = TensorMut::new(&compiled.outputs()[0], &engine, &mut result).unwrap();
            compiled.execute(&stream, &[input], &mut [output]).unwrap();
            let mut in_scratchpad = vec![f32::NAN; ROWS * COLUMNS];
            let output = TensorMut::new(&compiled.outputs()[0], &engine, &mut in_scratchpad).unwrap();
            // Any alignment of the memory does.
            let mut memory = vec![MaybeUninit::uninit(); expected + repetition];
            let scratchpad = &mut memory[repetition..];
            compiled.execute_with_scratchpad(&stream, &[input], &mut [output], scratchpad).unwrap();
            if !is_transposed(&values, &result) || !is_transposed(&values, &in_scratchpad) {
                wrong.push(format!("{threads} {threading:?}: repetition {repetition}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn a_scratchpad_without_room_for_the_buffers_is_refused() {
    let engine = Engine::builder().threads(1).build();
    let (compiled, stream, values) = (compiled(&engine, Threading::Caller), Stream::new(&engine), values());
    let input = Tensor::new(&compiled.inputs()[0], &engine, &values).unwrap();
    let mut result = vec![f32::NAN; ROWS * COLUMNS];
    let output = TensorMut::new(&compiled.outputs()[0], &engine, &mut result).unwrap();
    let needed = compiled.scratchpad_size();
    let mut memory = vec![MaybeUninit::uninit(); needed - 1];
    let error = compiled.execute_with_scratchpad(&stream, &[input], &mut [output], &mut memory).unwrap_err();
    assert_eq!(error, Error::Execute(ExecuteFault::Scratchpad { needed, given: needed - 1 }));
    assert!(result.iter().all(|value| value.is_nan()), "nothing is written");
}

/// An allocator that has no memory.
struct Empty;

// SAFETY: it hands no memory out.
unsafe impl Allocator for Empty {
    fn allocate(&self, _size: usize, _align: usize) -> Option<NonNull<u8>> {
        None
    }

    unsafe fn deallocate(&self, _block: NonNull<u8>, _size: usize, _align: usize) {}
}

#[test]
fn without_memory_for_the_buffers_nothing_is_written() {
    let engine = Engine::builder().threads(1).allocator(Arc::new(Empty)).build();
    let (compiled, stream, values) = (compiled(&engine, Threading::Caller), Stream::new(&engine), values());
    let input = Tensor::new(&compiled.inputs()[0], &engine, &values).unwrap();
    let mut result = vec![f32::NAN; ROWS * COLUMNS];
    let output = TensorMut::new(&compiled.outputs()[0], &engine, &mut result).unwrap();
    let error = compiled.execute(&stream, &[input], &mut [output]).unwrap_err();
    let size = compiled.scratchpad_size() - 63;
    assert_eq!(error, Error::OutOfMemory { size, align: 64 });
    assert!(result.iter().all(|value| value.is_nan()), "nothing is written");
}

/// Buffers whose bytes no number holds ask for all memory, which no allocator has.
#[test]
fn sizes_that_overflow_are_memory_that_is_not_there() {
    let engine = Engine::builder().threads(2).build();
    let ports = compiled(&engine, Threading::Caller);
    let ports = ports.inputs().iter().chain(ports.outputs()).cloned().collect();
    let buffers = PlacedBuffer::in_order(&[usize::MAX / 2 + 1, usize::MAX - 70, 5]);
    let plan = Plan { buffers, ..plan(Threading::AllWorkers) };
    let compiled = CompiledPartition::new(Arc::new(plan), engine.clone(), ports, 1);
    assert_eq!(compiled.scratchpad_size(), usize::MAX);
    let values = values();
    let input = Tensor::new(&compiled.inputs()[0], &engine, &values).unwrap();
    let mut result = vec![f32::NAN; ROWS * COLUMNS];
    let output = TensorMut::new(&compiled.outputs()[0], &engine, &mut result).unwrap();
    let error = compiled.execute(&Stream::new(&engine), &[input], &mut [output]).unwrap_err();
    assert!(matches!(error, Error::OutOfMemory { .. }), "{error}");
}

/// A driver that fills its tile with numbers of the elements, when it is asked.
struct Numbers<'a> {
    cursor: Cursor<'a>,
    nest: &'a LoopNest,
    /// The tile, and the number of the tile that it holds.
    memory: Vec<f32>,
    holds: Option<usize>,
    /// The tiles that were computed.
    computed: Vec<usize>,
}

/// The number of an element.
fn number(batch: usize, row: usize, column: usize) -> f32 {
    ((batch * 100 + row) * 100 + column) as f32 / 10000.0
}

fn tiles() -> usize {
    let [batches, rows, columns] = DIMS.map(|dim| dim as usize);
    batches * rows.div_ceil(TILE.rows) * columns.div_ceil(TILE.columns)
}

/// The batch, the first row and the first column of a tile.
fn tile_start(tile: usize) -> [usize; 3] {
    let [_, rows, columns] = DIMS.map(|dim| dim as usize);
    let (row_blocks, column_blocks) = (rows.div_ceil(TILE.rows), columns.div_ceil(TILE.columns));
    [
        tile / (row_blocks * column_blocks),
        tile / column_blocks % row_blocks * TILE.rows,
        tile % column_blocks * TILE.columns,
    ]
}

impl<'a> TileOperands<'a> for Numbers<'a> {
    fn cursor(&mut self) -> &mut Cursor<'a> {
        &mut self.cursor
    }

    fn at(&mut self, access: AccessId) -> *mut u8 {
        if !matches!(self.nest.program.accesses[access].base, Base::Driver(0)) {
            return self.cursor.at(access);
        }
        let (tile, Extent { rows, columns }) = (self.cursor.tile(), self.cursor.extent());
        if self.holds != Some(tile) {
            let [batch, first_row, first_column] = tile_start(tile);
            for (row, column) in (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column))) {
                self.memory[row * DRIVER_ROW / 4 + column] =
                    number(batch, first_row + row, first_column + column);
            }
            (self.holds, self.computed) = (Some(tile), [&self.computed[..], &[tile]].concat());
        }
        self.memory.as_mut_ptr().cast()
    }
}

/// A select of 2 × `number` or 2 × `other` by a condition of these dims, as the epilogue of a driver.
struct SelectCase {
    level: Level,
    cond_dims: [i64; 3],
    heavy: bool,
}

impl SelectCase {
    /// The second batch is masked throughout, and so are the last columns and the first rows.
    fn is_true(&self, batch: usize, row: usize, column: usize) -> bool {
        (self.cond_dims[0] == 1 || batch == 0)
            && (self.cond_dims[1] == 1 || row >= 5)
            && (self.cond_dims[2] == 1 || column < 20)
    }

    fn cond(&self) -> Vec<u8> {
        let [_, rows, columns] = self.cond_dims.map(|dim| dim as usize);
        (0..self.cond_dims.iter().product::<i64>() as usize)
            .map(|element| {
                let (batch, row) = (element / (rows * columns), element / columns % rows);
                u8::from(self.is_true(batch, row, element % columns))
            })
            .collect()
    }

    /// True if a tile has an element that takes the driver's branch.
    fn needs(&self, tile: usize) -> bool {
        let [_, rows, columns] = DIMS.map(|dim| dim as usize);
        let [batch, first_row, first_column] = tile_start(tile);
        (first_row..rows.min(first_row + TILE.rows)).any(|row| {
            (first_column..columns.min(first_column + TILE.columns))
                .any(|column| self.is_true(batch, row, column))
        })
    }

    /// The result after tiles were run in this order, and the tiles that the driver computed.
    fn run(&self, order: &[usize], other: &[f32]) -> (Vec<f32>, Vec<usize>) {
        let partition = select_partition(&self.cond_dims, self.heavy);
        let (nest, constants) = select_epilogue(&partition, self.level);
        assert_eq!(nest.tiles(), tiles());
        let (cond, two) = (self.cond(), [2.0f32]);
        let mut result = vec![f32::NAN; other.len()];
        let mut bindings = Bindings::default();
        for port in partition.inputs() {
            bindings.ports.push(match port.id().get() {
                2 => cond.as_ptr().cast_mut(),
                3 => other.as_ptr().cast_mut().cast(),
                4 => two.as_ptr().cast_mut().cast(),
                // The operands of the sum, which the driver replaces.
                _ => std::ptr::null_mut(),
            });
        }
        bindings.ports.push(result.as_mut_ptr().cast());
        let mut scratch = vec![0u64; nest.program.scratch.div_ceil(8)];
        let operands = Numbers {
            cursor: Cursor::new(&nest, &constants, &bindings),
            nest: &nest,
            memory: vec![f32::NAN; TILE.rows * DRIVER_ROW / 4],
            holds: None,
            computed: Vec::new(),
        };
        let mut interpreter = Interpreter::new(&nest.program, &[], scratch.as_mut_ptr().cast(), operands);
        order.iter().for_each(|&tile| interpreter.run(tile));
        let computed = interpreter.operands.computed;
        (result, computed)
    }

    /// The first element whose value is wrong, with its value and the expected one.
    fn first_wrong(&self, result: &[f32], other: &[f32]) -> Option<([usize; 3], f32, f32)> {
        let [_, rows, columns] = DIMS.map(|dim| dim as usize);
        let mut elements = result.iter().zip(other).enumerate().map(|(element, (&found, &other))| {
            let [batch, row, column] =
                [element / (rows * columns), element / columns % rows, element % columns];
            let number = number(batch, row, column);
            let branch = if self.heavy { number.exp() } else { number };
            let expected = 2.0 * if self.is_true(batch, row, column) { branch } else { other };
            ([batch, row, column], found, expected)
        });
        elements.find(|(_, found, expected)| (found - expected).abs() > expected.abs() * 1e-6)
    }
}

#[test]
fn a_driver_is_asked_only_for_tiles_that_need_its_operand() {
    let other: Vec<f32> = (0..DIMS.iter().product()).map(|element: i64| -(element as f32)).collect();
    // Any order of the tiles does.
    let order = (0..tiles()).rev().chain(0..tiles()).step_by(2).chain((0..tiles()).rev());
    let order: Vec<usize> = order.collect();
    let mut wrong = Vec::new();
    // Conditions: of each element, of columns alone, of rows alone, and one for all.
    let conds: [[i64; 3]; 4] = [DIMS, [1, 1, DIMS[2]], [DIMS[0], DIMS[1], 1], [1, 1, 1]];
    for case in Level::all_available()
        .flat_map(|level| conds.map(|cond_dims| (level, cond_dims)))
        .flat_map(|(level, cond_dims)| [false, true].map(|heavy| SelectCase { level, cond_dims, heavy }))
    {
        let SelectCase { level, cond_dims, heavy } = case;
        let name = format!("{level}, condition {cond_dims:?}, heavy {heavy}");
        let (result, mut computed) = case.run(&order, &other);
        computed.dedup();
        let mut expected: Vec<usize> = order.iter().copied().filter(|&tile| case.needs(tile)).collect();
        expected.dedup();
        if computed != expected {
            wrong.push(format!("{name}: computed {computed:?}, not {expected:?}"));
        }
        if let Some((place, found, expected)) = case.first_wrong(&result, &other) {
            wrong.push(format!("{name}: {found} at {place:?}, not {expected}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
