//! Runs with a state: rows that earlier runs have left, against the same graph run on all of them.

use std::collections::BTreeMap;

use crate::common::{Random, report};
use crate::counting::allocations;
use sterna::reference::{self, Value};
use sterna::{
    AsDynView, DataType, Engine, Error, GraphBuilder, GraphValue, Model, OpKind, OpOptions, Result, Session,
    SessionFault, SessionState, StateLink, TensorView,
};

/// The outputs of a model as the reference interpreter has them, op by op.
fn interpreted(model: &Model, inputs: &BTreeMap<String, Value>) -> Result<BTreeMap<String, Value>> {
    let mut known: BTreeMap<usize, Value> = BTreeMap::new();
    for port in model.inputs() {
        known.insert(port.tensor.id().get(), inputs[port.name()].clone());
    }
    for tensor in model.graph().ops().iter().flat_map(|op| op.inputs().iter()) {
        let Some(data) = model.constants().get(&tensor.id()) else { continue };
        let value = Value::new(tensor.data_type(), tensor.dims().unwrap(), data.bytes().to_vec())?;
        known.insert(tensor.id().get(), value);
    }
    // The builder adds ops in an order in which they can run.
    for op in model.graph().ops().iter().filter(|op| op.kind() != OpKind::End) {
        let operands: Vec<Value> = op.inputs().iter().map(|input| known[&input.id().get()].clone()).collect();
        let results = reference::run(op, &operands)?;
        known.extend(op.outputs().iter().map(|output| output.id().get()).zip(results));
    }
    let of_port = |port: &sterna::ModelPort| (port.name().to_owned(), known[&port.tensor.id().get()].clone());
    Ok(model.outputs().iter().map(of_port).collect())
}

/// Rows of a value along an axis.
fn rows(value: &Value, axis: usize, range: std::ops::Range<usize>) -> Value {
    let (dims, elements) = (value.dims().to_vec(), value.elements::<f32>().unwrap());
    let inner: usize = dims[axis + 1..].iter().product::<i64>() as usize;
    let outer: usize = dims[..axis].iter().product::<i64>() as usize;
    let length = dims[axis] as usize;
    let mut kept = Vec::new();
    for block in 0..outer {
        let first = block * length * inner;
        kept.extend_from_slice(&elements[first + range.start * inner..first + range.end * inner]);
    }
    let mut kept_dims = dims;
    kept_dims[axis] = range.len() as i64;
    Value::from_slice(&kept_dims, &kept).unwrap()
}

/// A graph with links, and what its runs need.
struct Case {
    model: Model,
    dims: Vec<i64>,
    axis: usize,
    links: Vec<StateLink>,
    window: Option<usize>,
    text: String,
}

type Grow = for<'g> fn(&'g GraphBuilder, GraphValue<'g>, GraphValue<'g>, i64) -> Result<GraphValue<'g>>;

/// How a state becomes the next one: appended rows, and other ways, which take a copy.
const GROWTH: &[(&str, Grow)] = &[
    ("x", |g, past, x, axis| g.concat(&[past, x], axis)),
    ("relu", |g, past, x, axis| g.concat(&[past, g.relu(x)?], axis)),
    ("twice the same", |g, past, x, axis| g.concat(&[past, x, x], axis)),
    ("two results", |g, past, x, axis| g.concat(&[past, g.relu(x)?, (x * 2.0)?], axis)),
    ("a transpose", |g, past, x, axis| {
        let rank = x.dims().unwrap().len() as i64;
        let order: Vec<i64> = (0..rank).rev().collect();
        let turned = g.relu(g.transpose(x, &order)?)?;
        g.concat(&[past, g.transpose(turned, &order)?], axis)
    }),
    ("through a copy", |g, past, x, axis| {
        let all = g.concat(&[past, g.abs(x)?], axis)?;
        Ok(g.op(OpKind::Identity, &[all], OpOptions::new(), 1)?[0])
    }),
    ("a part of the past", |g, past, x, axis| {
        let all = g.concat(&[past, x], axis)?;
        g.concat(&[all, x], axis)
    }),
    ("in front", |g, past, x, axis| g.concat(&[g.relu(x)?, past], axis)),
    ("all changed", |g, past, x, axis| g.concat(&[(past + 1.0)?, x], axis)),
];

