//! Recurrent networks, step by step, against formulas of the specification in f64.

use std::collections::BTreeMap;

use sterna::reference::Value;
use sterna::{Engine, OpKind, Partition, Policy, Session, TensorView};
use sterna_import::{Imported, ModelFile, Options, onnx};

use super::bytes::{Onnx, field, floats, int, node, node_of, number, tensor, text, value, varint};
use super::common::{as_floats, by_name, float, report};
use super::lengths::open;

/// An attribute that is a number.
fn real(name: &str, value: f32) -> Vec<u8> {
    [field(1, name.as_bytes()), varint(2 << 3 | 5), value.to_le_bytes().to_vec(), number(20, 1)].concat()
}

/// An attribute that is a list of numbers.
fn reals(name: &str, values: &[f32]) -> Vec<u8> {
    let numbers: Vec<u8> = values.iter().flat_map(|value| field(7, &value.to_le_bytes())).collect();
    [field(1, name.as_bytes()), numbers, number(20, 6)].concat()
}

/// An attribute that is a list of words.
fn words(name: &str, values: &[&str]) -> Vec<u8> {
    let words: Vec<u8> = values.iter().flat_map(|word| field(9, word.as_bytes())).collect();
    [field(1, name.as_bytes()), words, number(20, 8)].concat()
}

/// Numbers from −1 to 1.
fn numbers(count: i64, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(747_796_405).wrapping_add(1);
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

/// How the lengths of sequences are given.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Given {
    Not,
    Constant,
    Input,
}

/// A network, and what of it is there.
#[derive(Debug, Clone)]
struct Case {
    kind: &'static str,
    direction: &'static str,
    steps: i64,
    batch: i64,
    /// Bias, first states, and peepholes of an LSTM.
    has: [bool; 3],
    lengths: Given,
    clip: Option<f32>,
    /// `input_forget` of an LSTM, or `linear_before_reset` of a GRU.
    flag: bool,
    is_batch_first: bool,
    data_type: i64,
}

const WIDTH: i64 = 3;
const HIDDEN: i64 = 5;
const F32: i64 = 1;
const F16: i64 = 10;

impl Case {
    fn new(kind: &'static str) -> Self {
        Self {
            kind,
            direction: "forward",
            steps: 4,
            batch: 2,
            has: [true, true, false],
            lengths: Given::Not,
            clip: None,
            flag: false,
            is_batch_first: false,
            data_type: F32,
        }
    }

    fn gates(&self) -> i64 {
        [("LSTM", 4), ("GRU", 3), ("RNN", 1)].iter().find(|(kind, _)| *kind == self.kind).unwrap().1
    }

    fn directions(&self) -> i64 {
        if self.direction == "bidirectional" { 2 } else { 1 }
    }

    /// The length of a sequence: 1 for the first.
    fn length(&self, at: i64) -> i64 {
        if self.lengths == Given::Not { self.steps } else { (at * 2 + 1).min(self.steps) }
    }

    /// Name, dims and numbers of the inputs, in order.
    fn tensors(&self) -> Vec<(&'static str, Vec<i64>, Vec<f32>)> {
        let (rows, directions) = (self.gates() * HIDDEN, self.directions());
        let swapped = |a, b, c| if self.is_batch_first { vec![b, a, c] } else { vec![a, b, c] };
        let dims = [
            ("x", swapped(self.steps, self.batch, WIDTH)),
            ("w", vec![directions, rows, WIDTH]),
            ("r", vec![directions, rows, HIDDEN]),
            ("b", vec![directions, 2 * rows]),
            ("h", swapped(directions, self.batch, HIDDEN)),
            ("c", swapped(directions, self.batch, HIDDEN)),
            ("p", vec![directions, 3 * HIDDEN]),
        ];
        let numbered = (1..).zip(dims);
        numbered
            .map(|(seed, (name, dims))| {
                let scale = if self.clip.is_some() { 3.0 } else { 1.0 };
                let all = numbers(dims.iter().product(), seed);
                let all = all.iter().map(|x| half::f16::from_f32(x * scale).to_f32()).collect();
                (name, dims, all)
            })
            .collect()
    }

    fn tensor(&self, name: &str) -> Vec<f64> {
        let all = self.tensors();
        let (_, _, own) = all.iter().find(|(known, ..)| *known == name).unwrap();
        own.iter().map(|x| f64::from(*x)).collect()
    }

