//! Promise: attention and rotary embeddings of ONNX Runtime give what ONNX Runtime gives; what is not mapped
//! of them is refused by the name of the input or attribute.

use sterna::reference::Value;
use sterna::{OpKind, Policy};
use sterna_import::onnx;

use super::bytes::{Onnx, field, floats, int, ints, node_of, tensor, value};
use super::common::{as_floats, by_name, float, report};
use super::contributed::real;

use Given::{Eight, Later, Nothing, One, Open, Steps, Whole};
use Number::{Int, Ints, Real};

/// The tensor at an input of a node.
#[derive(Debug, Clone, Copy)]
pub(super) enum Given<'a> {
    Nothing,
    /// An input of the model of these dims, whose numbers go up and down.
    Steps(&'a [i64]),
    /// A constant of whole numbers: 6 s32, 7 s64.
    Whole(i64, &'a [i64], &'a [i64]),
    /// A constant of bytes, which are 2 u8 or 3 s8.
    Eight(i64, &'a [i64]),
    /// A constant that is one number.
    One(f32),
    /// An input of the model of whole numbers.
    Open(i64, &'a [i64]),
    /// The same, with the numbers that a run gives it.
    Later(i64, &'a [i64], &'a [i64]),
}

/// The numbers of an input by its place.
fn steps(place: usize, dims: &[i64]) -> Value {
    let count = dims.iter().product::<i64>() as usize;
    let numbers: Vec<f32> =
        (0..count).map(|i| ((i * 7 + place * 5 + i / 11) % 13) as f32 * 0.25 - 1.5).collect();
    float(dims, &numbers)
}

fn model(kind: &str, inputs: &[Given<'_>], attributes: &[Vec<u8>], outputs: usize) -> Onnx {
    let names: Vec<String> = (0..inputs.len()).map(|place| format!("i{place}")).collect();
    let name = |(place, given): (usize, &Given<'_>)| match given {
        Nothing => String::new(),
        _ => names[place].clone(),
    };
    let ports: Vec<String> = inputs.iter().enumerate().map(name).collect();
    let ports: Vec<&str> = ports.iter().map(String::as_str).collect();
    let results = &["y", "k", "v"][..outputs];
    let mut model = Onnx {
        nodes: vec![node_of("com.microsoft", kind, &ports, results, attributes)],
        outputs: results.iter().map(|name| field(1, name.as_bytes())).collect(),
        ..Onnx::default()
    };
    for (place, (name, given)) in names.iter().zip(inputs).enumerate() {
        match *given {
            Nothing => {}
            Steps(dims) => model.inputs.push(value(name, 1, dims)),
            Open(data_type, dims) | Later(data_type, dims, _) => {
                model.inputs.push(value(name, data_type, dims));
            }
            Eight(data_type, dims) => {
                let count = dims.iter().product::<i64>() as usize;
                let raw: Vec<u8> = (0..count).map(|i| ((i * 37 + place * 11) % 251) as u8).collect();
                model.constants.push(tensor(name, data_type, dims, &raw));
            }
            One(number) => model.constants.push(floats(name, &[], &[number])),
            Whole(data_type, dims, numbers) => {
                let bytes = |number: &i64| match data_type {
                    6 => (*number as i32).to_le_bytes().to_vec(),
                    _ => number.to_le_bytes().to_vec(),
                };
                let raw: Vec<u8> = numbers.iter().flat_map(bytes).collect();
                model.constants.push(tensor(name, data_type, dims, &raw));
            }
        }
    }
    model
}

/// The dims of an output of ONNX Runtime; its first four numbers, its last four, and the sum of all, the
/// second of five twice, and so on.
pub(super) type Expected<'a> = (&'a [i64], [f32; 9]);

pub(super) struct Row<'a> {
    pub(super) name: &'a str,
    kind: &'a str,
    inputs: &'a [Given<'a>],
    attributes: &'a [(&'a str, Number<'a>)],
    expected: &'a [Expected<'a>],
}

/// The value of an attribute.
#[derive(Debug, Clone, Copy)]
pub(super) enum Number<'a> {
    Int(i64),
    Ints(&'a [i64]),
    Real(f32),
}

