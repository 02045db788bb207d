//! Parts of plans for tests of drivers, and tests of plans that a lowering of anchors would make.

use std::sync::Arc;

use smallvec::smallvec;

use super::elementwise::DriverSpace;
use super::phases::{PlacedTensor, PlanBuilder};
use super::shaped_partition::ShapedPartition;
use crate::execute::compiled::CompiledPartition;
use crate::execute::engine::Engine;
use crate::execute::stream::Stream;
use crate::execute::tensor::{Tensor, TensorMut};
use crate::graph::Graph;
use crate::graph::logical_tensor::LogicalTensor;
use crate::graph::op::Op;
use crate::kernels::{Extent, InnerStride, StorePolicy, Width, select};
use crate::partition::Partition;
use crate::plan::register_fusion::RegisterFusionVerdict;
use crate::plan::scalar_op::StepLabel;
use crate::plan::{
    Access, AccessId, Dest, Instr, Loop, LoopNest, Operand, Phase, Plan, Step, StepId, StepSet, StepSpace,
    TileProgram, Traversal, ValueId,
};
use crate::types::dtype::DataType;
use crate::types::kind::{Attr, Level, OpKind, Policy};

/// Batches, rows and columns of the space of the epilogue.
pub(crate) const DIMS: [i64; 3] = [2, 13, 37];
/// The tile, which divides neither rows nor columns.
pub(crate) const TILE: Extent = Extent { rows: 4, columns: 16 };
/// Bytes from row to row of the driver's tile.
pub(crate) const DRIVER_ROW: usize = 96;

fn tensor(id: usize, data_type: DataType, dims: &[i64]) -> LogicalTensor {
    LogicalTensor::strided(id, data_type, dims).expect("the tensor can be described")
}

/// The partition of `select(cond, exp(x + y) or x + y, other) * 2`, whose first op stands for one that a
/// driver computes.
pub(crate) fn select_partition(cond: &[i64], heavy: bool) -> Partition {
    let of = |id| tensor(id, DataType::F32, &DIMS);
    let mut graph = Graph::new();
    let mut add = |op| graph.add_op(op).expect("the op fits its schema");
    add(Op::new(0, OpKind::Add).input(of(0)).input(of(1)).output(of(10)));
    let branch = if heavy {
        add(Op::new(1, OpKind::Exp).input(of(10)).output(of(11)));
        11
    } else {
        10
    };
    let two = tensor(4, DataType::F32, &[]);
    add(Op::select(2, tensor(2, DataType::Boolean, cond), of(branch), of(3), of(12)));
    add(Op::new(3, OpKind::Multiply).input(of(12)).input(two).output(of(13)));
    graph.finalize().expect("the graph is whole");
    let mut partitions = graph.partitions(Policy::Fusion).expect("it is finalised");
    assert_eq!(partitions.len(), 1);
    partitions.remove(0)
}

/// The epilogue of that partition with the sum in slot 0 of a driver, and the constants of its plan.
pub(crate) fn select_epilogue(partition: &Partition, level: Level) -> (LoopNest, Vec<[u8; 8]>) {
    let inputs: Vec<&LogicalTensor> = partition.inputs().iter().collect();
    let outputs: Vec<&LogicalTensor> = partition.outputs().iter().collect();
    let shaped = ShapedPartition::new(partition, &inputs, &outputs).expect("the shapes fit together");
    let mut builder = PlanBuilder::new(&shaped, level, true);
    let space = DriverSpace::new(
        DIMS.as_slice().into(),
        [Some(1), Some(2)],
        TILE,
        smallvec![(DRIVER_ROW as isize, 4)],
    );
    let sum = ValueId(shaped.group.inputs);
    let roots = shaped.group.outputs.to_vec();
    let nest = builder.epilogue(&space, &[(sum, 0)], &roots).expect("kernels run it");
    (nest, builder.constants().to_vec())
}

/// Elements of the tensors of plans with anchors.
const LENGTH: usize = 5000;