    fn attributes(&self) -> Vec<Vec<u8>> {
        let mut attributes = vec![int("hidden_size", HIDDEN), text("direction", self.direction)];
        attributes.extend(self.clip.map(|clip| real("clip", clip)));
        match self.kind {
            "LSTM" => attributes.push(int("input_forget", self.flag.into())),
            "GRU" => attributes.push(int("linear_before_reset", self.flag.into())),
            _ => {}
        }
        if self.is_batch_first {
            attributes.push(int("layout", 1));
        }
        attributes
    }

    fn model(&self) -> Onnx {
        let is_lstm = self.kind == "LSTM";
        let [bias, states, peepholes] = self.has;
        let there = [
            ("x", true),
            ("w", true),
            ("r", true),
            ("b", bias),
            ("lengths", self.lengths != Given::Not),
            ("h", states),
            ("c", states && is_lstm),
            ("p", peepholes && is_lstm),
        ];
        let inputs: Vec<&str> = there.map(|(name, is_there)| if is_there { name } else { "" }).to_vec();
        let outputs: &[&str] = if is_lstm { &["y", "y_h", "y_c"] } else { &["y", "y_h"] };
        let count = if is_lstm { 8 } else { 6 };
        let own = node(self.kind, &inputs[..count], outputs, &self.attributes());
        let mut model = Onnx { nodes: vec![own], ..Onnx::default() };
        model.outputs = outputs.iter().map(|name| field(1, name.as_bytes())).collect();
        for (name, dims, elements) in self.tensors() {
            let bytes: Vec<u8> = match self.data_type {
                F32 => elements.iter().flat_map(|x| x.to_le_bytes()).collect(),
                _ => elements.iter().flat_map(|x| half::f16::from_f32(*x).to_le_bytes()).collect(),
            };
            match name {
                "x" | "h" => model.inputs.push(value(name, self.data_type, &dims)),
                _ => model.constants.push(tensor(name, self.data_type, &dims, &bytes)),
            }
        }
        match self.lengths {
            Given::Input => model.inputs.push(value("lengths", 6, &[self.batch])),
            _ => {
                let lengths = (0..self.batch).flat_map(|at| (self.length(at) as i32).to_le_bytes());
                model.constants.push(tensor("lengths", 6, &[self.batch], &lengths.collect::<Vec<u8>>()));
            }
        }
        model
    }

    fn given(&self) -> Vec<(&'static str, Value)> {
        let mut given = Vec::new();
        for (name, dims, elements) in self.tensors() {
            let halves: Vec<half::f16> = elements.iter().map(|x| half::f16::from_f32(*x)).collect();
            let value = match self.data_type {
                F32 => float(&dims, &elements),
                _ => Value::from_slice(&dims, &halves).unwrap(),
            };
            if name == "x" || (name == "h" && self.has[1]) {
                given.push((name, value));
            }
        }
        if self.lengths == Given::Input {
            let lengths: Vec<i32> = (0..self.batch).map(|at| self.length(at) as i32).collect();
            given.push(("lengths", Value::from_slice(&[self.batch], &lengths).unwrap()));
        }
        given
    }

    /// `y`, `y_h` and `y_c` by the formulas.
    fn expected(&self) -> BTreeMap<String, Vec<f64>> {
        let (steps, batch, directions) = (self.steps, self.batch, self.directions());
        let states = (directions * batch * HIDDEN) as usize;
        let mut y = vec![0.0; steps as usize * states];
        let mut last = [vec![0.0; states], vec![0.0; states]];
        for direction in 0..directions {
            for at in 0..batch {
                let is_backward = self.direction == "reverse" || direction == 1;
                let place = match self.is_batch_first {
                    true => at * directions + direction,
                    false => direction * batch + at,
                } * HIDDEN;
                let first = |name: &str| match self.has[1] {
                    true => self.tensor(name)[place as usize..][..HIDDEN as usize].to_vec(),
                    false => vec![0.0; HIDDEN as usize],
                };
                let mut state = [first("h"), first("c")];
                for turn in 0..self.length(at) {
                    let step = if is_backward { self.length(at) - 1 - turn } else { turn };
                    state = self.step(direction, at, step, &state);
                    let to = match self.is_batch_first {
                        true => (at * steps + step) * directions + direction,
                        false => (step * directions + direction) * batch + at,
                    } * HIDDEN;
                    y[to as usize..][..HIDDEN as usize].copy_from_slice(&state[0]);
                }
                for (all, own) in last.iter_mut().zip(&state) {
                    all[place as usize..][..HIDDEN as usize].copy_from_slice(own);
                }
            }
        }
        let [y_h, y_c] = last;
        let mut all = BTreeMap::from([("y".into(), y), ("y_h".into(), y_h)]);
        if self.kind == "LSTM" {
            all.insert("y_c".into(), y_c);
        }
        all
    }