pub(super) const fn row<'a>(
    name: &'a str,
    kind: &'a str,
    inputs: &'a [Given<'a>],
    attributes: &'a [(&'a str, Number<'a>)],
    expected: &'a [Expected<'a>],
) -> Row<'a> {
    Row { name, kind, inputs, attributes, expected }
}

impl Row<'_> {
    fn attributes(&self) -> Vec<Vec<u8>> {
        let attribute = |(name, number): &(&str, Number<'_>)| match *number {
            Int(number) => int(name, number),
            Ints(numbers) => ints(name, numbers),
            Real(number) => real(name, number),
        };
        self.attributes.iter().map(attribute).collect()
    }

    pub(super) fn fault(&self) -> Option<String> {
        let model = model(self.kind, self.inputs, &self.attributes(), self.expected.len());
        let imported = match onnx::read(&model.bytes()) {
            Ok(imported) => imported,
            Err(error) => return Some(error.to_string()),
        };
        let names: Vec<String> = (0..self.inputs.len()).map(|place| format!("i{place}")).collect();
        let given = self.inputs.iter().enumerate().filter_map(|(place, given)| match given {
            Steps(dims) => Some((&*names[place], steps(place, dims))),
            Later(6, dims, numbers) => {
                let numbers: Vec<i32> = numbers.iter().map(|&number| number as i32).collect();
                Some((&*names[place], Value::from_slice(dims, &numbers).unwrap()))
            }
            Later(_, dims, numbers) => Some((&*names[place], Value::from_slice(dims, numbers).unwrap())),
            _ => None,
        });
        let results = by_name(&imported, &given.collect::<Vec<_>>());
        for (name, (dims, expected)) in ["y", "k", "v"].iter().zip(self.expected) {
            let (own, numbers) = (results[*name].dims(), as_floats(&results[*name]));
            let sum: f64 = numbers.iter().enumerate().map(|(i, x)| f64::from(*x) * (i % 5 + 1) as f64).sum();
            let found = [&numbers[..4], &numbers[numbers.len() - 4..], &[sum as f32]].concat();
            let near = |(a, b): (&f32, &f32)| (a - b).abs() <= 3e-5 * b.abs().max(1.0);
            if own != *dims || !found.iter().zip(expected).all(near) {
                return Some(format!("{name} is {own:?} {found:?}, not {dims:?} {expected:?}"));
            }
        }
        None
    }
}

const MULTI_HEAD: &str = "MultiHeadAttention";
pub(super) const GROUPED: &str = "GroupQueryAttention";
const ROTARY: &str = "RotaryEmbedding";