/// A phase that copies one tensor to another: the tests' anchors copy their operand.
fn copy_phase(level: Level, from: &PlacedTensor, to: &PlacedTensor) -> Phase {
    assert_eq!((&from.dims, &from.strides), (&to.dims, &to.strides));
    let access =
        |tensor: &PlacedTensor| Access { base: tensor.base, offset: 0, row_stride: 0, col_stride: 4 };
    let copy = select::copy(level, Width::W4, InnerStride::Contiguous, StorePolicy::Temporal);
    let (tile, mut all) = (128, StepSet::none_of(1));
    all.insert(StepId(0));
    let program = TileProgram {
        steps: vec![Step {
            labels: smallvec![StepLabel::Copy],
            instr: Instr::Move { from: Operand::Access(AccessId(0)), kernel: copy },
            to: Dest::Access(AccessId(1)),
            space: StepSpace { rows: true, columns: InnerStride::Contiguous },
            traversal: Traversal::RowByRow,
            register_fusion: RegisterFusionVerdict::NoPartner,
        }],
        roots: smallvec![StepId(0)],
        invalidated_by: smallvec![all.clone(), all],
        accesses: smallvec![access(from), access(to)],
        ..TileProgram::default()
    };
    let loop_of = |extent: usize, stride: isize| Loop { extent, strides: smallvec![stride; 2] };
    Phase::Map(LoopNest {
        loops: smallvec![loop_of(1, 0), loop_of(LENGTH.div_ceil(tile), 4 * tile as isize)],
        row_blocks: 0,
        column_blocks: 1,
        space: Extent { rows: 1, columns: LENGTH },
        tile: Extent { rows: 1, columns: tile },
        program,
    })
}

/// Adds the phase of each anchor.
fn plan(partition: &Partition, engine: &Engine) -> Plan {
    let inputs: Vec<&LogicalTensor> = partition.inputs().iter().collect();
    let outputs: Vec<&LogicalTensor> = partition.outputs().iter().collect();
    let shaped = ShapedPartition::new(partition, &inputs, &outputs).expect("the shapes fit together");
    let mut builder = PlanBuilder::new(&shaped, engine.level(), engine.threads() == 1);
    for anchor in &shaped.group.anchors {
        let from = builder.operand(anchor.inputs[0]).expect("kernels compute it");
        let to = builder.result(anchor.outputs[0]);
        builder.push(copy_phase(engine.level(), &from, &to), LENGTH, true);
    }
    builder.finish().expect("kernels compute the rest")
}

/// `x → exp → anchor → y; y · x + y → anchor → z; select(c, z, y) − exp(x) → output`, and also `z` and
/// `exp(x)` if they are outputs.
fn anchored(z_is_output: bool, exp_is_output: bool) -> Graph {
    let of = |id| tensor(id, DataType::F32, &[50, LENGTH as i64 / 50]);
    let mut graph = Graph::new();
    let op = |id, kind, inputs: &[usize], output| {
        inputs.iter().fold(Op::new(id, kind), |op, &input| op.input(of(input))).output(of(output))
    };
    let cond = tensor(1, DataType::Boolean, &[50, LENGTH as i64 / 50]);
    let mut ops = vec![
        op(0, OpKind::Exp, &[0], 10),
        op(1, OpKind::SoftMax, &[10], 11),
        op(2, OpKind::Multiply, &[11, 0], 12),
        op(3, OpKind::Add, &[12, 11], 13),
        op(4, OpKind::SoftMax, &[13], 14),
        Op::select(5, cond, of(14), of(11), of(15)),
        op(6, OpKind::Subtract, &[15, 10], 16),
    ];
    if z_is_output {
        ops.push(Op::new(7, OpKind::End).input(of(14)));
    }
    if exp_is_output {
        ops.push(Op::new(8, OpKind::End).input(of(10)));
    }
    ops.into_iter().for_each(|op| graph.add_op(op).expect("the op fits its schema"));
    graph.finalize().expect("the graph is whole");
    graph
}

