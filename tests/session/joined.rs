//! Operands of a Concat that are written where its result has them, against the same graph op by op.

use crate::common::{Random, report};
use crate::runs::one_by_one;
use crate::trust::Breaks;
use sterna::{
    CustomNode, DataType, Engine, GraphBuilder, GraphValue, OpKind, ProfiledOp, Result, Session, SpanKind,
    StateLink, TensorView,
};

/// Small whole numbers, whose sums are exact in any order.
fn numbers(count: i64) -> Vec<f32> {
    (0..count).map(|i| (i * 7 % 5) as f32 - 2.0).collect()
}

/// The dims of a value, 0 for those that are open.
fn dims_of(value: GraphValue<'_>) -> Vec<i64> {
    value.dims().unwrap_or_default().iter().map(|dim| dim.unwrap_or(0)).collect()
}

/// The product of small numbers made of the elements, with a constant.
fn product<'g>(g: &'g GraphBuilder, x: GraphValue<'g>, columns: i64) -> Result<GraphValue<'g>> {
    let depth = *dims_of(x).last().unwrap();
    let w = g.constant(format!("w{}", x.id()), &[depth, columns], &numbers(depth * columns))?;
    g.matmul(g.clamp(x, -4.0, 4.0)?, w)
}

type Make = for<'g> fn(&'g GraphBuilder, GraphValue<'g>) -> Result<Vec<GraphValue<'g>>>;

/// The kinds of the steps of a run, and its results beside those of the ops one by one.
fn checked(make: Make, dims: &[i64], engine: &Engine) -> Result<(Vec<SpanKind>, bool)> {
    let g = GraphBuilder::new();
    let open: Vec<Option<i64>> = dims.iter().map(|&dim| Some(dim)).collect();
    let x = g.input("x", DataType::F32, &open)?;
    for (index, y) in make(&g, x)?.into_iter().enumerate() {
        g.output(format!("y{index}"), y)?;
    }
    let model = g.build()?;
    let x = numbers(dims.iter().product());
    let expected = one_by_one(&model, &x, dims)?;
    let session = Session::new(model, engine)?;
    let (outputs, profile) = session.run_profiled(&[("x", &TensorView::new(&x, dims))])?;
    let same =
        outputs.iter().zip(&expected).all(|((_, y), expected)| y.as_slice::<f32>().unwrap() == expected);
    let steps = profile.spans.iter().filter(|span| span.kind.is_step());
    Ok((steps.map(|span| span.kind).collect(), same))
}

