//! A network for one length after another, for which layers that are given the same are not mapped anew,
//! against that of a model that was read for this length alone.

use super::common::{Ir, report};
use sterna::{Engine, Session, TensorBuf, TensorView};
use sterna_import::{Error, Imported, ModelFile, Options};

/// Attention on a variable whose sequences places order anew, as `optimum` exports it, with what exporters
/// compute of lengths: positions, a mask, a shape, and one row that is laid beside all rows.
fn decoder() -> Ir {
    let mut ir = Ir::default();
    let (x, places) = (ir.parameter("x", "f32", "?,?,4"), ir.parameter("beam_idx", "i32", "?"));
    let number = |ir: &mut Ir, number: i64| ir.constant("i64", "", &number.to_le_bytes());
    let [zero, one, two] = [0, 1, 2].map(|it| number(&mut ir, it));
    let [none, four, rest] = [0, 4, -1].map(|it| ir.integers(&[it]));
    let (first, of_batch) = (ir.floats("", &[0.0]), ir.integers(&[0]));
    let of_x = ir.op("ShapeOf", "output_type=\"i64\"", &[x]);
    let batch = ir.op("Gather", "batch_dims=\"0\"", &[of_x, of_batch, zero]);
    let dims = ir.op("Concat", "axis=\"0\"", &[batch, none, four]);
    let start = ir.op("Broadcast", "mode=\"numpy\"", &[first, dims]);
    let id = "variable_id=\"past_key_values.0.keypresent.0.key\"";
    let variable = format!("{id} variable_type=\"f32\" variable_shape=\"?,?,4\"");
    let past = ir.op("ReadValue", &variable, &[start]);
    let ordered = ir.op("Gather", "batch_dims=\"0\"", &[past, places, zero]);
    let w = ir.floats("4,4", &[0.25, -0.5, 0.75, 1.0].repeat(4));
    let q = ir.op("MatMul", "transpose_a=\"false\" transpose_b=\"false\"", &[x, w]);
    let all = ir.op("Concat", "axis=\"1\"", &[ordered, q]);
    ir.op("Assign", id, &[all]);
    let shape = ir.op("ShapeOf", "output_type=\"i64\"", &[all]);
    let total = ir.op("Gather", "batch_dims=\"0\"", &[shape, one, zero]);
    let tokens = ir.op("Gather", "batch_dims=\"0\"", &[of_x, one, zero]);
    let rows = ir.op("Subtract", "", &[total, tokens]);
    let range = "output_type=\"i64\"";
    let (seen, own) =
        (ir.op("Range", range, &[zero, total, one]), ir.op("Range", range, &[rows, total, one]));
    let column = ir.op("Unsqueeze", "", &[own, one]);
    let is_seen = ir.op("LessEqual", "", &[seen, column]);
    let hidden = ir.floats("", &[f32::MIN]);
    let mask = ir.op("Select", "", &[is_seen, first, hidden]);
    let scores = ir.op("MatMul", "transpose_a=\"false\" transpose_b=\"true\"", &[q, all]);
    let scores = ir.op("Add", "", &[scores, mask]);
    let weights = ir.op("SoftMax", "axis=\"2\"", &[scores]);
    let y = ir.op("MatMul", "transpose_a=\"false\" transpose_b=\"false\"", &[weights, all]);
    let flat = ir.op("Concat", "axis=\"0\"", &[batch, rest]);
    let flat = ir.op("Reshape", "special_zero=\"false\"", &[y, flat]);
    let beside = ir.op("Broadcast", "mode=\"numpy\"", &[two, shape]);
    let beside = ir.op("Convert", "destination_type=\"f32\"", &[beside]);
    let beside = ir.op("Multiply", "", &[beside, all]);
    ir.result("y", y);
    ir.result("flat", flat);
    ir.result("beside", beside);
    ir
}

fn read(ir: &Ir) -> ModelFile {
    ModelFile::openvino(&ir.text(), ir.weights.clone(), &Options::default()).unwrap()
}

const PAST: &str = "past_key_values.0.key";

/// Sequences, rows of this run, and those before. Some are as long as other dims of the model, or were
/// before.
const LENGTHS: [[i64; 3]; 20] = [
    [1, 1, 1],
    [1, 1, 2],
    [1, 3, 3],
    [1, 1, 6],
    [1, 1, 7],
    [1, 1, 2],
    [1, 2, 0],
    [1, 1, 2],
    [1, 1, 3],
    [1, 1, 4],
    [2, 1, 4],
    [2, 1, 5],
    [2, 2, 0],
    [1, 4, 0],
    [1, 1, 0],
    [1, 1, 63],
    [1, 1, 64],
    [3, 1, 65],
    [4, 4, 4],
    [1, 1, 1],
];

fn at(model: &ModelFile, [batch, tokens, past]: [i64; 3]) -> Imported {
    model.at(&[("x", &[batch, tokens, 4]), ("beam_idx", &[batch]), (PAST, &[batch, past, 4])]).unwrap()
}