#[test]
fn anchors_stand_among_pointwise_ops_and_hand_values_on() {
    let values: Vec<f32> = (0..LENGTH).map(|element| (element % 17) as f32 / 8.0).collect();
    let cond: Vec<bool> = (0..LENGTH).map(|element| element % 3 == 0).collect();
    let y: Vec<f32> = values.iter().map(|x| x.exp()).collect();
    let z: Vec<f32> = y.iter().zip(&values).map(|(y, x)| y * x + y).collect();
    let result: Vec<f32> = (0..LENGTH).map(|at| if cond[at] { z[at] - y[at] } else { 0.0 }).collect();
    let mut wrong = Vec::new();
    for (threads, (z_is_output, exp_is_output)) in [1, 2].into_iter().flat_map(|threads| {
        [(false, false), (true, false), (false, true), (true, true)].map(|o| (threads, o))
    }) {
        let name = format!("{threads} threads, {z_is_output}, {exp_is_output}");
        // End ops stand outside of the partition.
        let graph = anchored(z_is_output, exp_is_output);
        let partition = Partition::of_first(&graph, 7).expect("the ops are a partition");
        let engine = Engine::builder().threads(threads).build();
        let plan = plan(&partition, &engine);
        // One for each operand of an anchor, for each anchor, and for the output.
        let phases = plan.phases.len();
        if phases != 5 {
            wrong.push(format!("{name}: {phases} phases"));
        }
        let buffers = plan.buffers.len();
        let ports = partition.inputs().iter().chain(partition.outputs()).cloned().collect();
        let compiled =
            CompiledPartition::new(Arc::new(plan), engine.clone(), ports, partition.inputs().len());
        if (buffers == 0) != (compiled.scratchpad_size() == 0) {
            wrong.push(format!("{name}: {buffers} buffers in {} bytes", compiled.scratchpad_size()));
        }
        let inputs: Vec<Tensor<'_>> = compiled
            .inputs()
            .iter()
            .map(|input| match input.id().get() {
                0 => Tensor::new(input, &engine, &values),
                _ => Tensor::new(input, &engine, &cond),
            })
            .collect::<Result<_, _>>()
            .expect("the values fit");
        let mut given: Vec<Vec<f32>> = vec![vec![f32::NAN; LENGTH]; compiled.outputs().len()];
        let mut outputs: Vec<TensorMut<'_>> = compiled
            .outputs()
            .iter()
            .zip(&mut given)
            .map(|(output, given)| TensorMut::new(output, &engine, given))
            .collect::<Result<_, _>>()
            .expect("the values fit");
        compiled.execute(&Stream::new(&engine), &inputs, &mut outputs).expect("it can be executed");
        for (output, given) in compiled.outputs().iter().zip(&given) {
            let expected = match output.id().get() {
                10 => &y,
                14 => &z,
                _ => &result,
            };
            let differs =
                |(given, expected): (&f32, &f32)| (given - expected).abs() > 1e-5 * expected.abs().max(1.0);
            if let Some(at) = given.iter().zip(expected).position(differs) {
                wrong.push(format!(
                    "{name}: tensor {} is {} at {at}, not {}",
                    output.id(),
                    given[at],
                    expected[at]
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The roots of the epilogue of a SoftMax of a square, by the ids of their tensors, which a row of the test
/// gives in order.
fn roots_of(ops: Vec<Op>) -> Vec<usize> {
    let count = ops.len();
    let mut graph = Graph::new();
    ops.into_iter().for_each(|op| graph.add_op(op).expect("the op fits its schema"));
    graph.finalize().expect("the graph is whole");
    let partition = Partition::of_first(&graph, count).expect("the ops are a partition");
    let inputs: Vec<&LogicalTensor> = partition.inputs().iter().collect();
    let outputs: Vec<&LogicalTensor> = partition.outputs().iter().collect();
    let shaped = ShapedPartition::new(&partition, &inputs, &outputs).expect("the shapes fit together");
    let builder = PlanBuilder::new(&shaped, Level::available(), true);
    let result = shaped.group.anchors[0].outputs[0];
    builder.epilogue_roots(0, &[result], None).into_iter().map(|value| value.0 - result.0).collect()
}

#[test]
fn an_epilogue_takes_what_stands_at_the_elements_of_the_result() {
    let of = |id| tensor(id, DataType::F32, &[60, 60]);
    let op = |id, kind, inputs: &[usize], output| {
        inputs.iter().fold(Op::new(id, kind), |op, &input| op.input(of(input))).output(of(output))
    };
    let softmax = || op(0, OpKind::SoftMax, &[0], 10);
    let transpose =
        |id, from, to| op(id, OpKind::StaticTranspose, &[from], to).attr(Attr::Order, vec![1i64, 0]);
    // Values are counted from the result of the anchor, in run order.
    let rows: [(&str, Vec<Op>, &[usize]); 5] = [
        ("the result alone", vec![softmax()], &[0]),
        ("one behind", vec![softmax(), op(1, OpKind::Exp, &[10], 11)], &[1]),
        (
            "two beside each other",
            vec![softmax(), op(1, OpKind::Exp, &[10], 11), op(2, OpKind::Add, &[10, 1], 12)],
            &[1, 2],
        ),
        (
            "beside its transpose",
            vec![softmax(), transpose(1, 10, 11), op(2, OpKind::Add, &[10, 11], 12)],
            &[0],
        ),
        (
            "a transposed operand",
            vec![softmax(), transpose(1, 1, 11), op(2, OpKind::Add, &[10, 11], 12)],
            &[2],
        ),
    ];
    let wrong: Vec<_> = rows
        .into_iter()
        .map(|(name, ops, expected)| (name, roots_of(ops), expected))
        .filter(|(_, roots, expected)| roots != expected)
        .collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}