fn random_case(random: &mut Random) -> Result<Case> {
    let rank = 1 + random.below(4);
    let axis = random.below(rank);
    let dims: Vec<i64> = (0..rank).map(|_| 1 + random.below(3) as i64).collect();
    let g = GraphBuilder::new();
    let mut open: Vec<Option<i64>> = dims.iter().map(|&dim| Some(dim)).collect();
    open[axis] = None;
    let window = (random.below(3) == 0).then(|| 1 + random.below(4));
    let x = g.input("x", DataType::F32, &open)?;
    let (mut links, mut text) = (Vec::new(), format!("{dims:?} axis {axis} window {window:?}"));
    for state in 0..1 + random.below(2) {
        let (what, grow) = GROWTH[random.below(GROWTH.len())];
        text += &format!(", {what}");
        let past = g.input(format!("past.{state}"), DataType::F32, &open)?;
        let present = grow(&g, past, x, axis as i64)?;
        g.output(format!("present.{state}"), present)?;
        match random.below(4) {
            0 => g.output(format!("sum{state}"), g.reduce_sum(present, &[axis as i64])?)?,
            1 => g.output(format!("all{state}"), present)?,
            2 => g.output(format!("old{state}"), g.reduce_sum(past, &[axis as i64])?)?,
            _ => g.output(format!("more{state}"), g.relu((present - 1.0)?)?)?,
        };
        let link = StateLink::new(format!("past.{state}"), format!("present.{state}")).axis(axis as i64);
        links.push(match window {
            Some(window) => link.window(window),
            None if random.below(3) == 0 => link.capacity(64),
            None => link,
        });
    }
    Ok(Case { model: g.build()?, dims, axis, links, window, text })
}

/// Numbers that are exact in every sum.
fn counted(dims: &[i64], random: &mut Random) -> Value {
    let count = dims.iter().product::<i64>() as usize;
    let elements: Vec<f32> = (0..count).map(|_| random.below(17) as f32 - 8.0).collect();
    Value::from_slice(dims, &elements).unwrap()
}

fn view<'a>(elements: &'a [f32], value: &'a Value) -> TensorView<'a, f32> {
    TensorView::new(elements, value.dims())
}

/// Runs a case with a state and without; says what differs.
fn check(case: &Case, random: &mut Random, engine: &Engine) -> Result<(), String> {
    let said = |error: Error| error.to_string();
    let links = case.links.iter().cloned();
    let builder = links.fold(Session::builder(case.model.clone()), |builder, link| builder.state(link));
    let session = builder.build(engine).map_err(said)?;
    let mut empty = case.dims.clone();
    empty[case.axis] = 0;
    let nothing = Value::from_slice::<f32>(&empty, &[]).unwrap();
    let mut pasts = vec![nothing.clone(); case.links.len()];
    let mut state = session.new_state(&[]).map_err(said)?;
    for run in 0..7 {
        match random.below(8) {
            0 => {
                state.reset();
                pasts.fill(nothing.clone());
            }
            1 => {
                let kept = random.below(4);
                state.trim(kept);
                for past in &mut pasts {
                    *past = rows(past, case.axis, 0..kept.min(past.dims()[case.axis] as usize));
                }
            }
            2 => state = state.fork().map_err(said)?,
            _ => {}
        }
        let mut dims = case.dims.clone();
        dims[case.axis] = random.below(4) as i64;
        let x = counted(&dims, random);
        let mut inputs = BTreeMap::from([("x".to_owned(), x.clone())]);
        inputs.extend(pasts.iter().enumerate().map(|(index, past)| (format!("past.{index}"), past.clone())));
        let expected = interpreted(&case.model, &inputs).map_err(said)?;
        let elements = x.elements::<f32>().unwrap();
        let outputs = session.run_with_state(&mut state, &[("x", &view(&elements, &x))]).map_err(said)?;
        for (name, output) in outputs.iter() {
            let (given, expected) = (output.as_slice::<f32>().map_err(said)?, &expected[name]);
            if given != expected.elements::<f32>().unwrap() {
                return Err(format!("run {run}, {name}: {given:?}, not {expected:?}"));
            }
        }
        for (index, past) in pasts.iter_mut().enumerate() {
            let present = &expected[&format!("present.{index}")];
            let length = present.dims()[case.axis] as usize;
            let first = case.window.map_or(0, |window| length.saturating_sub(window));
            *past = rows(present, case.axis, first..length);
            let given = state_value(&state, &format!("past.{index}")).map_err(said)?;
            if given != (past.dims().to_vec(), past.elements::<f32>().unwrap()) {
                return Err(format!("run {run}, state {index}: {given:?}, not {past:?}"));
            }
        }
    }
    Ok(())
}