#[test]
fn what_a_partition_computes_for_a_concat_is_not_copied() -> Result<()> {
    const RUN: SpanKind = SpanKind::Execute;
    const COPY: SpanKind = SpanKind::Copy;
    let rows: &[(&str, &[i64], Make, &[SpanKind])] = &[
        (
            "rows below rows",
            &[3, 70],
            |g, x| {
                let all = g.concat(&[product(g, x, 70)?, g.cumsum(x, 1)?], 0)?;
                Ok(vec![g.cumsum(all, 0)?])
            },
            &[RUN; 3],
        ),
        (
            "an output of the run",
            &[3, 70],
            |g, x| Ok(vec![g.concat(&[product(g, x, 70)?, g.cumsum(x, 1)?], 0)?]),
            &[RUN; 2],
        ),
        (
            "long rows beside rows",
            &[3, 70],
            |g, x| {
                let all = g.concat(&[product(g, x, 64)?, g.cumsum(x, 1)?], 1)?;
                Ok(vec![g.cumsum(all, 0)?])
            },
            &[RUN; 3],
        ),
        (
            "short rows beside rows",
            &[3, 7],
            |g, x| {
                let all = g.concat(&[product(g, x, 7)?, g.cumsum(x, 1)?], 1)?;
                Ok(vec![g.cumsum(all, 0)?])
            },
            &[RUN; 3],
        ),
        (
            "a part that others read",
            &[3, 70],
            |g, x| {
                let y = g.cumsum(x, 1)?;
                let all = g.concat(&[y, product(g, x, 70)?], 0)?;
                Ok(vec![g.cumsum(all, 0)?, g.cumsum(y, 0)?])
            },
            &[RUN; 4],
        ),
        (
            "a part beside rows that others read",
            &[3, 70],
            |g, x| {
                let y = g.cumsum(x, 1)?;
                let all = g.concat(&[y, product(g, x, 70)?], 1)?;
                Ok(vec![g.cumsum(all, 0)?, g.cumsum(y, 0)?])
            },
            &[RUN, RUN, COPY, RUN, RUN],
        ),
        (
            "small operands of which most are inputs",
            &[3, 70],
            |g, x| {
                let all = g.concat(&[x, g.cumsum(x, 1)?, x], 1)?;
                Ok(vec![g.cumsum(all, 0)?])
            },
            &[RUN; 3],
        ),
        (
            "an input",
            &[3, 70],
            |g, x| {
                let all = g.concat(&[x, product(g, x, 70)?], 0)?;
                Ok(vec![g.cumsum(all, 0)?])
            },
            &[RUN, COPY, RUN],
        ),
        (
            "a part that is an output",
            &[3, 70],
            |g, x| {
                let y = g.cumsum(x, 1)?;
                let all = g.concat(&[y, product(g, x, 70)?], 0)?;
                Ok(vec![g.cumsum(all, 0)?, y])
            },
            &[RUN, RUN, COPY, RUN],
        ),
        (
            "a part twice",
            &[3, 70],
            |g, x| {
                let y = g.cumsum(x, 1)?;
                Ok(vec![g.cumsum(g.concat(&[y, y], 0)?, 0)?])
            },
            &[RUN; 3],
        ),
        (
            "a part of two concats",
            &[3, 70],
            |g, x| {
                let y = g.cumsum(x, 1)?;
                let one = g.concat(&[y, product(g, x, 70)?], 0)?;
                let other = g.concat(&[y, g.cumsum(x, 0)?], 0)?;
                Ok(vec![g.cumsum(one, 0)?, g.cumsum(other, 0)?])
            },
            &[RUN, RUN, COPY, RUN, RUN, RUN],
        ),
        (
            "a transpose in its partition",
            &[3, 70],
            |g, x| {
                let y = g.transpose(g.cumsum(x, 1)?, &[1, 0])?;
                let all = g.concat(&[y, product(g, g.reshape(x, &[70, 3])?, 3)?], 0)?;
                Ok(vec![g.cumsum(all, 0)?])
            },
            &[RUN; 4],
        ),
        (
            "a chain, each link of which reads the one before",
            &[3, 70],
            |g, x| {
                let y = g.cumsum(x, 1)?;
                let all = g.concat(&[y, g.cumsum(y, 0)?], 0)?;
                Ok(vec![g.cumsum(all, 0)?])
            },
            &[RUN, RUN, COPY, RUN],
        ),
        (
            "what follows from constants, once for all runs",
            &[70, 70],
            |g, x| {
                let c = g.constant("c", &[3, 70], &numbers(210))?;
                let all = g.concat(&[g.cumsum(g.cumsum(c, 0)?, 1)?, g.cumsum(c, 1)?], 0)?;
                Ok(vec![g.matmul(all, x)?])
            },
            &[RUN],
        ),
        (
            "what follows from constants, beside what does not",
            &[3, 70],
            |g, x| {
                let c = g.constant("c", &[3, 70], &numbers(210))?;
                let all = g.concat(&[g.cumsum(g.cumsum(c, 0)?, 1)?, g.cumsum(x, 1)?], 0)?;
                Ok(vec![g.cumsum(all, 0)?])
            },
            &[RUN, COPY, RUN],
        ),
        (
            "no rows",
            &[0, 70],
            |g, x| {
                let all = g.concat(&[product(g, x, 70)?, g.cumsum(x, 1)?], 0)?;
                Ok(vec![g.cumsum(all, 0)?])
            },
            &[RUN; 4],
        ),
        (
            "a part without rows",
            &[3, 70],
            |g, x| {
                let none = g.cumsum(g.slice(g.cumsum(x, 0)?, &[1], &[1])?, 1)?;
                let all = g.concat(&[product(g, x, 70)?, none, g.cumsum(x, 1)?], 0)?;
                Ok(vec![g.cumsum(all, 0)?])
            },
            &[RUN; 5],
        ),
    ];
    let engine = Engine::builder().threads(2).build();
    let mut faults = Vec::new();
    for (what, dims, make, expected) in rows {
        let (steps, is_right) = checked(*make, dims, &engine)?;
        if steps != *expected || !is_right {
            faults.push(format!("{what}: {steps:?}, {is_right}"));
        }
    }
    report(&faults);
    Ok(())
}