    fn step(&self, direction: i64, at: i64, step: i64, [h, c]: &[Vec<f64>; 2]) -> [Vec<f64>; 2] {
        let (hidden, rows) = (HIDDEN as usize, (self.gates() * HIDDEN) as usize);
        let from = if self.is_batch_first { at * self.steps + step } else { step * self.batch + at };
        let x = self.tensor("x")[(from * WIDTH) as usize..][..WIDTH as usize].to_vec();
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let of = |name: &str, row: usize, width: usize| -> Vec<f64> {
            self.tensor(name)[(direction as usize * rows + row) * width..][..width].to_vec()
        };
        let bias = |row: usize| match self.has[0] {
            true => self.tensor("b")[direction as usize * 2 * rows + row],
            false => 0.0,
        };
        let own = |row: usize| dot(&of("w", row, WIDTH as usize), &x) + bias(row);
        let product = |row: usize, h: &[f64]| dot(&of("r", row, hidden), h);
        let clipped = |x: f64| self.clip.map_or(x, |clip| x.clamp(-f64::from(clip), clip.into()));
        let sigmoid = |x: f64| 1.0 / (1.0 + (-clipped(x)).exp());
        let tanh = |x: f64| clipped(x).tanh();
        let all = |gate: usize| gate * hidden..(gate + 1) * hidden;
        let sum = |row: usize| own(row) + product(row, h) + bias(rows + row);
        match self.kind {
            "RNN" => [all(0).map(|row| tanh(sum(row))).collect(), c.clone()],
            "GRU" => {
                let gate = |gate| all(gate).map(|row| sigmoid(sum(row))).collect::<Vec<f64>>();
                let (update, reset) = (gate(0), gate(1));
                let part: Vec<f64> = h.iter().zip(&reset).map(|(h, reset)| h * reset).collect();
                let candidate = |at: usize| {
                    let row = 2 * hidden + at;
                    let of_state = match self.flag {
                        true => reset[at] * (product(row, h) + bias(rows + row)),
                        false => product(row, &part) + bias(rows + row),
                    };
                    tanh(own(row) + of_state)
                };
                let next = |at: usize| (1.0 - update[at]) * candidate(at) + update[at] * h[at];
                [(0..hidden).map(next).collect(), c.clone()]
            }
            _ => {
                let peephole = |gate: usize, at: usize| match self.has[2] {
                    true => self.tensor("p")[(direction as usize * 3 + gate) * hidden + at],
                    false => 0.0,
                };
                let mut next = [vec![0.0; hidden], vec![0.0; hidden]];
                for at in 0..hidden {
                    let gate = |gate: usize| sum(gate * hidden + at);
                    let input = sigmoid(gate(0) + peephole(0, at) * c[at]);
                    let forget = match self.flag {
                        true => 1.0 - input,
                        false => sigmoid(gate(2) + peephole(2, at) * c[at]),
                    };
                    let cell = forget * c[at] + input * tanh(gate(3));
                    let output = sigmoid(gate(1) + peephole(1, at) * cell);
                    (next[0][at], next[1][at]) = (output * cell.tanh(), cell);
                }
                next
            }
        }
    }

    fn read(&self) -> Imported {
        onnx::read(&self.model().bytes()).unwrap_or_else(|error| panic!("{self:?}: {error}"))
    }

    /// Says what of the results is wrong.
    fn differs(&self) -> Option<String> {
        let results = by_name(&self.read(), &self.given());
        let bound = if self.data_type == F32 { 1e-5 } else { 4e-3 };
        for (name, expected) in self.expected() {
            let got = as_floats(&results[&name]);
            let close = |(a, b): (&f32, &f64)| (f64::from(*a) - b).abs() <= bound;
            if got.len() != expected.len() || !got.iter().zip(&expected).all(close) {
                return Some(format!("{self:?}: {name} is {got:?}, not {expected:?}"));
            }
        }
        None
    }
}