/// The dims and elements of a tensor of a state, by a session that copies it.
fn state_value(state: &SessionState, name: &str) -> Result<(Vec<i64>, Vec<f32>)> {
    let view = state.get(name)?;
    let g = GraphBuilder::new();
    let open = vec![None; view.dims().len()];
    let x = g.input("x", DataType::F32, &open)?;
    g.output("y", g.op(OpKind::Identity, &[x], OpOptions::new(), 1)?[0])?;
    let outputs = Session::new(g.build()?, Engine::shared())?.run(&[("x", &view)])?;
    Ok((view.dims().to_vec(), outputs["y"].as_slice::<f32>()?.to_vec()))
}

#[test]
fn states_hold_what_earlier_runs_left() {
    let engine = Engine::builder().threads(2).build();
    let mut random = Random::new(0x57a7e);
    let mut faults = Vec::new();
    for _ in 0..300 {
        let case = random_case(&mut random).unwrap();
        if let Err(fault) = check(&case, &mut random, &engine) {
            faults.push(format!("{}\n{fault}", case.text));
        }
    }
    report(&faults[..faults.len().min(3)]);
}

/// A cache of rows of 2, and their sum.
fn cache(link: StateLink) -> Result<Session> {
    let g = GraphBuilder::new();
    let past = g.input("past", DataType::F32, &[None, Some(2)])?;
    let x = g.input("x", DataType::F32, &[None, Some(2)])?;
    let all = g.concat(&[past, g.relu(x)?], 0)?;
    g.output("present", all)?;
    g.output("sum", g.reduce_sum(all, &[0])?)?;
    Session::builder(g.build()?).state(link).build(&Engine::builder().threads(1).build())
}

fn link() -> StateLink {
    StateLink::new("past", "present")
}

#[test]
fn rows_are_written_where_they_stay() -> Result<()> {
    let session = cache(link().capacity(8))?;
    let mut state = session.new_state(&[])?;
    session.run_with_state(&mut state, &[("x", &[[1.0f32, 2.0], [3.0, 4.0]])])?;
    let first = state.get("past")?.elements::<f32>()?.as_ptr();
    for row in 0..6 {
        session.run_with_state(&mut state, &[("x", &[[row as f32, 1.0]])])?;
        // The partition that computes a row writes it to its place: no step copies it.
        assert_eq!(session.run_steps(), (2, 0));
    }
    let rows = state.get("past")?.elements::<f32>()?;
    assert_eq!((rows.as_ptr(), rows.len(), state.capacity()), (first, 16, 8));
    assert_eq!(rows[..8], [1.0, 2.0, 3.0, 4.0, 0.0, 1.0, 1.0, 1.0]);
    Ok(())
}