/// Nodes, and the results of ONNX Runtime 1.32.
const ROWS: &[Row<'_>] = &[
    row(
        "plain",
        MULTI_HEAD,
        &[Steps(&[2, 2, 4]), Steps(&[2, 3, 4]), Steps(&[2, 3, 4])],
        &[("num_heads", Int(2))],
        &[
            (
                &[2, 2, 4],
                [0.785241, -0.240641, -0.225492, 0.242568, -0.215918, 0.22682, 0.242781, 0.0528661, 2.83687],
            ),
            (&[2, 2, 3, 2], [-0.25, 1.5, 0.25, -1.25, -1.0, 0.75, -0.25, 1.5, -4.25]),
            (&[2, 2, 3, 2], [1.0, -0.5, 1.5, 0.0, 0.25, -1.25, 1.0, -0.5, 2.0]),
        ],
    ),
    row(
        "values of another width",
        MULTI_HEAD,
        &[Steps(&[2, 2, 4]), Steps(&[2, 3, 4]), Steps(&[2, 3, 6])],
        &[("num_heads", Int(2)), ("scale", Real(0.3))],
        &[(
            &[2, 2, 6],
            [-0.111434, 0.153404, 0.138566, 0.529027, 0.41294, -0.0620185, -0.292418, 0.278667, 7.29099],
        )],
    ),
    row(
        "biases and a mask",
        MULTI_HEAD,
        &[
            Steps(&[2, 2, 4]),
            Steps(&[2, 3, 4]),
            Steps(&[2, 3, 4]),
            Steps(&[12]),
            Whole(6, &[2, 3], &[1, 0, 1, 1, 1, 0]),
            Steps(&[1, 2, 2, 3]),
        ],
        &[("num_heads", Int(2))],
        &[(
            &[2, 2, 4],
            [0.996111, -1.99827, 0.284291, -0.574606, -0.277188, -1.47547, 0.0848054, 0.0335704, -25.9404],
        )],
    ),
    row(
        "lengths",
        MULTI_HEAD,
        &[Steps(&[2, 2, 4]), Steps(&[2, 3, 4]), Steps(&[2, 3, 4]), Nothing, Whole(6, &[2], &[2, 1])],
        &[("num_heads", Int(2))],
        &[(&[2, 2, 4], [1.13286, -0.367142, 0.0562402, -0.0329528, -0.5, 1.25, -0.25, 1.5, 15.7684])],
    ),
    row(
        "lengths and their sums",
        MULTI_HEAD,
        &[
            Steps(&[2, 2, 4]),
            Steps(&[2, 3, 4]),
            Steps(&[2, 3, 4]),
            Nothing,
            Whole(6, &[8], &[2, 1, 0, 2, 4, 0, 2, 3]),
        ],
        &[("num_heads", Int(2))],
        &[(&[2, 2, 4], [1.13286, -0.367142, 0.0562402, -0.0329528, -0.5, 1.25, -0.25, 1.5, 15.7684])],
    ),
    row(
        "a weak mask",
        MULTI_HEAD,
        &[
            Steps(&[2, 2, 4]),
            Steps(&[2, 3, 4]),
            Steps(&[2, 3, 4]),
            Nothing,
            Whole(6, &[2, 3], &[1, 0, -1, 0, 0, 0]),
        ],
        &[("num_heads", Int(2)), ("mask_filter_value", Real(-1.5))],
        &[(
            &[2, 2, 4],
            [0.932542, -0.418533, 0.646469, -0.0485212, -0.215918, 0.22682, 0.242781, 0.0528661, 5.42589],
        )],
    ),
    row(
        "a mask for each query",
        MULTI_HEAD,
        &[
            Steps(&[2, 2, 4]),
            Steps(&[2, 3, 4]),
            Steps(&[2, 3, 4]),
            Nothing,
            Whole(6, &[2, 2, 3], &[1, 0, 1, 0, 1, 1, 1, 1, 0, 0, 0, 1]),
            Steps(&[2, 1, 2, 3]),
        ],
        &[("num_heads", Int(2))],
        &[(&[2, 2, 4], [0.974241, -0.488552, 1.18023, -0.211237, 0.5, -1.0, 1.0, -0.5, -6.3795])],
    ),
    row(
        "one direction",
        MULTI_HEAD,
        &[Steps(&[2, 3, 4]), Steps(&[2, 3, 4]), Steps(&[2, 3, 4])],
        &[("num_heads", Int(2)), ("unidirectional", Int(1))],
        &[(&[2, 3, 4], [1.0, -0.5, 1.25, -0.25, -0.370352, 0.8488, 0.122569, 0.268933, 17.3142])],
    ),
    row(
        "one direction behind a cache",
        MULTI_HEAD,
        &[
            Steps(&[2, 2, 4]),
            Steps(&[2, 2, 4]),
            Steps(&[2, 2, 4]),
            Steps(&[12]),
            Whole(6, &[2, 5], &[1, 1, 0, 1, 1, 0, 1, 1, 1, 1]),
            Nothing,
            Steps(&[2, 2, 3, 2]),
            Steps(&[2, 2, 3, 2]),
        ],
        &[("num_heads", Int(2)), ("unidirectional", Int(1))],
        &[
            (
                &[2, 2, 4],
                [0.960067, -1.61654, 1.21249, -0.975382, -0.512086, 0.77344, 0.101848, -0.36023, 1.67917],
            ),
            (&[2, 2, 5, 2], [-0.5, 1.25, -0.25, 1.5, 0.75, 1.25, -1.75, 1.75, 28.75]),
            (&[2, 2, 5, 2], [0.75, -0.75, 1.0, -0.5, -0.75, 0.0, 0.0, 0.5, -23.25]),
        ],
    ),
    row(
        "groups",
        GROUPED,
        &[
            Steps(&[2, 3, 32]),
            Steps(&[2, 3, 16]),
            Steps(&[2, 3, 16]),
            Nothing,
            Nothing,
            Whole(6, &[2], &[2, 2]),
            Whole(6, &[1], &[3]),
        ],
        &[("num_heads", Int(4)), ("kv_num_heads", Int(2))],
        &[
            (&[2, 3, 32], [1.0, -0.5, 1.25, -0.25, 1.23072, 0.0549003, -1.36337, 0.3049, 35.8038]),
            (&[2, 2, 3, 8], [-0.25, 1.5, 0.0, -1.5, 0.25, -1.25, 0.5, -1.0, -9.25]),
            (&[2, 2, 3, 8], [1.0, -0.5, 1.25, -0.25, 1.5, 0.0, -1.5, 0.25, -6.0]),
        ],
    ),
    row(
        "a window of two keys, capped",
        GROUPED,
        &[
            Steps(&[2, 3, 32]),
            Steps(&[2, 3, 16]),
            Steps(&[2, 3, 16]),
            Nothing,
            Nothing,
            Whole(6, &[2], &[2, 2]),
            Whole(6, &[1], &[3]),
            Nothing,
            Nothing,
            Nothing,
            Steps(&[2, 4, 3, 3]),
        ],
        &[
            ("num_heads", Int(4)),
            ("kv_num_heads", Int(2)),
            ("local_window_size", Int(2)),
            ("softcap", Real(1.5)),
            ("scale", Real(0.4)),
        ],
        &[(&[2, 3, 32], [1.0, -0.5, 1.25, -0.25, 1.36816, 0.0527353, -1.44726, 0.302735, 16.356])],
    ),
    row(
        "both directions",
        GROUPED,
        &[
            Steps(&[2, 3, 32]),
            Steps(&[2, 3, 16]),
            Steps(&[2, 3, 16]),
            Nothing,
            Nothing,
            Whole(6, &[2], &[2, 2]),
            Whole(6, &[1], &[3]),
        ],
        &[("num_heads", Int(4)), ("kv_num_heads", Int(2)), ("causal", Int(0))],
        &[(
            &[2, 3, 32],
            [-0.0395607, -1.28719, 0.228466, -1.03719, 1.23072, 0.0549003, -1.36337, 0.3049, 18.4973],
        )],
    ),
    row(
        "queries, keys and values in one",
        GROUPED,
        &[
            Steps(&[2, 3, 64]),
            Nothing,
            Nothing,
            Nothing,
            Nothing,
            Whole(6, &[2], &[2, 2]),
            Whole(6, &[], &[3]),
        ],
        &[("num_heads", Int(4)), ("kv_num_heads", Int(2))],
        &[
            (&[2, 3, 32], [-1.0, 0.75, -0.75, 1.0, -0.413348, -0.0680987, -0.0462853, -1.04842, -97.5152]),
            (&[2, 2, 3, 8], [-0.25, -1.5, 0.25, -1.25, 0.25, -1.25, 0.5, -1.0, -16.75]),
            (&[2, 2, 3, 8], [-1.0, 0.75, -0.75, 1.0, -0.75, 1.0, -0.5, 1.25, -37.75]),
        ],
    ),
    row(
        "behind a cache",
        GROUPED,
        &[
            Steps(&[2, 1, 32]),
            Steps(&[2, 1, 16]),
            Steps(&[2, 1, 16]),
            Steps(&[2, 2, 3, 8]),
            Steps(&[2, 2, 3, 8]),
            Whole(6, &[2], &[3, 3]),
            Whole(6, &[1], &[4]),
        ],
        &[("num_heads", Int(4)), ("kv_num_heads", Int(2)), ("local_window_size", Int(3))],
        &[
            (
                &[2, 1, 32],
                [0.0916227, 0.362407, 0.341623, 0.65753, -1.27567, 0.407864, -1.02567, 0.657864, 7.61778],
            ),
            (&[2, 2, 4, 8], [-1.0, 0.75, -0.75, 1.0, 0.5, -1.0, 0.75, -0.75, 7.5]),
            (&[2, 2, 4, 8], [0.25, -1.25, 0.5, -1.0, -1.5, 0.25, -1.25, 0.5, 32.0]),
        ],
    ),
    row(
        "in a cache with room",
        GROUPED,
        &[
            Steps(&[2, 1, 32]),
            Steps(&[2, 1, 16]),
            Steps(&[2, 1, 16]),
            Steps(&[2, 2, 6, 8]),
            Steps(&[2, 2, 6, 8]),
            Whole(6, &[2], &[3, 3]),
            Whole(6, &[1], &[4]),
        ],
        &[("num_heads", Int(4)), ("kv_num_heads", Int(2))],
        &[(
            &[2, 1, 32],
            [0.227982, -1.02584, 0.477982, -0.769569, -0.818333, 0.511856, -0.939892, 0.761856, 17.1048],
        )],
    ),
    row(
        "in the rest of a cache",
        GROUPED,
        &[
            Steps(&[2, 1, 32]),
            Steps(&[2, 1, 16]),
            Steps(&[2, 1, 16]),
            Steps(&[2, 2, 4, 8]),
            Steps(&[2, 2, 4, 8]),
            Whole(6, &[2], &[3, 3]),
            Whole(6, &[1], &[4]),
        ],
        &[("num_heads", Int(4)), ("kv_num_heads", Int(2))],
        &[
            (
                &[2, 1, 32],
                [0.227982, -1.02584, 0.477982, -0.769569, -1.28193, 0.403477, -1.02116, 0.524262, 24.2121],
            ),
            (&[2, 2, 4, 8], [-1.0, 0.75, -0.75, 1.0, 0.5, -1.0, 0.75, -0.75, -11.75]),
            (&[2, 2, 4, 8], [0.25, -1.25, 0.5, -1.0, -1.5, 0.25, -1.25, 0.5, 51.75]),
        ],
    ),
    row(
        "two keys behind a cache",
        GROUPED,
        &[
            Steps(&[1, 2, 32]),
            Steps(&[1, 2, 16]),
            Steps(&[1, 2, 16]),
            Steps(&[1, 2, 3, 8]),
            Steps(&[1, 2, 3, 8]),
            Whole(6, &[1], &[4]),
            Whole(6, &[1], &[5]),
        ],
        &[("num_heads", Int(4)), ("kv_num_heads", Int(2))],
        &[(
            &[1, 2, 32],
            [0.227982, -1.02584, 0.477982, -0.769569, -1.11343, 0.503154, -0.863429, 0.753154, 21.8517],
        )],
    ),
    row(
        "rotated",
        GROUPED,
        &[
            Steps(&[1, 2, 32]),
            Steps(&[1, 2, 16]),
            Steps(&[1, 2, 16]),
            Nothing,
            Nothing,
            Whole(6, &[1], &[1]),
            Whole(6, &[1], &[2]),
            Steps(&[6, 8]),
            Steps(&[6, 8]),
        ],
        &[("num_heads", Int(2)), ("kv_num_heads", Int(1)), ("do_rotary", Int(1))],
        &[
            (&[1, 2, 32], [1.0, -0.5, 1.25, -0.25, -1.41467, 0.335327, -1.16467, 0.585327, 8.39954]),
            (&[1, 1, 2, 16], [0.75, -0.75, 1.0, 0.9375, -0.75, -2.0, -0.5625, -2.0625, 1.0625]),
            (&[1, 1, 2, 16], [1.0, -0.5, 1.25, -0.25, -1.5, 0.25, -1.25, 0.5, 4.0]),
        ],
    ),
    row(
        "rotated from a position on",
        GROUPED,
        &[
            Steps(&[1, 2, 32]),
            Steps(&[1, 2, 16]),
            Steps(&[1, 2, 16]),
            Nothing,
            Nothing,
            Whole(6, &[1], &[1]),
            Whole(6, &[1], &[2]),
            Steps(&[6, 8]),
            Steps(&[6, 8]),
            Whole(7, &[1, 2], &[3, 1]),
        ],
        &[
            ("num_heads", Int(2)),
            ("kv_num_heads", Int(1)),
            ("do_rotary", Int(1)),
            ("rotary_interleaved", Int(1)),
        ],
        &[(&[1, 2, 32], [1.0, -0.5, 1.25, -0.25, -1.45141, 0.298586, -1.20141, 0.548586, 15.7267])],
    ),
    row(
        "rotated behind a cache",
        GROUPED,
        &[
            Steps(&[2, 1, 32]),
            Steps(&[2, 1, 16]),
            Steps(&[2, 1, 16]),
            Steps(&[2, 1, 3, 16]),
            Steps(&[2, 1, 3, 16]),
            Whole(6, &[2], &[3, 3]),
            Whole(6, &[1], &[4]),
            Steps(&[6, 8]),
            Steps(&[6, 8]),
        ],
        &[("num_heads", Int(2)), ("kv_num_heads", Int(1)), ("do_rotary", Int(1))],
        &[
            (
                &[2, 1, 32],
                [0.346105, -0.955285, 0.269012, -0.705285, -1.09185, 0.281405, -1.17156, 0.531405, 10.5271],
            ),
            (&[2, 1, 4, 16], [-1.0, 0.75, -0.75, 1.0, 1.125, 1.25, -1.0625, 2.0625, 56.0]),
            (&[2, 1, 4, 16], [0.25, -1.25, 0.5, -1.0, -1.5, 0.25, -1.25, 0.5, 27.25]),
        ],
    ),
    row(
        "rotated to positions",
        GROUPED,
        &[
            Steps(&[2, 1, 32]),
            Steps(&[2, 1, 16]),
            Steps(&[2, 1, 16]),
            Steps(&[2, 1, 3, 16]),
            Steps(&[2, 1, 3, 16]),
            Whole(6, &[2], &[3, 3]),
            Whole(6, &[1], &[4]),
            Steps(&[6, 8]),
            Steps(&[6, 8]),
            Whole(7, &[2, 1], &[5, 2]),
        ],
        &[("num_heads", Int(2)), ("kv_num_heads", Int(1)), ("do_rotary", Int(1))],
        &[(
            &[2, 1, 32],
            [-0.0344983, 0.320765, -0.367632, 0.570765, -1.46791, 0.249982, -1.22729, 0.499982, 13.4914],
        )],
    ),
    row(
        "rotated in part",
        GROUPED,
        &[
            Steps(&[1, 2, 64]),
            Steps(&[1, 2, 32]),
            Steps(&[1, 2, 32]),
            Nothing,
            Nothing,
            Whole(6, &[1], &[1]),
            Whole(6, &[1], &[2]),
            Steps(&[6, 8]),
            Steps(&[6, 8]),
        ],
        &[("num_heads", Int(2)), ("kv_num_heads", Int(1)), ("do_rotary", Int(1))],
        &[(&[1, 2, 64], [1.0, -0.5, 1.25, -0.25, -1.46916, 0.214017, -1.21916, 0.464017, 3.73519])],
    ),
    row(
        "halves",
        ROTARY,
        &[Steps(&[2, 3, 8]), Whole(7, &[2, 3], &[0, 1, 2, 5, 3, 4]), Steps(&[6, 2]), Steps(&[6, 2])],
        &[],
        &[(&[2, 3, 8], [-2.75, -0.5, 0.25, -0.0625, 1.875, 0.875, 1.5625, -0.125, 23.625])],
    ),
    row(
        "neighbours",
        ROTARY,
        &[Steps(&[2, 3, 8]), Whole(7, &[2, 3], &[0, 1, 2, 5, 3, 4]), Steps(&[6, 2]), Steps(&[6, 2])],
        &[("interleaved", Int(1))],
        &[(&[2, 3, 8], [-1.25, 1.75, 0.25, -1.1875, 1.875, -0.3125, 0.125, 2.125, 50.25])],
    ),
    row(
        "from a position on",
        ROTARY,
        &[Steps(&[2, 3, 8]), Whole(7, &[1], &[3]), Steps(&[6, 2]), Steps(&[6, 2])],
        &[("num_heads", Int(2))],
        &[(&[2, 3, 8], [1.9375, -0.6875, 2.25, 0.5, 1.8125, 0.75, 0.875, 0.25, 6.25])],
    ),
    row(
        "a part of the rows",
        ROTARY,
        &[Steps(&[2, 3, 12]), Whole(7, &[2, 3], &[0, 1, 2, 5, 3, 4]), Steps(&[6, 2]), Steps(&[6, 2])],
        &[("num_heads", Int(2)), ("rotary_embedding_dim", Int(4))],
        &[(&[2, 3, 12], [-2.75, -0.5, 0.25, -0.0625, 1.5625, -0.125, -1.0, 0.75, 8.75])],
    ),
    row(
        "a part of neighbours",
        ROTARY,
        &[Steps(&[2, 3, 12]), Whole(7, &[2, 3], &[0, 1, 2, 5, 3, 4]), Steps(&[6, 2]), Steps(&[6, 2])],
        &[("num_heads", Int(2)), ("rotary_embedding_dim", Int(4)), ("interleaved", Int(1))],
        &[(&[2, 3, 12], [-1.25, 1.75, 0.25, -1.1875, 0.125, 2.125, -1.0, 0.75, -13.9375])],
    ),
    row(
        "heads first",
        ROTARY,
        &[Steps(&[2, 2, 3, 4]), Whole(7, &[2, 3], &[0, 1, 2, 5, 3, 4]), Steps(&[6, 2]), Steps(&[6, 2])],
        &[("scale", Real(2.0))],
        &[(&[2, 2, 3, 4], [-2.75, -0.5, 0.25, -0.0625, 1.875, 0.875, 1.5625, -0.125, -2.625])],
    ),
];

