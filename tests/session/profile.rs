//! Runs say where their time went, and plans how their memory is laid out.

use sterna::{
    ArenaBuffer, AsDynView, DataType, Engine, Graph, GraphBuilder, LogicalTensor, Model, Op, OpKind, Result,
    Session, SpanKind, TensorView,
};

use crate::common::report;
use crate::trust::Breaks;

/// A product with a matrix that is computed from constants, and an op of the caller's.
fn session() -> Result<Session> {
    let g = GraphBuilder::new();
    let x = g.input("x", DataType::F32, &[None, Some(2)])?;
    let w = g.softmax(g.constant("w", &[2, 2], &[1.0f32, 0.0, 0.0, 1.0])?, 0)?;
    let y = g.custom("test::Copied", &[g.softmax(g.matmul(x, w)?, 1)?], &[(DataType::F32, None)])?[0];
    g.output("y", g.exp(y)?)?;
    Session::builder(g.build()?).op("test::Copied", Breaks::default()).build(&Engine::new())
}

#[test]
fn a_profile_names_what_ran_and_what_was_planned_for_it() -> Result<()> {
    let session = session()?;
    assert!(session.plan_profile().is_none() && session.arena_plan().is_none());
    let x = [0.5f32; 6];
    let view = TensorView::new(&x, &[3, 2]);
    let (first, profile) = session.run_profiled(&[("x", &view)])?;
    let (second, again) = session.run_profiled(&[("x", &view)])?;
    assert_eq!(first["y"].as_bytes(), second["y"].as_bytes());
    assert_eq!(first["y"].as_bytes(), session.run(&[("x", &view)])?["y"].as_bytes());

    let mut faults = Vec::new();
    let count = |kind| profile.spans.iter().filter(|span| span.kind == kind).count();
    let steps = again.spans.iter().map(|span| (span.kind, span.ops[0].kind.name())).collect::<Vec<_>>();
    for (kind, expected) in [
        (SpanKind::Infer, 1),
        (SpanKind::Partition, 1),
        (SpanKind::Fold, 1),
        (SpanKind::Custom, 1),
        (SpanKind::Fallback, 0),
        (SpanKind::Source, 0),
    ] {
        if count(kind) != expected {
            faults.push(format!("{} {}, not {expected}", count(kind), kind.name()));
        }
    }
    for (kind, ops) in
        [(SpanKind::Execute, "MatMul"), (SpanKind::Custom, "Wildcard"), (SpanKind::Execute, "Exp")]
    {
        if !steps.contains(&(kind, ops)) {
            faults.push(format!("no {} of {ops} in {steps:?}", kind.name()));
        }
    }
    for (what, profile) in [("first", &profile), ("again", &again)] {
        let end = profile.began + profile.duration;
        let is_inside = profile.spans.iter().all(|s| s.began >= profile.began && s.began + s.duration <= end);
        let in_order = profile.spans.is_sorted_by_key(|span| span.began);
        let has_bytes = profile.spans.iter().all(|span| (span.bytes > 0) == span.kind.is_step());
        if !(is_inside && in_order && has_bytes) {
            faults.push(format!("{what}: {profile:#?}"));
        }
    }
    if again.spans.iter().any(|span| !span.kind.is_step()) || profile.time_of(SpanKind::Compile).is_zero() {
        faults.push("a plan is made once".into());
    }
    let planned = session.plan_profile().map_or(0, |plan| plan.spans.len());
    if planned + again.spans.len() != profile.spans.len() {
        faults.push(format!("{planned} spans of the plan"));
    }
    report(&faults);
    Ok(())
}

#[test]
fn what_falls_back_is_named_so() -> Result<()> {
    // Axes that are an input have no kernel.
    let tensor = |id, data_type, dims: &[i64]| LogicalTensor::strided(id, data_type, dims);
    let sum = Op::new(0, OpKind::ReduceSum).input(tensor(0, DataType::F32, &[2, 3])?);
    let sum = sum.input(tensor(1, DataType::S32, &[1])?).output(tensor(2, DataType::F32, &[2])?);
    let mut graph = Graph::new();
    graph.add_op(sum)?;
    let session = Session::builder(Model::new(graph)?).fallback(true).build(&Engine::new())?;
    let inputs: &[(&str, &dyn AsDynView)] = &[("0", &TensorView::new(&[1.0f32; 6], &[2, 3])), ("1", &[1i32])];
    let (_, profile) = session.run_profiled(inputs)?;
    let kinds: Vec<_> = profile.spans.iter().map(|span| (span.kind, span.partition, span.bytes)).collect();
    assert_eq!(kinds, [(SpanKind::Fallback, Some(0), 24 + 4 + 8)]);
    assert_eq!(session.arena_plan().unwrap().steps[0].kind, SpanKind::Fallback);
    Ok(())
}

#[test]
fn an_arena_has_room_for_what_lasts_at_one_time() -> Result<()> {
    let g = GraphBuilder::new();
    let x = g.input("x", DataType::F32, &[None, Some(32)])?;
    let w = g.input("w", DataType::F32, &[Some(32), Some(32)])?;
    let mut y = x;
    for _ in 0..4 {
        y = g.matmul(g.add(g.softmax(g.matmul(y, w)?, 1)?, g.reduce_max(y, &[0])?)?, w)?;
    }
    g.output("y", y)?;
    let session = Session::new(g.build()?, &Engine::new())?;
    let w = vec![0.5f32; 32 * 32];
    let mut faults = Vec::new();
    for rows in [1i64, 32, 33] {
        let x = vec![0.25f32; rows as usize * 32];
        let (x, w) = (TensorView::new(&x, &[rows, 32]), TensorView::new(&w, &[32, 32]));
        session.run(&[("x", &x), ("w", &w)])?;
        let plan = session.arena_plan().expect("it ran");
        if plan.bytes + plan.scratch != session.run_memory() || plan.buffers.len() < 4 {
            faults.push(format!("{rows} rows: {} and {} bytes", plan.bytes, plan.scratch));
        }
        let apart = |a: &ArenaBuffer, b: &ArenaBuffer| {
            a.last_step < b.first_step
                || b.last_step < a.first_step
                || a.offset + a.bytes <= b.offset
                || b.offset + b.bytes <= a.offset
        };
        for (index, buffer) in plan.buffers.iter().enumerate() {
            let is_inside = buffer.offset + buffer.bytes <= plan.bytes && buffer.last_step < plan.steps.len();
            if !is_inside || plan.buffers[..index].iter().any(|other| !apart(buffer, other)) {
                faults.push(format!("{rows} rows: {buffer:?} in {:?}", plan.buffers));
            }
        }
    }
    report(&faults);
    Ok(())
}
