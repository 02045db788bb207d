//! Promise: before an execution computes anything, the tiles that a mask leaves out are known, in whatever
//! form the mask is said, and leaving them out changes no bit.

use crate::common::{Random, engines, report};
use sterna::{
    Attention, Bool8, Causal, CompiledPartition, DataType, Engine, Error, ExecuteFault, Graph, LogicalTensor,
    MaskTrue, Policy, Stream, Tensor, TensorBuf, TileClass,
};

use DataType as D;

/// Heads, queries, keys, and elements of a query.
const HEADS: i64 = 2;
const QUERIES: i64 = 200;
const KEYS: i64 = 330;
const DEPTH: i64 = 16;

/// The id of a mask or a bias, behind those of q, k, v and the result.
const MASK: usize = 4;

fn dense(id: usize, data_type: DataType, dims: &[i64]) -> LogicalTensor {
    LogicalTensor::strided(id, data_type, dims).expect("the tensor can be described")
}

fn options() -> Attention {
    let tensor = |id, tokens| dense(id, D::F32, &[1, HEADS, tokens, DEPTH]);
    Attention::new(tensor(0, QUERIES), tensor(1, KEYS), tensor(2, KEYS), tensor(3, QUERIES))
}

fn compiled(options: &Attention, engine: &Engine) -> CompiledPartition {
    let mut graph = Graph::new();
    graph.attention(options).expect("the options fit");
    graph.finalize().expect("the graph is whole");
    let partitions = graph.partitions(Policy::Fusion).expect("it is finalised");
    assert_eq!(partitions.len(), 1, "attention is one partition");
    partitions[0].compile(engine).expect("it compiles")
}

/// A mask that keeps blocks of a random size, starting at random places.
fn blocks(random: &mut Random, keys: i64) -> Vec<bool> {
    let mut keeps = vec![false; (QUERIES * keys) as usize];
    for _ in 0..3 {
        let [query, key] = [QUERIES, keys].map(|most| random.below(most as usize));
        for i in query..(query + 70).min(QUERIES as usize) {
            keeps[i * keys as usize..][key..(key + 90).min(keys as usize)].fill(true);
        }
    }
    keeps
}

/// Masked, full and other tiles, by every element.
fn counted(keeps: impl Fn(usize, usize) -> bool) -> [usize; 3] {
    let mut counts = [0; 3];
    let (queries, keys) = (QUERIES as usize, KEYS as usize);
    for query in (0..queries).step_by(64) {
        for key in (0..keys).step_by(64) {
            let pairs =
                (query..queries.min(query + 64)).flat_map(|i| (key..keys.min(key + 64)).map(move |j| (i, j)));
            let kept = pairs.clone().filter(|&(i, j)| keeps(i, j)).count();
            counts[if kept == 0 { 0 } else { 1 + usize::from(kept < pairs.count()) }] += 1;
        }
    }
    counts
}