#[test]
fn a_cache_that_is_full_refuses_and_stays() -> Result<()> {
    let session = cache(link().capacity(4))?;
    let mut state = session.new_state(&[])?;
    let three = [[1.0f32, 2.0], [3.0, 4.0], [5.0, 6.0]];
    session.run_with_state(&mut state, &[("x", &three)])?;
    let before = state_value(&state, "past")?;
    let fault = SessionFault::Capacity { name: "past".into(), capacity: 4, needed: 6 };
    let refused = session.run_with_state(&mut state, &[("x", &three)]).unwrap_err();
    assert_eq!(refused, Error::Session(fault));
    assert_eq!(refused.to_string(), "session: state `past` holds 4 rows, 6 are needed");
    assert!(state.set("past", &[[0.0f32; 2]; 5]).is_err());
    assert_eq!(state_value(&state, "past")?, before);
    let outputs = session.run_with_state(&mut state, &[("x", &[[1.0f32, 1.0]])])?;
    assert_eq!(outputs["sum"].as_slice::<f32>()?, [10.0, 13.0]);
    Ok(())
}

#[test]
fn a_window_runs_on_without_allocations() -> Result<()> {
    let session = cache(link().window(3))?;
    let mut state = session.new_state(&[])?;
    let (x, mut sum) = ([[1.0f32, 2.0]], [0.0f32; 2]);
    let mut run = |state: &mut SessionState| {
        session.run_with_state_into(state, &[("x", &x)], &mut [("sum", &mut sum)]).unwrap();
    };
    for _ in 0..12 {
        run(&mut state);
    }
    assert_eq!(allocations(&mut || (0..20).for_each(|_| run(&mut state))), 0);
    assert_eq!((sum, state.len(), state.capacity()), ([4.0, 8.0], 3, 6));
    Ok(())
}

#[test]
fn prefixes_are_set_and_shared() -> Result<()> {
    let session = cache(link())?;
    let mut state = session.new_state(&[("past", &[100, 2])])?;
    assert_eq!((state.capacity(), state.is_empty()), (100, true));
    // The columns of a matrix that lies the other way.
    let columns = [1.0f32, 2.0, 3.0, 10.0, 20.0, 30.0];
    state.set("past", &TensorView::with_strides(&columns, &[3, 2], &[1, 3]))?;
    let mut others: Vec<SessionState> = (0..3).map(|_| state.fork()).collect::<Result<_>>()?;
    for (index, other) in others.iter_mut().enumerate() {
        other.trim(index + 1);
        let outputs = session.run_with_state(other, &[("x", &[[0.5f32, 0.5]])])?;
        let sum: f32 = (1..index + 2).map(|row| row as f32).sum();
        assert_eq!(outputs["sum"].as_slice::<f32>()?, [sum + 0.5, 10.0 * sum + 0.5]);
    }
    assert_eq!(state_value(&state, "past")?.1, [1.0, 10.0, 2.0, 20.0, 3.0, 30.0]);
    state.reset();
    assert!(state.is_empty() && state.capacity() == 100);
    Ok(())
}