/// Networks of each kind with and without each of what they may have.
fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for kind in ["LSTM", "GRU", "RNN"] {
        for flag in [false, true] {
            let own = || Case { flag, ..Case::new(kind) };
            for direction in ["forward", "reverse", "bidirectional"] {
                for lengths in [Given::Not, Given::Constant, Given::Input] {
                    let batch = if lengths == Given::Not { 2 } else { 3 };
                    cases.push(Case { direction, lengths, batch, ..own() });
                    let has = [true, false, false];
                    cases.push(Case { direction, lengths, batch, has, is_batch_first: true, ..own() });
                }
                cases.push(Case { direction, is_batch_first: true, ..own() });
                cases.push(Case { direction, data_type: F16, ..own() });
            }
            cases.extend([
                Case { has: [false, false, false], ..own() },
                Case { has: [true, true, true], ..own() },
                Case { has: [false, false, true], ..own() },
                Case { has: [true, true, true], clip: Some(0.4), direction: "bidirectional", ..own() },
                Case { steps: 1, batch: 1, ..own() },
                Case { steps: 0, direction: "bidirectional", ..own() },
                Case { steps: 0, has: [true, false, false], ..own() },
                Case { batch: 0, ..own() },
                Case { steps: 70, ..own() },
            ]);
        }
    }
    cases
}

#[test]
fn networks_are_what_the_formulas_say() {
    report(&cases().iter().filter_map(Case::differs).collect::<Vec<String>>());
}

#[test]
fn functions_take_their_numbers_in_order() {
    type Function = fn(f64) -> f64;
    let rows: [(&str, Function); 11] = [
        ("Relu", |x| x.max(0.0)),
        ("tanh", f64::tanh),
        ("Sigmoid", |x| 1.0 / (1.0 + (-x).exp())),
        ("Affine", |x| 0.25 * x + 0.5),
        ("LeakyRelu", |x| if x < 0.0 { 0.25 * x } else { x }),
        ("ThresholdedRelu", |x| if x > 0.25 { x } else { 0.0 }),
        ("ScaledTanh", |x| 0.25 * (0.5 * x).tanh()),
        ("HardSigmoid", |x| (0.25 * x + 0.5).clamp(0.0, 1.0)),
        ("Elu", |x| if x < 0.0 { 0.25 * x.exp_m1() } else { x }),
        ("Softsign", |x| x / (1.0 + x.abs())),
        ("SOFTPLUS", |x| x.exp().ln_1p()),
    ];
    let x = [-3.0f32, -0.5, 0.1, 0.3, 2.0];
    let mut wrong = Vec::new();
    for (name, function) in rows {
        // The second direction has its own numbers, if any are left.
        let of_two = words("activations", &["Elu", name]);
        let attributes = [
            text("direction", "bidirectional"),
            of_two,
            reals("activation_alpha", &[2.0, 0.25]),
            reals("activation_beta", &[0.5]),
        ];
        let mut model = Onnx::of(node("RNN", &["x", "w", "r"], &["y"], &attributes), &[1, 5, 1]);
        model.constants = vec![floats("w", &[2, 1, 1], &[1.0, 1.0]), floats("r", &[2, 1, 1], &[0.5, 0.5])];
        let imported = onnx::read(&model.bytes()).unwrap_or_else(|error| panic!("{name}: {error}"));
        let y = as_floats(&by_name(&imported, &[("x", float(&[1, 5, 1], &x))])["y"]);
        let elu = |x: f64| if x < 0.0 { 2.0 * x.exp_m1() } else { x };
        let both = x.iter().map(|x| elu((*x).into())).chain(x.iter().map(|x| function((*x).into())));
        let close = |(a, b): (&f32, f64)| (f64::from(*a) - b).abs() < 1e-6;
        if !y.iter().zip(both.clone()).all(close) {
            wrong.push(format!("{name}: {y:?}, not {:?}", both.collect::<Vec<f64>>()));
        }
    }
    report(&wrong);
}

/// Numbers as ONNX Runtime has them in 8 bits: by the extremes of all and 0.
fn in_eight_bits(x: &[f32]) -> Vec<f32> {
    let (low, high) = x.iter().fold((0.0f32, 0.0f32), |(low, high), x| (low.min(*x), high.max(*x)));
    let scale = if high == low { 1.0 } else { (high - low) / 255.0 };
    let zero = (-low / scale).clamp(0.0, 255.0).round_ties_even();
    let number = |x: &f32| ((x / scale).round_ties_even() + zero).clamp(0.0, 255.0) - zero;
    x.iter().map(|x| number(x) * scale).collect()
}

