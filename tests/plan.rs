//! Promise: a compiled partition tells what it will do, in words and numbers that fit together.

mod common;

use std::collections::BTreeMap;

use common::graphs::{self, RandomGraph};
use common::{Random, report};
use sterna::{
    CompiledPartition, DataType, Engine, LogicalTensor, LoopOver, NestSummary, Op, OpKind, Partition,
    PlanSummary, StepOperand, TensorId,
};

/// What does not fit together in a plan.
fn faults(compiled: &CompiledPartition, plan: &PlanSummary) -> Vec<String> {
    let mut faults = Vec::new();
    let mut must = |holds: bool, what: &str| {
        if !holds {
            faults.push(what.to_owned());
        }
    };
    must(
        plan.bytes_read + plan.bytes_written == compiled.bytes_moved(),
        "bytes read and written are those moved",
    );
    must(plan.level == compiled.engine().level(), "the level is that of the engine");
    must(plan.scratch_per_thread <= compiled.scratchpad_size(), "a thread's scratch is part of all");
    must((plan.scratch_per_thread == 0) == (compiled.scratchpad_size() == 0), "no scratch is no scratchpad");
    for nest in &plan.nests {
        let turns: usize = nest.loops.iter().map(|l| l.extent).product();
        must(nest.tiles == turns, "as many tiles as the loops around them turn");
        must(
            nest.loops.iter().all(|l| l.extent > 1 && l.is_parallel),
            "loops turn, and threads may share them",
        );
        must(
            (1..=compiled.engine().threads().min(nest.tiles)).contains(&nest.threads),
            "threads have tiles to share",
        );
        let blocks = |over| nest.loops.iter().find(|l| l.over == over).map_or(1, |l| l.extent);
        must(blocks(LoopOver::RowBlocks) == nest.rows.div_ceil(nest.tile_rows), "tiles cover the rows");
        must(
            blocks(LoopOver::ColumnBlocks) == nest.columns.div_ceil(nest.tile_columns),
            "tiles cover the columns",
        );
        let names = nest
            .steps
            .iter()
            .all(|step| !step.tasks.is_empty() && plan.to_string().contains(&step.tasks.join(", ")));
        must(names, "the text names each step");
        for (place, step) in nest.steps.iter().enumerate() {
            let stands_before =
                |operand: &StepOperand| !matches!(operand, StepOperand::Step(other) if *other >= place);
            must(step.operands.iter().all(stands_before), "steps use results of steps before them");
        }
    }
    let is_port = |id: &TensorId| compiled.logical_tensor(*id).is_ok();
    let steps = || plan.nests.iter().flat_map(|nest| &nest.steps);
    let read: Vec<TensorId> = steps().flat_map(|step| &step.operands).filter_map(tensor).collect();
    must(read.iter().all(is_port), "tensors that are read are ports");
    let is_written = |output: &LogicalTensor| {
        output.dims().is_some_and(|dims| dims.contains(&0))
            || steps().any(|step| step.output == Some(output.id()))
    };
    must(compiled.outputs().iter().all(is_written), "each output is written by a step");
    faults
}

fn tensor(operand: &StepOperand) -> Option<TensorId> {
    match operand {
        StepOperand::Tensor(id) => Some(*id),
        _ => None,
    }
}

fn compiled(partition: &Partition, engine: &Engine) -> CompiledPartition {
    partition.compile(engine, partition.inputs(), partition.outputs()).unwrap()
}

/// Compiles the partitions of a graph one after another, each for the shapes that those before it have.
fn all_compiled(graph: &RandomGraph, partitions: &[Partition], engine: &Engine) -> Vec<CompiledPartition> {
    let inputs = graph.inputs.iter().map(|input| (input.id(), input.clone()));
    let mut known: BTreeMap<TensorId, LogicalTensor> =
        graph.outputs.clone().into_iter().chain(inputs).collect();
    let mut compile = |partition: &Partition| {
        let shaped = |port: &LogicalTensor| known.get(&port.id()).unwrap_or(port).clone();
        let inputs: Vec<LogicalTensor> = partition.inputs().iter().map(shaped).collect();
        let outputs: Vec<LogicalTensor> = partition.outputs().iter().map(shaped).collect();
        let compiled = partition.compile(engine, &inputs, &outputs).unwrap();
        known.extend(compiled.outputs().iter().map(|output| (output.id(), output.clone())));
        compiled
    };
    partitions.iter().map(&mut compile).collect()
}