#[test]
fn links_and_states_that_do_not_fit_are_refused() {
    let model = || {
        let g = GraphBuilder::new();
        let past = g.input("past", DataType::F32, &[None, Some(2)]).unwrap();
        let x = g.input("x", DataType::F32, &[None, Some(2)]).unwrap();
        g.output("present", g.concat(&[past, x], 0).unwrap()).unwrap();
        g.output("less", g.less(x, x).unwrap()).unwrap();
        let fixed = g.input("fixed", DataType::F32, &[Some(2)]).unwrap();
        g.output("fixed_out", g.relu(fixed).unwrap()).unwrap();
        g.build().unwrap()
    };
    let rows: &[(&str, &[StateLink], &str)] = &[
        (
            "an unknown input",
            &[StateLink::new("pas", "present")],
            "no input is called `pas`; there are `past`, `x`, `fixed`; did you mean `past`?",
        ),
        (
            "an unknown output",
            &[StateLink::new("past", "presents")],
            "no output is called `presents`; there are `present`, `less`, `fixed_out`; did you mean `present`?",
        ),
        ("types", &[StateLink::new("past", "less")], "state `past` from `less`: the types differ"),
        ("an axis", &[link().axis(2)], "state `past` from `present`: the axis is out of range"),
        ("an axis from the end", &[link().axis(-3)], "state `past` from `present`: the axis is out of range"),
        ("an empty window", &[link().window(0)], "state `past` from `present`: the window is empty"),
        ("two links", &[link(), link()], "state `past` from `present`: a port has two links"),
        (
            "a capacity of what does not grow",
            &[StateLink::new("fixed", "fixed_out").capacity(3)],
            "state `fixed` from `fixed_out`: it has a capacity or a window and no axis along which it grows",
        ),
    ];
    let mut faults = Vec::new();
    for (what, links, text) in rows {
        let builder =
            links.iter().cloned().fold(Session::builder(model()), |builder, link| builder.state(link));
        match builder.build(&Engine::new()) {
            Ok(_) => faults.push(format!("{what}: it is a session")),
            Err(error) if error.to_string() != format!("session: {text}") => {
                faults.push(format!("{what}: {error}"));
            }
            Err(_) => {}
        }
    }
    report(&faults);

    let (one, other) = (cache(link()).unwrap(), cache(link()).unwrap());
    let mut state = other.new_state(&[]).unwrap();
    let foreign = one.run_with_state(&mut state, &[("x", &[[1.0f32, 1.0]])]).unwrap_err();
    assert_eq!(foreign, Error::Session(SessionFault::ForeignState));
    assert!(Session::new(model(), &Engine::new()).unwrap().new_state(&[]).is_err());
    assert!(matches!(one.new_state(&[("past", &[0, 3])]), Err(Error::Session(SessionFault::Dims { .. }))));
    assert!(one.run_with_state(&mut state, &[]).is_err());
    // A session with links runs without a state too.
    let rows = [[1.0f32, 1.0]];
    assert_eq!(
        one.run(&[("past", &rows), ("x", &rows)]).unwrap()["sum"].as_slice::<f32>().unwrap(),
        [2.0; 2]
    );
}

#[test]
fn open_dims_follow_from_the_first_run() -> Result<()> {
    let g = GraphBuilder::new();
    let past = g.input("past", DataType::F32, &[None, None, Some(2)])?;
    let x = g.input("x", DataType::F32, &[None, None, Some(2)])?;
    let all = g.concat(&[past, (x + 1.0)?], 1)?;
    g.output("present", all)?;
    g.output("sum", g.reduce_sum(all, &[1])?)?;
    let session = Session::builder(g.build()?).state(link()).build(&Engine::new())?;
    let mut state = session.new_state(&[])?;
    assert!(matches!(state.get("past"), Err(Error::Session(SessionFault::OpenState { axis: 0, .. }))));
    let ones = vec![1.0f32; 12];
    let run = |state: &mut SessionState, dims: &[i64]| {
        session.run_with_state(state, &[("x", &TensorView::new(&ones, dims) as &dyn AsDynView)])
    };
    assert_eq!(run(&mut state, &[3, 2, 2])?["sum"].as_slice::<f32>()?, [4.0; 6]);
    assert_eq!(run(&mut state, &[3, 1, 2])?["sum"].as_slice::<f32>()?, [6.0; 6]);
    // Another batch does not fit what is there.
    assert!(run(&mut state, &[2, 1, 2]).is_err());
    assert_eq!(run(&mut state, &[3, 1, 2])?["sum"].as_slice::<f32>()?, [8.0; 6]);
    Ok(())
}

