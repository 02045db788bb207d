//! Promise: a compiled partition tells what it will do, in words and numbers that fit together.

use std::collections::BTreeMap;

use crate::common::graphs::{self, RandomGraph};
use crate::common::{Random, report};
use sterna::{
    CompiledPartition, DataType, Engine, Graph, Level, LogicalTensor, LoopOver, NestSummary, Op, OpKind,
    Partition, PhaseKind, PlanSummary, Policy, RegisterFusionVerdict, StepOperand, TensorId,
};

/// The contradictions in a plan.
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
    let needs_none = plan.scratch_per_thread + plan.buffer_bytes == 0;
    must(needs_none == (compiled.scratchpad_size() == 0), "no scratch and no buffers are no scratchpad");
    let flops = plan.nests.iter().map(|nest| nest.flops).fold(0, usize::saturating_add);
    must(plan.flops == flops, "the phases have all floating-point operations");
    let scratch = plan.nests.iter().map(|nest| nest.scratch).max().unwrap_or(0);
    must(
        (scratch..scratch + 64).contains(&plan.scratch_per_thread),
        "a thread's scratch is that of the phase that needs most, in whole cache lines",
    );
    for nest in &plan.nests {
        must(nest.tasks > 0 && nest.tasks <= nest.tiles, "tasks are tiles, or several of them");
        let turns: usize = nest.loops.iter().map(|l| l.extent).product();
        must(nest.tiles == turns, "as many tiles as the loops around them turn");
        must(nest.loops.iter().all(|l| l.extent > 1), "loops have more than one iteration");
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
        let are_told = nest
            .steps
            .iter()
            .all(|step| (step.tasks.len() > 1) == (step.register_fusion == RegisterFusionVerdict::Fused));
        must(are_told, "a step of several operations is fused, and no other");
        for (place, step) in nest.steps.iter().enumerate() {
            let stands_before =
                |operand: &StepOperand| !matches!(operand, StepOperand::Step(other) if *other >= place);
            must(step.operands.iter().all(stands_before), "steps use results of steps before them");
        }
    }
    let is_port = |id: &TensorId| compiled.port(*id).is_ok();
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
    partition.compile(engine).unwrap()
}

/// Compiles the partitions of a graph one after another, each for the shapes that those before it have.
fn all_compiled(graph: &RandomGraph, partitions: &[Partition], engine: &Engine) -> Vec<CompiledPartition> {
    let inputs = graph.inputs.iter().map(|input| (input.id().get(), input.clone()));
    let mut known: BTreeMap<usize, LogicalTensor> = graph.outputs.clone().into_iter().chain(inputs).collect();
    let mut compile = |partition: &Partition| {
        let shaped = |port: &LogicalTensor| known.get(&port.id().get()).unwrap_or(port).clone();
        let inputs: Vec<LogicalTensor> = partition.inputs().iter().map(shaped).collect();
        let outputs: Vec<LogicalTensor> = partition.outputs().iter().map(shaped).collect();
        let compiled = partition.compile_for(engine, &inputs, &outputs).unwrap();
        known.extend(compiled.outputs().iter().map(|output| (output.id().get(), output.clone())));
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
fn dims_with_common_strides_become_one_loop() {
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
            "kernels  {}\nmemory   32 bytes in, 32 bytes out\nflops    8\nscratch  0 bytes a thread\n\
             phase    map: 8 FLOPs, 0 bytes of scratch a thread\n\
             loops    tile 1 × 8, of 1 rows × 8 columns\ntiles    1\nstep 0   Relu of tensor 40 to tensor 41\n",
            engine.level()
        )
    );
}

#[test]
fn phases_of_a_product_say_what_they_cost() {
    let tensor = |id, dims: &[i64]| LogicalTensor::strided(id, DataType::F32, dims).unwrap();
    let mut graph = Graph::new();
    let product = Op::new(0, OpKind::MatMul)
        .input(tensor(0, &[3, 200, 70]))
        .input(tensor(1, &[70, 90]))
        .output(tensor(2, &[3, 200, 90]));
    graph.add_op(product).unwrap();
    let exp = Op::new(1, OpKind::Exp).input(tensor(2, &[3, 200, 90])).output(tensor(3, &[3, 200, 90]));
    graph.add_op(exp).unwrap();
    graph.finalize().unwrap();
    let partition = &graph.partitions(Policy::Fusion).unwrap()[0];
    let plan = compiled(partition, &Engine::new()).plan();
    let found: Vec<(PhaseKind, usize)> = plan.nests.iter().map(|nest| (nest.kind, nest.flops)).collect();
    let product = 2 * 3 * 200 * 70 * 90 + 3 * 200 * 90;
    assert_eq!(found, [(PhaseKind::Pack, 0), (PhaseKind::Gemm, product)], "{plan}");
    assert_eq!(plan.flops, product);
}

#[test]
fn large_tensors_are_shared_by_threads() {
    // No cache holds 16 GiB; the largest of today are near 1 GiB.
    let dims = [65536, 65536];
    let partition = select(&dims, &dims, &dims);
    for threads in [1, 2, 5] {
        let engine = Engine::builder().threads(threads).build();
        let plan = compiled(&partition, &engine).plan();
        assert_eq!(plan.nests[0].threads, threads.min(engine.threads()));
        assert!(plan.non_temporal_stores, "results beyond the caches take non-temporal stores");
    }
}