#[test]
fn a_part_that_an_op_of_the_callers_reads_is_row_major() -> Result<()> {
    let g = GraphBuilder::new();
    let x = g.input("x", DataType::F32, &[Some(3), Some(70)])?;
    let y = g.cumsum(x, 1)?;
    let copied = g.custom(CustomNode::new("test::Copied"), &[y], &[(DataType::F32, None)])?[0];
    let all = g.concat(&[y, g.cumsum(copied, 0)?], 1)?;
    g.output("y", g.cumsum(all, 0)?)?;
    let session = Session::builder(g.build()?).op("test::Copied", Breaks::default()).build(&Engine::new())?;
    let x = numbers(210);
    let outputs = session.run(&[("x", &TensorView::new(&x, &[3, 70]))])?;
    let mut y = x.clone();
    (0..210).filter(|i| i % 70 > 0).for_each(|i| y[i] += y[i - 1]);
    let down = |of: &[f32], columns: usize| {
        let mut sums = of.to_vec();
        (columns..of.len()).for_each(|i| sums[i] += sums[i - columns]);
        sums
    };
    let other = down(&y, 70);
    let all: Vec<f32> = y.chunks(70).zip(other.chunks(70)).flat_map(|(a, b)| [a, b].concat()).collect();
    assert_eq!(outputs["y"].as_slice::<f32>()?, down(&all, 140));
    Ok(())
}

/// Adds the result of a random op to values of three dims.
fn grow<'g>(g: &'g GraphBuilder, values: &mut Vec<GraphValue<'g>>, random: &mut Random) -> Result<()> {
    let value = values[random.below(values.len())];
    let dims = dims_of(value);
    let axis = random.below(3) as i64;
    let made = match random.below(8) {
        0 | 1 => product(g, value, random.pick(&[3, 64, 70]))?,
        2 => g.cumsum(g.clamp(value, -3.0, 3.0)?, axis)?,
        3 => g.relu(value)?,
        4 => {
            let cut = |&dim: &i64| (random.below(2) as i64).min(dim);
            let starts: Vec<i64> = dims.iter().map(cut).collect();
            g.slice(value, &starts, &dims)?
        }
        5 => g.transpose(value, &random.pick(&[[1, 0, 2], [0, 2, 1]]))?,
        _ => {
            let fits = |other: &&GraphValue<'g>| {
                let others = dims_of(**other);
                (0..3).all(|at| at == axis as usize || others.get(at) == dims.get(at))
            };
            let others: Vec<GraphValue<'g>> = values.iter().filter(fits).copied().collect();
            let count = 1 + random.below(3);
            let parts: Vec<GraphValue<'g>> =
                (0..count).map(|_| others[random.below(others.len())]).chain([value]).collect();
            g.concat(&parts, axis)?
        }
    };
    if dims_of(made).iter().product::<i64>() <= 30_000 {
        values.push(made);
    }
    Ok(())
}

