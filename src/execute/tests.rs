//! Plans of several phases, made by hand: the second phase reads the first one's internal buffer transposed,
//! so it needs all that the first one wrote.

use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::Arc;

use smallvec::smallvec;

use super::compiled::CompiledPartition;
use super::engine::{Allocator, Engine};
use super::stream::Stream;
use super::tensor::{Tensor, TensorMut};
use crate::error::{Error, ExecuteFault};
use crate::graph::logical_tensor::LogicalTensor;
use crate::kernels::{Extent, InnerStride, StorePolicy, Width, pack, select};
use crate::plan::register_fusion::RegisterFusionVerdict;
use crate::plan::scalar_op::StepLabel;
use crate::plan::{
    Access, Base, Cost, Dest, Instr, Loop, LoopNest, Operand, Phase, Plan, Step, StepSet, StepSpace,
    Threading, TileProgram, Traversal,
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
    (0..steps).for_each(|step| all.insert(step));
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
            Instr::Move { from: Operand::Access(0), kernel: copy },
            Dest::Access(1),
        )],
        roots: smallvec![0],
        invalidated_by: invalidated_by(1).as_slice().into(),
        accesses: smallvec![access(Base::Port(0), 4), access(Base::Buffer(1), 4)],
        ..TileProgram::default()
    };
    let packed = Instr::PackTile { from: 0, distance: 0, kernel: pack::pack_tile(level, width) };
    let second = TileProgram {
        steps: vec![
            step(StepLabel::PackTile, packed, Dest::Scratch(0, 4 * ROWS)),
            step(StepLabel::Copy, Instr::Move { from: Operand::Step(0), kernel: copy }, Dest::Access(1)),
        ],
        roots: smallvec![1],
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
        buffers: vec![100, BYTES],
        phases: vec![
            Phase::Map(nest(ROWS, COLUMNS, [4 * COLUMNS; 2], first)),
            Phase::Map(nest(COLUMNS, ROWS, [4, 4 * ROWS], second)),
        ],
        constants: Vec::new(),
        scratch: 256,
        cost: Cost { bytes: 2 * BYTES, ..Cost::default() },
        threading,
        computes_floats: false,
        stores: StorePolicy::Temporal,
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

/// Whether the second holds the first transposed.
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
    let plan = Plan { buffers: vec![usize::MAX / 2 + 1, usize::MAX - 70, 5], ..plan(Threading::AllWorkers) };
    let compiled = CompiledPartition::new(Arc::new(plan), engine.clone(), ports, 1);
    assert_eq!(compiled.scratchpad_size(), usize::MAX);
    let values = values();
    let input = Tensor::new(&compiled.inputs()[0], &engine, &values).unwrap();
    let mut result = vec![f32::NAN; ROWS * COLUMNS];
    let output = TensorMut::new(&compiled.outputs()[0], &engine, &mut result).unwrap();
    let error = compiled.execute(&Stream::new(&engine), &[input], &mut [output]).unwrap_err();
    assert!(matches!(error, Error::OutOfMemory { .. }), "{error}");
}