#[test]
fn quantised_cells_multiply_in_eight_bits() {
    const ROWS: usize = 4 * HIDDEN as usize;
    let (steps, batch, hidden, width) = (3, 2, HIDDEN as usize, WIDTH as usize);
    let bytes = |count, seed| -> Vec<i8> { numbers(count, seed).iter().map(|x| (x * 127.0) as i8).collect() };
    let of_bytes = |all: &[i8]| all.iter().map(|x| *x as u8).collect::<Vec<u8>>();
    let x = numbers(steps * batch * WIDTH, 1);
    let (w, r) = (bytes(WIDTH * ROWS as i64, 2), bytes(HIDDEN * ROWS as i64, 3));
    // One scale and zero point of all weights of the inputs, one for each column of those of the state.
    let scales: Vec<f32> = (0..ROWS).map(|at| 0.01 + at as f32 / 1024.0).collect();
    let zeros: Vec<i8> = (0..ROWS).map(|at| at as i8 % 3 - 1).collect();
    let inputs = ["x", "w", "r", "", "", "", "", "", "ws", "wz", "rs", "rz"];
    let own = node_of("com.microsoft", "DynamicQuantizeLSTM", &inputs, &["y"], &[]);
    let mut model = Onnx::of(own, &[steps, batch, WIDTH]);
    model.constants = vec![
        tensor("w", 3, &[1, WIDTH, ROWS as i64], &of_bytes(&w)),
        tensor("r", 3, &[1, HIDDEN, ROWS as i64], &of_bytes(&r)),
        floats("ws", &[1], &[0.02]),
        tensor("wz", 3, &[1], &[3]),
        floats("rs", &[1, ROWS as i64], &scales),
        tensor("rz", 3, &[1, ROWS as i64], &of_bytes(&zeros)),
    ];
    let mut expected = vec![0.0; (steps * batch) as usize * hidden];
    let of_inputs = in_eight_bits(&x);
    let sigmoid = |x: f32| 1.0 / (1.0 + (-x).exp());
    for at in 0..batch as usize {
        let (mut h, mut c) = (vec![0.0f32; hidden], vec![0.0f32; hidden]);
        for step in 0..steps as usize {
            let from = step * batch as usize + at;
            let state = in_eight_bits(&h);
            let sum = |column: usize| {
                let own =
                    |k: usize| of_inputs[from * width + k] * (f32::from(w[k * ROWS + column]) - 3.0) * 0.02;
                let weight = |k: usize| f32::from(r[k * ROWS + column]) - f32::from(zeros[column]);
                let of_state = |k: usize| state[k] * weight(k) * scales[column];
                (0..width).map(own).sum::<f32>() + (0..hidden).map(of_state).sum::<f32>()
            };
            for unit in 0..hidden {
                let gate = |gate: usize| sum(gate * hidden + unit);
                c[unit] = sigmoid(gate(2)) * c[unit] + sigmoid(gate(0)) * gate(3).tanh();
                expected[from * hidden + unit] = sigmoid(gate(1)) * c[unit].tanh();
            }
            h.copy_from_slice(&expected[from * hidden..][..hidden]);
        }
    }
    let y = as_floats(
        &by_name(
            &onnx::read(&model.bytes()).unwrap_or_else(|error| panic!("{error}")),
            &[("x", float(&[steps, batch, WIDTH], &x))],
        )["y"],
    );
    assert!(y.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-5), "{y:?}, not {expected:?}");

    let mut wrong = Vec::new();
    for (place, constant, needed) in [
        (0, tensor("w", 3, &[1, ROWS as i64, WIDTH], &of_bytes(&w)), "(`W`) is {1,20,3}; needed: {1,3,20}"),
        (0, floats("w", &[1, WIDTH, ROWS as i64], &[0.0; 60]), "(`W`) is f32; needed: s8, u8"),
        (2, floats("ws", &[2], &[0.02; 2]), "(`W_scale`) is {2}; needed: for each direction one number"),
        (2, tensor("ws", 3, &[1], &[1]), "(`W_scale`) is s8; needed: f32"),
        (3, tensor("wz", 2, &[1], &[1]), "port 9 (`W_zero_point`) is u8; needed: s8"),
    ] {
        let mut other =
            Onnx { constants: model.constants.clone(), nodes: model.nodes.clone(), ..Onnx::default() };
        other.constants[place] = constant;
        (other.inputs, other.outputs) = (model.inputs.clone(), model.outputs.clone());
        match onnx::read(&other.bytes()) {
            Err(error) if error.to_string().contains(needed) => {}
            Err(error) => wrong.push(format!("{error}, not {needed}")),
            Ok(_) => wrong.push(format!("read, although {needed}")),
        }
    }
    report(&wrong);
}