#[test]
fn results_are_those_of_onnx_runtime() {
    let fault = |row: &Row<'_>| Some(format!("{} {}: {}", row.kind, row.name, row.fault()?));
    let wrong: Vec<String> = ROWS.iter().filter_map(fault).collect();
    report(&wrong);
}

#[test]
fn attention_is_one_partition() {
    let mut wrong = Vec::new();
    for row in ROWS.iter().filter(|row| row.kind != ROTARY) {
        let model = model(row.kind, row.inputs, &row.attributes(), 1);
        let imported = onnx::read(&model.bytes()).unwrap_or_else(|error| panic!("{error}"));
        let partitions = imported.graph.partitions(Policy::Fusion).unwrap();
        let with = |kind| partitions.iter().position(|one| one.ops().iter().any(|op| op.kind() == kind));
        let products = partitions.iter().filter(|one| one.ops().iter().any(|op| op.kind() == OpKind::MatMul));
        if products.count() != 1 || with(OpKind::MatMul) != with(OpKind::SoftMax) {
            wrong.push(format!("{} {}", row.kind, row.name));
        }
    }
    report(&wrong);
}

/// An op type, its inputs and attributes, and the name in the error.
pub(super) type Refused<'a> = (&'a str, Vec<Given<'a>>, Vec<Vec<u8>>, &'a str);