#[test]
fn a_network_behind_other_lengths_is_that_of_a_first_reading() {
    let ir = decoder();
    let (model, mut wrong) = (read(&ir), Vec::new());
    for lengths in LENGTHS {
        let (again, anew) = (at(&model, lengths), at(&read(&ir), lengths));
        let is_same = again.graph == anew.graph
            && (&again.inputs, &again.outputs) == (&anew.inputs, &anew.outputs)
            && (&again.weights, &again.weight_names) == (&anew.weights, &anew.weight_names);
        if !is_same {
            wrong.push(format!("{lengths:?}: {:?} and {:?}", again.graph, anew.graph));
        }
    }
    report(&wrong);
}

/// The bits of all outputs but the cache, and the cache.
fn bits<'a>(outputs: impl Iterator<Item = (&'a str, &'a TensorBuf)>) -> Vec<(String, Vec<u32>)> {
    let of = |(name, tensor): (&str, &TensorBuf)| {
        (name.to_owned(), tensor.as_slice::<f32>().unwrap().iter().map(|y| y.to_bits()).collect())
    };
    outputs.filter(|(name, _)| !name.starts_with("present")).map(of).collect()
}

/// The cache of one sequence is left where it is, that of several is copied in the order of the places: the
/// same as with caches that the caller keeps.
#[test]
fn a_variable_in_another_order_is_what_the_places_say() {
    let ir = decoder();
    let engine = Engine::builder().threads(1).build();
    let mut wrong = Vec::new();
    for (batch, places) in [(1, vec![0i32]), (1, vec![-1]), (2, vec![1, 0]), (3, vec![2, 2, 0])] {
        let kept = Session::builder(read(&ir).try_into().unwrap()).find_states().build(&engine).unwrap();
        let (mut state, mut rows, mut past) = (kept.new_state(&[]).unwrap(), Vec::new(), 0);
        for tokens in [4i64, 1, 1, 3, 1, 1, 1] {
            let x: Vec<f32> = (0..batch * tokens * 4).map(|i| ((i + past) % 7) as f32 / 4.0 - 0.75).collect();
            let x = TensorView::new(&x, &[batch, tokens, 4]);
            let own = Session::new(read(&ir), &engine).unwrap();
            let before = TensorView::new(&rows, &[batch, past, 4]);
            let expected = own.run(&[("x", &x), ("beam_idx", &places), (PAST, &before)]).unwrap();
            let found = kept.run_with_state(&mut state, &[("x", &x), ("beam_idx", &places)]).unwrap();
            if bits(found.iter()) != bits(expected.iter()) {
                wrong.push(format!("{batch} in the order {places:?}: {tokens} rows behind {past}"));
            }
            rows = expected["present.0.key"].as_slice::<f32>().unwrap().to_vec();
            past += tokens;
        }
        assert_eq!(state.len() as i64, past);
    }
    report(&wrong);
}

/// A place that is not there is refused, although the cache is not looked up.
#[test]
fn a_sequence_that_is_not_there_is_refused() {
    let model = read(&decoder()).try_into().unwrap();
    let session = Session::builder(model).find_states().build(&Engine::new()).unwrap();
    let mut state = session.new_state(&[]).unwrap();
    let x = [0.5f32; 4];
    let x = TensorView::new(&x, &[1, 1, 4]);
    let mut run = |place: i32| {
        let outcome = session.run_with_state(&mut state, &[("x", &x), ("beam_idx", &[place])]);
        outcome.map(|_| ())
    };
    for place in [1, 0, 1, -2, -1] {
        assert_eq!(run(place).is_ok(), matches!(place, 0 | -1), "{place}");
    }
    assert_eq!(state.len(), 2);
}

/// The dims of a variable that follow an input have one name with those of the input.
#[test]
fn dims_of_one_name_have_one_length() {
    let model = read(&decoder());
    let dims = |options: Options| -> Result<_, Error> {
        let imported = model.import(&options)?;
        Ok(["x", PAST].map(|name| imported.input(name).unwrap().tensor.partial_dims().unwrap()))
    };
    let of_batch = [vec![Some(2), None, Some(4)], vec![Some(2), None, Some(4)]];
    let partial = Options { partial: true, ..Options::default() };
    let named = |name: &str, length: i64| [(name.to_owned(), length)].into();
    assert_eq!(dims(Options { dims: named("x.0", 2), ..partial.clone() }).unwrap(), of_batch);
    let error = dims(Options { dims: named("heads", 2), ..partial.clone() }).unwrap_err();
    assert_eq!(error.to_string(), "no dim is named `heads`; there are `x.0`");
    assert!(dims(Options { dims: named("x.0", -2), ..partial.clone() }).is_err());
    let shapes = [("x".to_owned(), vec![2, 3, 4])].into();
    let of_shape = [vec![Some(2), Some(3), Some(4)], of_batch[1].clone()];
    assert_eq!(dims(Options { shapes, ..partial }).unwrap(), of_shape);
}
