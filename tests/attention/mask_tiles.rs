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