fn classes(compiled: &CompiledPartition, inputs: &[Tensor<'_>]) -> Option<[usize; 3]> {
    let tiles = compiled.mask_tiles(inputs).expect("the classes can be found")?;
    let counts = TileClass::ALL.map(|class| tiles.count(class));
    assert_eq!(counts.iter().sum::<usize>(), tiles.tiles());
    let [partial, full, constant, masked] = counts;
    Some([masked, full, partial + constant])
}

/// Queries, keys and values: small numbers.
fn filled(id: usize, tokens: i64, engine: &Engine) -> TensorBuf {
    let tensor = dense(id, D::F32, &[1, HEADS, tokens, DEPTH]);
    let mut buffer = TensorBuf::zeroed(tensor, engine).expect("there is memory");
    let mut random = Random::new(id as u64);
    let elements = buffer.as_mut_slice::<f32>().expect("it is f32");
    elements.iter_mut().for_each(|x| *x = random.below(2001) as f32 / 500.0 - 2.0);
    buffer
}

fn result(compiled: &CompiledPartition, inputs: &[Tensor<'_>], engine: &Engine) -> Vec<u8> {
    let output = compiled.port(3).expect("it is an output").clone();
    let mut output = TensorBuf::zeroed(output, engine).expect("there is memory");
    let stream = Stream::new(engine);
    compiled.execute(&stream, inputs, &mut [output.as_tensor_mut()]).expect("it runs");
    output.as_bytes().to_vec()
}

#[test]
fn indices_say_which_tiles_are_masked() {
    let mut wrong = Vec::new();
    let offset = (KEYS - QUERIES) as usize;
    type Row = (&'static str, Attention, fn(usize, usize, usize) -> bool);
    let rows: [Row; 4] = [
        ("causal", options().causal(Causal::TopLeft), |i, j, _| j <= i),
        ("causal at the end", options().causal(Causal::BottomRight), |i, j, offset| j <= i + offset),
        ("window", options().causal(Causal::TopLeft).window(50), |i, j, _| j <= i && i < j + 50),
        ("window at the end", options().causal(Causal::BottomRight).window(40), |i, j, offset| {
            j <= i + offset && i + offset < j + 40
        }),
    ];
    for (name, options, keeps) in rows {
        let expected = counted(|i, j| keeps(i, j, offset));
        for engine in engines() {
            let found = classes(&compiled(&options, &engine), &[]);
            if found != Some(expected) {
                wrong.push(format!("{name}: {found:?}, not {expected:?}"));
            }
        }
    }
    report(&wrong);
}

#[test]
fn tensors_say_which_tiles_are_masked_and_no_bit_depends_on_it() {
    let mut wrong = Vec::new();
    let mut random = Random::new(3);
    for engine in engines() {
        let [q, k, v] = [(0, QUERIES), (1, KEYS), (2, KEYS)].map(|(id, tokens)| filled(id, tokens, &engine));
        for _ in 0..3 {
            let keeps = blocks(&mut random, KEYS);
            let expected = counted(|i, j| keeps[i * KEYS as usize + j]);
            let dims = [1, 1, QUERIES, KEYS];
            let mut results = Vec::new();
            for form in ["keeps", "masks", "sum"] {
                let of = if form == "sum" { D::F32 } else { D::Boolean };
                let mask = dense(MASK, of, &dims);
                let options = match form {
                    "keeps" => options().mask(mask.clone(), MaskTrue::Keeps),
                    "masks" => options().mask(mask.clone(), MaskTrue::Masks),
                    _ => options().bias(mask.clone()),
                };
                let mut mask = TensorBuf::zeroed(mask, &engine).expect("there is memory");
                if form == "sum" {
                    let elements = mask.as_mut_slice::<f32>().expect("it is f32");
                    let numbers = keeps.iter().map(|&keeps| if keeps { 0.0 } else { f32::NEG_INFINITY });
                    elements.iter_mut().zip(numbers).for_each(|(x, number)| *x = number);
                } else {
                    let elements = mask.as_mut_slice::<Bool8>().expect("it is boolean");
                    let truths = keeps.iter().map(|&keeps| Bool8::from(keeps == (form == "keeps")));
                    elements.iter_mut().zip(truths).for_each(|(x, truth)| *x = truth);
                }
                let compiled = compiled(&options, &engine);
                let found = classes(&compiled, &[mask.as_tensor()]);
                if found != Some(expected) {
                    wrong.push(format!("{form}: {found:?}, not {expected:?}"));
                }
                let inputs = [q.as_tensor(), k.as_tensor(), v.as_tensor(), mask.as_tensor()];
                results.push(result(&compiled, &inputs, &engine));
            }
            if results.windows(2).any(|pair| pair[0] != pair[1]) {
                wrong.push("the forms of a mask give other bits".into());
            }
        }
    }
    report(&wrong);
}

/// A bias of f32 for each query and key, as a port and as a tensor.
fn bias(engine: &Engine, number: impl Fn(usize, usize) -> f32) -> TensorBuf {
    let tensor = dense(MASK, D::F32, &[1, 1, QUERIES, KEYS]);
    let mut bias = TensorBuf::zeroed(tensor, engine).expect("there is memory");
    let elements = bias.as_mut_slice::<f32>().expect("it is f32");
    elements.iter_mut().enumerate().for_each(|(at, x)| *x = number(at / KEYS as usize, at % KEYS as usize));
    bias
}

/// Classes as [`TileClass::ALL`] has them.
fn counts(compiled: &CompiledPartition, inputs: &[Tensor<'_>]) -> [usize; 4] {
    let tiles = compiled.mask_tiles(inputs).expect("the classes can be found").expect("it is masked");
    TileClass::ALL.map(|class| tiles.count(class))
}

#[test]
fn finite_numbers_that_are_added_leave_out_what_infinity_does() {
    let mut wrong = Vec::new();
    let keeps = |i: usize, j: usize| j <= i && i < j + 90;
    let [masked, full, partial] = counted(keeps);
    for engine in engines() {
        let [q, k, v] = [(0, QUERIES), (1, KEYS), (2, KEYS)].map(|(id, tokens)| filled(id, tokens, &engine));
        let compiled = compiled(&options().bias(dense(MASK, D::F32, &[1, 1, QUERIES, KEYS])), &engine);
        let mut results = Vec::new();
        for number in [f32::NEG_INFINITY, f32::MIN, -65504.0, -1e4] {
            let bias = bias(&engine, |i, j| if keeps(i, j) { 0.0 } else { number });
            let inputs = [q.as_tensor(), k.as_tensor(), v.as_tensor(), bias.as_tensor()];
            let expected = match number.is_finite() {
                true => [partial, full, masked, 0],
                false => [partial, full, 0, masked],
            };
            for given in [&inputs[..], &inputs[3..]] {
                let found = counts(&compiled, given);
                if found != expected {
                    wrong.push(format!("{number}, {} inputs: {found:?}, not {expected:?}", given.len()));
                }
            }
            results.push(result(&compiled, &inputs, &engine));
        }
        if results.windows(2).any(|pair| pair[0] != pair[1]) {
            wrong.push("what masks by a number gives other bits".into());
        }
    }
    report(&wrong);
}

#[test]
fn scores_that_may_outweigh_an_added_number_are_computed() {
    let mut wrong = Vec::new();
    let keeps = |i: usize, j: usize| j <= i;
    let masked = counted(keeps)[0];
    for engine in engines() {
        let [q, mut k, v] =
            [(0, QUERIES), (1, KEYS), (2, KEYS)].map(|(id, tokens)| filled(id, tokens, &engine));
        let compiled = compiled(&options().bias(dense(MASK, D::F32, &[1, 1, QUERIES, KEYS])), &engine);
        for (number, extreme, left_out) in [
            (-1e4, 1e6, 0),
            (f32::MIN, 1e6, masked),
            (f32::MIN, f32::MAX, 0),
            (f32::MIN, f32::INFINITY, 0),
            (f32::MIN, f32::NAN, 0),
            (f32::NEG_INFINITY, f32::NAN, 0),
        ] {
            // An element of the last key of the second head, which the last queries see if any.
            let last = k.as_mut_slice::<f32>().expect("it is f32").last_mut().expect("it has elements");
            *last = extreme;
            let bias = bias(&engine, |i, j| if keeps(i, j) { 0.0 } else { number });
            let inputs = [q.as_tensor(), k.as_tensor(), v.as_tensor(), bias.as_tensor()];
            let found = counts(&compiled, &inputs)[TileClass::Constant as usize];
            if found != left_out {
                wrong.push(format!("{number} and {extreme}: {found} tiles, not {left_out}"));
            }
            // A NaN is masked by −∞ and by no other number.
            let bytes = result(&compiled, &inputs, &engine);
            let numbers = bytes.chunks_exact(4).map(|x| f32::from_ne_bytes([x[0], x[1], x[2], x[3]]));
            let nans = numbers.filter(|x| x.is_nan()).count() as i64;
            let of_head = QUERIES * DEPTH;
            let expected = if extreme.is_nan() && number.is_finite() { of_head } else { 0 };
            // Scores that overflow, or are infinite, have signs that differ from query to query.
            if (extreme == 1e6 || extreme.is_nan()) && nans != expected {
                wrong.push(format!("{number} and {extreme}: {nans} NaN, not {expected}"));
            }
        }
    }
    report(&wrong);
}

#[test]
fn a_query_whose_keys_are_all_masked_by_a_number_has_the_mean_of_the_values() {
    let mut wrong = Vec::new();
    // In the second block of queries some see keys, and in the third none does.
    let keeps = |i: usize, j: usize| i < 100 && j <= i;
    for engine in engines() {
        let [q, k, v] = [(0, QUERIES), (1, KEYS), (2, KEYS)].map(|(id, tokens)| filled(id, tokens, &engine));
        let compiled = compiled(&options().bias(dense(MASK, D::F32, &[1, 1, QUERIES, KEYS])), &engine);
        let bias = bias(&engine, |i, j| if keeps(i, j) { 0.0 } else { f32::MIN });
        let inputs = [q.as_tensor(), k.as_tensor(), v.as_tensor(), bias.as_tensor()];
        let bytes = result(&compiled, &inputs, &engine);
        let values = v.as_slice::<f32>().expect("it is f32");
        for (at, x) in bytes.chunks_exact(4).enumerate() {
            let (head, query, column) =
                (at as i64 / (QUERIES * DEPTH), at as i64 / DEPTH % QUERIES, at as i64 % DEPTH);
            let of_key = |key: i64| f64::from(values[((head * KEYS + key) * DEPTH + column) as usize]);
            let mean = (0..KEYS).map(of_key).sum::<f64>() / KEYS as f64;
            let found = f64::from(f32::from_ne_bytes([x[0], x[1], x[2], x[3]]));
            if query >= 100 && (found - mean).abs() > 1e-5 {
                wrong.push(format!("head {head}, query {query}, element {column}: {found}, not {mean}"));
                break;
            }
        }
    }
    report(&wrong);
}

#[test]
fn only_the_mask_is_asked_for() {
    let engine = Engine::new();
    assert_eq!(classes(&compiled(&options(), &engine), &[]), None, "without a mask there are no classes");

    let mask = dense(MASK, D::Boolean, &[1, 1, QUERIES, KEYS]);
    let masked = compiled(&options().mask(mask.clone(), MaskTrue::Keeps), &engine);
    let missing = masked.mask_tiles(&[]);
    assert!(
        matches!(missing, Err(Error::Execute(ExecuteFault::Missing { tensor, .. })) if tensor == MASK),
        "{missing:?}"
    );
    let other = TensorBuf::zeroed(dense(MASK, D::Boolean, &[1, 1, KEYS, QUERIES]), &engine);
    let differs = masked.mask_tiles(&[other.expect("there is memory").as_tensor()]);
    assert!(matches!(differs, Err(Error::Execute(ExecuteFault::Differs { .. }))), "{differs:?}");

    let zeros = TensorBuf::zeroed(mask, &engine).expect("there is memory");
    let tiles = masked.mask_tiles(&[zeros.as_tensor()]).expect("it has its mask").expect("it is masked");
    assert_eq!((tiles.planes(), tiles.query_blocks(), tiles.key_blocks()), (1, 4, 6));
    assert_eq!(tiles.class(0, 3, 5), Some(TileClass::Masked));
    assert_eq!(tiles.class(0, 4, 0), None);
    assert_eq!(tiles.class(1, 0, 0), None);
    assert_eq!(tiles.to_string(), "......\n".repeat(4));
}