/// The verdicts on the steps of the one partition of a graph.
fn verdicts(ops: &[Op], engine: &Engine) -> (Vec<RegisterFusionVerdict>, String) {
    let mut graph = Graph::new();
    ops.iter().for_each(|op| graph.add_op(op.clone()).unwrap());
    graph.finalize().unwrap();
    let partitions = graph.partitions(Policy::Fusion).unwrap();
    let partition = partitions.iter().find(|partition| partition.is_supported()).unwrap();
    let plan = compiled(partition, engine).plan();
    let steps = plan.nests.iter().flat_map(|nest| &nest.steps);
    (steps.map(|step| step.register_fusion).collect(), plan.to_string())
}

#[test]
fn a_plan_says_why_steps_are_not_fused_in_registers() {
    use RegisterFusionVerdict as Verdict;

    let of =
        |data_type: DataType, id: usize, dims: &[i64]| LogicalTensor::strided(id, data_type, dims).unwrap();
    let dense = |id: usize| of(DataType::F32, id, &[64, 256]);
    let mask = |id: usize| of(DataType::Boolean, id, &[64, 256]);
    let binary = |id: usize, kind: OpKind, x: &LogicalTensor, y: &LogicalTensor, to: &LogicalTensor| {
        Op::new(id, kind).input(x.clone()).input(y.clone()).output(to.clone())
    };
    let unary = |id: usize, kind: OpKind, x: &LogicalTensor, to: &LogicalTensor| {
        Op::new(id, kind).input(x.clone()).output(to.clone())
    };
    let select =
        |id: usize, [cond, then, else_, to]: [LogicalTensor; 4]| Op::select(id, cond, then, else_, to);
    let sum = |x: &LogicalTensor, to: usize| binary(0, OpKind::Add, x, &dense(2), &dense(to));
    let short = |id: usize| LogicalTensor::with_strides(id, DataType::F32, &[64, 5], &[8, 1]).unwrap();
    let short_result = |id: usize| of(DataType::F32, id, &[64, 5]);
    let rows: &[(&str, Vec<Op>, &[Verdict])] = &[
        ("alone", vec![select(0, [mask(1), dense(2), dense(3), dense(4)])], &[Verdict::NoPartner]),
        (
            "a pair in the caches",
            vec![sum(&dense(1), 5), select(1, [mask(3), dense(5), dense(4), dense(6)])],
            &[Verdict::PairInCaches, Verdict::PairInCaches],
        ),
        (
            "three",
            vec![
                sum(&dense(1), 5),
                binary(1, OpKind::Multiply, &dense(5), &dense(3), &dense(6)),
                select(2, [mask(7), dense(6), dense(4), dense(8)]),
            ],
            &[Verdict::Fused],
        ),
        (
            "a heavy branch, which a mask test may skip",
            vec![
                unary(0, OpKind::Exp, &dense(1), &dense(5)),
                select(1, [mask(3), dense(5), dense(4), dense(6)]),
                binary(2, OpKind::Add, &dense(6), &dense(1), &dense(7)),
            ],
            &[Verdict::NoStage, Verdict::SkipsWork, Verdict::NoPartner],
        ),
        (
            "a value that is an output too",
            vec![
                sum(&dense(1), 5),
                binary(1, OpKind::Multiply, &dense(5), &dense(3), &dense(6)),
                select(2, [mask(7), dense(6), dense(4), dense(8)]),
                Op::new(3, OpKind::End).input(dense(5)),
            ],
            &[Verdict::Stored, Verdict::Fused],
        ),
        (
            "short rows",
            vec![
                binary(0, OpKind::Add, &short(1), &short(2), &short_result(5)),
                binary(1, OpKind::Multiply, &short_result(5), &short(3), &short_result(6)),
                select(2, [of(DataType::Boolean, 7, &[64, 5]), short_result(6), short(4), short_result(8)]),
            ],
            &[Verdict::ShortRows, Verdict::ShortRows, Verdict::ShortRows],
        ),
        (
            "one number for each row",
            vec![
                binary(
                    0,
                    OpKind::Add,
                    &of(DataType::F32, 1, &[64, 1]),
                    &of(DataType::F32, 2, &[64, 1]),
                    &of(DataType::F32, 5, &[64, 1]),
                ),
                binary(1, OpKind::Multiply, &of(DataType::F32, 5, &[64, 1]), &dense(3), &dense(6)),
                select(2, [mask(7), dense(6), dense(4), dense(8)]),
            ],
            &[Verdict::Repeated, Verdict::Fused],
        ),
    ];
    let engine = Engine::builder().threads(1).build();
    let has_stages = engine.level() != Level::Portable;
    let mut wrong = Vec::new();
    for (what, ops, expected) in rows {
        let (found, text) = verdicts(ops, &engine);
        let is_expected = if has_stages { found == *expected } else { !found.contains(&Verdict::Fused) };
        let are_shown = found.iter().all(|verdict| {
            matches!(verdict, Verdict::Fused | Verdict::NoPartner) || text.contains(&verdict.to_string())
        });
        if !is_expected || !are_shown {
            wrong.push(format!("{what}: {found:?}\n{text}"));
        }
    }
    report(&wrong);
}