/// Reports the nodes that are read, or refused for something else.
pub(super) fn check_refused(rows: Vec<Refused<'_>>) {
    let mut wrong = Vec::new();
    for (at, (kind, inputs, attributes, named)) in rows.into_iter().enumerate() {
        match onnx::read(&model(kind, &inputs, &attributes, 1).bytes()) {
            Err(error) if error.to_string().contains(named) => {}
            other => {
                wrong.push(format!("{at} {kind} {named}: {:?}", other.map(drop).map_err(|e| e.to_string())));
            }
        }
    }
    report(&wrong);
}

#[test]
fn what_is_not_mapped_is_named() {
    let heads = || int("num_heads", 2);
    let of_groups = || vec![int("num_heads", 4), int("kv_num_heads", 2)];
    let with = |one: Vec<u8>| [of_groups(), vec![one]].concat();
    let three = [Steps(&[2, 2, 4]), Steps(&[2, 3, 4]), Steps(&[2, 3, 4])];
    let and = |more: &[Given<'static>]| [&three[..], more].concat();
    let lengths = [Whole(6, &[2], &[2, 2]), Whole(6, &[1], &[3])];
    let prompt = [Steps(&[2, 3, 32]), Steps(&[2, 3, 16]), Steps(&[2, 3, 16]), Nothing, Nothing];
    let grouped = |more: &[Given<'static>]| [&prompt[..], &lengths[..], more].concat();
    let step = |lengths: Given<'static>| {
        let new = [Steps(&[2, 1, 32]), Steps(&[2, 1, 16]), Steps(&[2, 1, 16])];
        [&new[..], &[Steps(&[2, 2, 3, 8]), Steps(&[2, 2, 3, 8]), lengths, Whole(6, &[1], &[4])]].concat()
    };
    let text = |name: &str, text: &str| {
        [field(1, name.as_bytes()), field(4, text.as_bytes()), super::bytes::number(20, 3)].concat()
    };
    let gap = |count: usize| vec![Nothing; count];
    let caches = [Steps(&[80, 2]), Steps(&[80, 2])];
    let rotary = |positions: Given<'static>| [&[Steps(&[2, 3, 8]), positions][..], &caches].concat();
    let (m, g, r) = (MULTI_HEAD, GROUPED, ROTARY);
    let rows: Vec<Refused<'_>> = vec![
        (m, three.to_vec(), vec![], "attribute `num_heads` is missing"),
        (m, three.to_vec(), vec![int("num_heads", 3)], "attribute `num_heads`"),
        (m, vec![Steps(&[2, 2, 2, 3, 2])], vec![heads()], "`query`"),
        (m, vec![three[0], three[1]], vec![heads()], "an input `value`"),
        (m, vec![three[0], Steps(&[2, 3, 2, 2, 2]), three[2]], vec![heads()], "`key`"),
        (m, vec![three[0], Steps(&[2, 3, 3, 2]), Steps(&[2, 3, 3, 2])], vec![heads()], "`key`"),
        (m, vec![three[0], Steps(&[1, 3, 4]), three[2]], vec![heads()], "`key`"),
        (m, and(&[Steps(&[8])]), vec![heads()], "`bias`"),
        (m, and(&[Nothing, Open(7, &[2, 3])]), vec![heads()], "`key_padding_mask`"),
        (m, and(&[Nothing, Whole(6, &[9], &[0; 9])]), vec![heads()], "`key_padding_mask`"),
        (m, and(&[Nothing, Nothing, Steps(&[1, 3])]), vec![heads()], "`attention_bias`"),
        (m, and(&[Nothing, Nothing, Nothing, Steps(&[2, 2, 1, 2])]), vec![heads()], "past values together"),
        (m, and(&[&gap(5)[..], &[Whole(6, &[1], &[1])]].concat()), vec![heads()], "`past_sequence_length`"),
        (m, and(&[&gap(6)[..], &[Open(6, &[2, 1, 3])]].concat()), vec![heads()], "`cache_indirection`"),
        (m, three.to_vec(), vec![heads(), int("unidirectional", 1)], "attribute `unidirectional`"),
        (m, three.to_vec(), vec![heads(), int("other", 1)], "attribute `other`"),
        (g, grouped(&[]), vec![int("num_heads", 4)], "attribute `kv_num_heads` is missing"),
        (g, grouped(&[&gap(4)[..], &[Steps(&[3])]].concat()), of_groups(), "`head_sink`"),
        (g, grouped(&[&gap(5)[..], &[Steps(&[1])]].concat()), of_groups(), "`k_scale`"),
        (g, grouped(&[&gap(7)[..], &[Steps(&[8])]].concat()), of_groups(), "`q_norm_weight`"),
        (g, grouped(&[&gap(9)[..], &[Open(6, &[2])]].concat()), of_groups(), "`query_seqlens`"),
        (
            g,
            grouped(&[&gap(4)[..], &[Steps(&[4])]].concat()),
            with(int("smooth_softmax", 1)),
            "attribute `smooth_softmax`",
        ),
        (g, grouped(&[]), with(int("qk_output", 1)), "attribute `qk_output`"),
        (g, grouped(&[]), with(int("sliding_window_cache", 1)), "attribute `sliding_window_cache`"),
        (g, grouped(&[]), with(int("kv_cache_bit_width", 8)), "attribute `kv_cache_bit_width`"),
        (g, grouped(&[]), with(text("k_quant_type", "PER_TENSOR")), "attribute `k_quant_type`"),
        (g, grouped(&[]), with(int("local_window_size", 0)), "attribute `local_window_size`"),
        (g, grouped(&[]), with(int("do_rotary", 1)), "`cos_cache`"),
        (g, step(Open(6, &[3])), of_groups(), "`seqlens_k`"),
        (g, step(Open(1, &[2])), of_groups(), "`seqlens_k`"),
        (g, step(Whole(6, &[2], &[3, -1])), of_groups(), "`seqlens_k`"),
        (g, step(Whole(6, &[2], &[4, 4])), of_groups(), "`seqlens_k`"),
        (r, rotary(Whole(7, &[1], &[78])), vec![], "`cos_cache`"),
        (r, rotary(Whole(7, &[3], &[0, 1, 2])), vec![], "`position_ids`"),
        (r, rotary(Whole(7, &[1], &[0])), vec![int("is_packed_batching", 1)], "`is_packed_batching`"),
        (r, rotary(Whole(7, &[1], &[0])), vec![int("num_heads", 4)], "`num_heads`"),
        (r, rotary(Whole(7, &[1], &[0])), vec![int("rotary_embedding_dim", 4)], "`num_heads`"),
    ];
    check_refused(rows);
}