#[test]
fn random_graphs_with_concats_have_the_elements_of_their_ops() -> Result<()> {
    let engines = [Engine::builder().threads(1).build(), Engine::builder().threads(2).build()];
    let mut random = Random::new(0xc0ca7);
    let (mut faults, mut saved) = (Vec::new(), 0);
    for seed in 0..300usize {
        let dims = [random.pick(&[1, 2]), random.pick(&[0, 1, 2, 3, 4]), random.pick(&[3, 64, 70])];
        let g = GraphBuilder::new();
        let x = g.input("x", DataType::F32, &dims.map(Some))?;
        let mut values = vec![x];
        for _ in 0..4 + random.below(12) {
            grow(&g, &mut values, &mut random)?;
        }
        for (index, value) in values.iter().enumerate().skip(1) {
            if random.below(4) == 0 || index + 1 == values.len() {
                g.output(format!("y{index}"), *value)?;
            }
        }
        if values.len() == 1 {
            continue;
        }
        let model = g.build()?;
        let text = format!("{:?}", model.graph().ops());
        let x = numbers(dims.iter().product());
        let expected = one_by_one(&model, &x, &dims)?;
        let session = Session::new(model, &engines[seed % 2])?;
        for run in 0..2 {
            let outputs = session.run(&[("x", &TensorView::new(&x, &dims))])?;
            let all = outputs.iter().zip(&expected);
            for ((name, y), _) in all.filter(|((_, y), expected)| y.as_slice::<f32>().unwrap() != *expected) {
                faults.push(format!("{seed}, run {run}: {name} {:?}\n{text}", y.desc().dims()));
            }
        }
        let arena = session.arena_plan().unwrap();
        let of_concat = |kind: &ProfiledOp| kind.kind == OpKind::Concat;
        let alone = arena.steps.iter().filter(|step| step.ops.len() == 1 && step.ops.iter().all(of_concat));
        saved += usize::from(alone.count() == 0);
    }
    assert!(saved > 100, "{saved}");
    report(&faults[..faults.len().min(3)]);
    Ok(())
}

#[test]
fn parts_of_rows_that_a_state_gets_are_written_there() -> Result<()> {
    let g = GraphBuilder::new();
    let past = g.input("past", DataType::F32, &[None, Some(70)])?;
    let x = g.input("x", DataType::F32, &[None, Some(70)])?;
    let rows = g.concat(&[g.cumsum(x, 1)?, product(&g, x, 70)?], 0)?;
    let all = g.concat(&[past, rows], 0)?;
    g.output("present", all)?;
    g.output("y", g.cumsum(g.concat(&[g.cumsum(all, 1)?, g.cumsum(x, 0)?], 0)?, 0)?)?;
    let model = g.build()?;
    let link = StateLink::new("past", "present").capacity(64);
    let engine = Engine::builder().threads(1).build();
    let (plain, linked) =
        (Session::new(model.clone(), &engine)?, Session::builder(model).state(link).build(&engine)?);
    let mut state = linked.new_state(&[])?;
    let mut past: Vec<f32> = Vec::new();
    for rows in [2i64, 1, 0, 3, 1, 1] {
        let x = numbers(70 * rows);
        let (x, before) =
            (TensorView::new(&x, &[rows, 70]), TensorView::new(&past, &[past.len() as i64 / 70, 70]));
        let expected = plain.run(&[("past", &before), ("x", &x)])?;
        let (outputs, profile) = linked.run_with_state_profiled(&mut state, &[("x", &x)])?;
        assert_eq!(outputs["y"].as_slice::<f32>()?, expected["y"].as_slice::<f32>()?, "{rows}");
        assert_eq!(state.get("past")?.elements::<f32>()?, expected["present"].as_slice::<f32>()?);
        assert!(profile.spans.iter().all(|span| span.kind != SpanKind::Copy), "{rows}");
        past = expected["present"].as_slice::<f32>()?.to_vec();
    }
    Ok(())
}