#[test]
fn what_contradicts_is_named() {
    let [x, w, r] = [("x", &[4i64, 2, 3][..]), ("w", &[1, 20, 3]), ("r", &[1, 20, 5])];
    let lengths = |numbers: &[i32]| {
        let bytes: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
        tensor("l", 6, &[numbers.len() as i64], &bytes)
    };
    let zeros =
        |name: &str, dims: &[i64]| floats(name, dims, &vec![0.0; dims.iter().product::<i64>() as usize]);
    let of = |dims: &[i64], weights: [&[i64]; 2], more: &[Vec<u8>], inputs: &[&str], attrs: &[Vec<u8>]| {
        let mut model = Onnx::of(node("LSTM", inputs, &["y"], attrs), dims);
        model.constants = [zeros("w", weights[0]), zeros("r", weights[1])].into();
        model.constants.extend_from_slice(more);
        onnx::read(&model.bytes()).map_or_else(|error| error.to_string(), |_| "read".into())
    };
    let all = &["x", "w", "r"][..];
    let plain = |attrs: &[Vec<u8>]| of(x.1, [w.1, r.1], &[], all, attrs);
    let with = |inputs: &[&str], more: Vec<u8>| of(x.1, [w.1, r.1], &[more], inputs, &[]);
    let rows = [
        (plain(&[]), "read"),
        (of(x.1, [&[1, 16, 3], r.1], &[], all, &[]), "input port 1 (`W`) is {1,16,3}; needed: {1,20,3}"),
        (of(x.1, [&[20, 3], r.1], &[], all, &[]), "input port 1 (`W`) is {20,3}; needed: {1,20,3}"),
        (of(x.1, [&[2, 20, 3], &[2, 20, 5]], &[], all, &[]), "is {2,20,3}; needed: {1,20,3}"),
        (of(x.1, [w.1, &[1, 20, 0]], &[], all, &[]), "(`R`) is {1,20,0}; needed: a size of the state of 1"),
        (of(x.1, [w.1, &[]], &[], all, &[]), "input port 2 (`R`) is {}; needed: a size of the state"),
        (of(&[4, 3], [w.1, r.1], &[], all, &[]), "input port 0 (`X`) is {4,3}; needed: three dims"),
        (of(&[-1, 2, 3], [w.1, r.1], &[], all, &[]), "the shape of input port 0 (`X`) is not known; needed"),
        (of(&[2049, 2, 3], [w.1, r.1], &[], all, &[]), "is {2049,2,3}; needed: at most 2048 steps, each of"),
        (of(&[2, 1 << 62, 0], [&[1, 20, 0], r.1], &[], all, &[]), "needed: as many rows as can be counted"),
        (plain(&[int("hidden_size", 4)]), "attribute `hidden_size`; needed: 5, the last dim of `R`"),
        (plain(&[text("direction", "up")]), "`direction`; needed: forward, reverse, bidirectional"),
        (plain(&[text("direction", "bidirectional")]), "(`W`) is {1,20,3}; needed: {2,20,3}"),
        (plain(&[real("clip", 0.0)]), "attribute `clip`; needed: a positive number"),
        (plain(&[words("activations", &["Tanh"])]), "`activations`; needed: 3 functions for each direction"),
        (plain(&[words("activations", &["Tanh", "Sin", "Tanh"])]), "`activations`; needed: Affine, Elu, "),
        (plain(&[words("activations", &["Affine"; 3])]), "`activation_alpha`; needed: a number for `Affine`"),
        (plain(&[int("linear_before_reset", 1)]), "attribute `linear_before_reset` is not known here"),
        (with(&["x", "w", "r", "b"], zeros("b", &[1, 20])), "(`B`) is {1,20}; needed: {1,40}"),
        (with(&["x", "w", "r", "", "l"], lengths(&[4])), "(`sequence_lens`) is {1}; needed: {2}"),
        (with(&["x", "w", "r", "", "l"], lengths(&[4, 5])), "needed: lengths from 0 to 4, the number of ste"),
        (with(&["x", "w", "r", "", "l"], lengths(&[-1, 2])), "port 4 (`sequence_lens`); needed: lengths fro"),
        (with(&["x", "w", "r", "", "f"], zeros("f", &[2])), "port 4 (`sequence_lens`) is f32; needed: s32"),
        (with(&["x", "w", "r", "", "", "h"], zeros("h", &[2, 5])), "(`initial_h`) is {2,5}; needed: {1,2,5}"),
        (
            with(&["x", "w", "r", "", "", "", "", "p"], zeros("p", &[1, 20])),
            "(`P`) is {1,20}; needed: {1,15}",
        ),
        (with(&["x", "w", "w"], zeros("p", &[1])), "port 1 (`W`) is {1,20,3}; needed: {1,12,3}"),
        (with(&["x", "w"], zeros("p", &[1])), "2 input ports; needed: 3 to 8"),
    ];
    let fits = |(found, expected): &&(String, &str)| !found.contains(expected);
    report(&rows.iter().filter(fits).map(|(found, e)| format!("{found}, not {e}")).collect::<Vec<_>>());
}