#[test]
fn plans_of_random_graphs_fit_together() {
    let engine = Engine::builder().threads(3).build();
    let mut wrong = Vec::new();
    let (mut plans, mut skipping) = (0, 0);
    for seed in 0..2000 {
        let graph = RandomGraph::new(&mut Random::new(seed), 20);
        for compiled in graphs::both(&graph.graph).iter().flat_map(|all| all_compiled(&graph, all, &engine)) {
            let plan = compiled.plan();
            plans += 1;
            skipping +=
                usize::from(plan.nests.iter().flat_map(|nest| &nest.steps).any(|step| step.lazy_branches));
            wrong.extend(
                faults(&compiled, &plan).into_iter().map(|fault| format!("seed {seed}: {fault}\n{plan}")),
            );
        }
    }
    assert!(plans > 2000 && skipping > 20, "{plans} plans, {skipping} of which skip branches");
    report(&wrong);
}

/// A select of f32 from dims of `cond`, `then` and `else`.
fn select(cond: &[i64], then: &[i64], else_: &[i64]) -> Partition {
    Partition::from_op(Op::select(
        0,
        LogicalTensor::strided(0, DataType::Boolean, cond).unwrap(),
        LogicalTensor::strided(1, DataType::F32, then).unwrap(),
        LogicalTensor::strided(2, DataType::F32, else_).unwrap(),
        LogicalTensor::unknown(3, DataType::F32),
    ))
    .unwrap()
}

#[test]
fn dims_that_all_tensors_walk_alike_become_one_loop() {
    // Dims of cond, then and else; loops of dims around the rows, and the bytes that are read.
    type Row<'a> = (&'a str, [&'a [i64]; 3], &'a [usize], (usize, usize), usize);
    let rows: &[Row<'_>] = &[
        ("dense", [&[2, 3, 4], &[2, 3, 4], &[2, 3, 4]], &[], (1, 24), 24 * 9),
        ("a scalar", [&[2, 3, 4], &[2, 3, 4], &[]], &[], (1, 24), 24 * 5 + 4),
        ("a row for all", [&[4], &[2, 3, 4], &[2, 3, 4]], &[], (6, 4), 4 + 24 * 8),
        ("a column for all", [&[3, 1], &[2, 3, 4], &[2, 3, 4]], &[2], (3, 4), 3 + 24 * 8),
        ("empty", [&[0, 4], &[0, 4], &[0, 4]], &[], (0, 0), 0),
    ];
    let engine = Engine::builder().threads(1).build();
    let mut wrong = Vec::new();
    for (what, [cond, then, else_], loops, (rows, columns), bytes_read) in rows {
        let plan = compiled(&select(cond, then, else_), &engine).plan();
        let shape = |nest: &NestSummary| {
            let dims =
                nest.loops.iter().filter(|l| l.over == LoopOver::Dims).map(|l| l.extent).collect::<Vec<_>>();
            (dims, (nest.rows, nest.columns))
        };
        let found = plan.nests.first().map_or_else(|| (Vec::new(), (0, 0)), shape);
        if found != (loops.to_vec(), (*rows, *columns)) || plan.bytes_read != *bytes_read {
            wrong.push(format!("{what}: {found:?}\n{plan}"));
        }
    }
    report(&wrong);
}

#[test]
fn the_text_says_who_makes_what() {
    let relu = Op::new(7, OpKind::ReLU)
        .input(LogicalTensor::strided(40, DataType::F32, &[8]).unwrap())
        .output(LogicalTensor::strided(41, DataType::F32, &[8]).unwrap());
    let partition = Partition::from_op(relu).unwrap();
    let engine = Engine::builder().threads(1).build();
    let text = compiled(&partition, &engine).plan().to_string();
    assert_eq!(
        text,
        format!(
            "kernels  {}\nmemory   32 bytes in, 32 bytes out\nscratch  0 bytes a thread\n\
             loops    tile 1 × 8, of 1 rows × 8 columns\ntiles    1\nstep 0   Relu of tensor 40 to tensor 41\n",
            engine.level()
        )
    );
}

#[test]
fn large_tensors_are_shared_by_threads() {
    let dims = [4096, 4096];
    let partition = select(&dims, &dims, &dims);
    for threads in [1, 2, 5] {
        let engine = Engine::builder().threads(threads).build();
        let plan = compiled(&partition, &engine).plan();
        assert_eq!(plan.nests[0].threads, threads.min(engine.threads()));
        assert!(plan.non_temporal_stores, "results beyond the caches take non-temporal stores");
    }
}