#[test]
fn a_fixed_state_keeps_its_dims_whichever_the_model_leaves_open() -> Result<()> {
    let g = GraphBuilder::new();
    let h = g.input("h", DataType::F32, &[Some(1), None, Some(2)])?;
    let x = g.input("x", DataType::F32, &[Some(1), None, Some(2)])?;
    let next = g.add(h, x)?;
    g.output("hn", next)?;
    g.output("y", (next * 2.0)?)?;
    let model = g.build()?;
    let engine = Engine::builder().threads(1).build();
    // Without it, the batch is where the state grows, and it starts without rows.
    let grown = Session::builder(model.clone()).state(StateLink::new("h", "hn")).build(&engine)?;
    let mut state = grown.new_state(&[("h", &[1, 3, 2])])?;
    let x = [1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0];
    let x = TensorView::new(&x, &[1, 3, 2]);
    assert!(grown.run_with_state(&mut state, &[("x", &x)]).is_err());

    let session = Session::builder(model.clone()).find_states().build(&engine)?;
    let mut state = session.new_state(&[("h", &[1, 3, 2])])?;
    for factor in [2.0, 4.0] {
        let outputs = session.run_with_state(&mut state, &[("x", &x)])?;
        assert_eq!(outputs["y"].as_slice::<f32>()?, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0].map(|x| factor * x));
    }
    let mut other = state.fork()?;
    state.reset();
    assert_eq!(session.run_with_state(&mut state, &[("x", &x)])?["y"].as_slice::<f32>()?[0], 2.0);
    assert_eq!(session.run_with_state(&mut other, &[("x", &x)])?["y"].as_slice::<f32>()?[0], 6.0);
    assert_eq!((state.get("h")?.dims(), state.len()), (&[1, 3, 2][..], 0));
    // Its dims follow from no run, since nothing is added to it.
    let mut open = session.new_state(&[])?;
    let refused = open.get("h").map(|_| ()).unwrap_err();
    assert!(matches!(refused, Error::Session(SessionFault::OpenState { axis: 1, .. })), "{refused}");
    let refused = session.run_with_state(&mut open, &[("x", &x)]).map(|_| ()).unwrap_err();
    assert_eq!(refused.to_string(), "session: dim 1 of state `h` is open; `new_state` takes its dims");
    let rows = StateLink::new("h", "hn").fixed().window(2);
    assert!(Session::builder(model).state(rows).build(&engine).is_err());
    Ok(())
}

#[test]
fn names_of_exporters_tell_the_links() -> Result<()> {
    let rows: &[(&str, Option<&str>)] = &[
        ("past_key_values.0.key", Some("present.0.key")),
        ("past_key_values.1.decoder.value", Some("present_key_values.1.decoder.value")),
        ("past_key_values_2_key", Some("present_key_values_2_key")),
        ("past.3", Some("present.3")),
        ("past_4", Some("present_4")),
        ("past_key_self_5", Some("present_key_self_5")),
        ("past_value_cross_6", Some("present_value_cross_6")),
        ("cache_k", Some("updated_cache_k")),
        ("past_alone", None),
        ("input_ids", None),
        ("h_in", Some("h_out")),
        ("state", Some("stateN")),
        ("c0", Some("cn")),
    ];
    let g = GraphBuilder::new();
    for (past, present) in rows {
        let x = g.input(*past, DataType::F32, &[None])?;
        let next = g.relu(x)?;
        g.output(present.map_or_else(|| format!("of {past}"), str::to_owned), next)?;
    }
    let named = rows.iter().filter_map(|(past, present)| Some(StateLink::new(*past, (*present)?)));
    let is_recurrent = |link: &StateLink| ["h_in", "state", "c0"].contains(&link.past());
    let expected: Vec<StateLink> =
        named.map(|link| if is_recurrent(&link) { link.fixed() } else { link }).collect();
    assert_eq!(StateLink::find(&g.build()?), expected);
    Ok(())
}