#[test]
fn steps_share_their_weights_and_are_fused() {
    let mut wrong = Vec::new();
    // Partitions of a step, beside those that take its part of a tensor.
    for (kind, most) in [("LSTM", 2), ("GRU", 4), ("RNN", 1)] {
        let case = Case { direction: "bidirectional", steps: 8, ..Case::new(kind) };
        let imported = case.read();
        let of_kind = |kind| imported.graph.ops().iter().filter(|op| op.kind() == kind).count();
        // Weights of input and state, and a bias, for each direction; those of a GRU's state are two.
        let constants = imported.weights.len();
        // The first state of a cell is a constant as well.
        let (expected, products) = match kind {
            "LSTM" => (8, 2 + 2 * 8),
            "GRU" => (8, 2 + 2 * 2 * 8),
            _ => (6, 2 + 2 * 8),
        };
        if constants != expected || of_kind(OpKind::MatMul) != products {
            wrong.push(format!("{kind}: {constants} constants, {} products", of_kind(OpKind::MatMul)));
        }
        let partitions = imported.graph.partitions(Policy::Fusion).unwrap();
        let is_view = |part: &&Partition| part.ops().iter().all(|op| op.kind() == OpKind::Slice);
        let is_end = |part: &&Partition| part.outputs().is_empty();
        let partitions: Vec<_> = partitions.iter().filter(|part| !is_view(part) && !is_end(part)).collect();
        if !partitions.iter().all(|part| part.is_supported()) || partitions.len() > 2 * 8 * most + 8 {
            wrong.push(format!("{kind}: {} partitions", partitions.len()));
        }
    }
    report(&wrong);
}

#[test]
fn a_session_settles_the_number_of_steps() {
    let case = |steps: i64| Case { steps, direction: "bidirectional", ..Case::new("LSTM") };
    let mut model = case(4).model();
    model.inputs = vec![open("x", &["steps", "batch", "3"]), open("h", &["2", "2", "5"])];
    let file = ModelFile::onnx(&model.bytes(), &Options::default()).unwrap();
    let session = Session::new(file, &Engine::new()).unwrap();
    for steps in [4, 1, 9, 4] {
        let case = case(steps);
        let tensors = case.tensors();
        let of = |name: &str| tensors.iter().find(|(known, ..)| *known == name).unwrap();
        let [(_, of_x, x), (_, of_h, h)] = [of("x"), of("h")];
        let (x, h) = (TensorView::new(x, of_x), TensorView::new(h, of_h));
        let results = session.run(&[("x", &x), ("h", &h)]);
        let results = results.unwrap_or_else(|error| panic!("{error}"));
        for (name, expected) in case.expected() {
            let got = results[&*name].as_slice::<f32>().unwrap();
            let close = |(a, b): (&f32, &f64)| (f64::from(*a) - b).abs() <= 1e-5;
            assert!(got.len() == expected.len() && got.iter().zip(&expected).all(close), "{steps} {name}");
        }
    }
}
