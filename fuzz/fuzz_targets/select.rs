//! Selects of random shapes, strides, types, modes and levels, in place and not, against two oracles: the
//! reference and the one of the tests, which also sees what is written between elements.
#![no_main]

use std::collections::HashSet;
use std::mem::MaybeUninit;

use libfuzzer_sys::fuzz_target;
use sterna::reference::{self, Value};
use sterna::{
    AutoBroadcast, CompiledPartition, DataType, Engine, InPlacePair, Status, Stream, TensorBuf, TensorMut,
};
use sterna_fuzz::common::{self, Case, GAP, Random};
use sterna_fuzz::{Tight, one_of_the_engines};

const MODES: &[AutoBroadcast] =
    &[AutoBroadcast::Numpy, AutoBroadcast::None, AutoBroadcast::Pdpd, AutoBroadcast::Multidirectional];
const DIMS: &[i64] = &[1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 128, 200, 1000, 0];
const MOST_ELEMENTS: i64 = 4096;

fuzz_target!(|bytes: &[u8]| {
    let mut random = Random::from_bytes(bytes);
    let engine = one_of_the_engines(&mut random);
    let (case, has_odd_output) = case(&mut random);
    let seed = random.below(1 << 16) as u64;
    if let Err(why) = check(&case, has_odd_output, engine, &mut Random::new(seed)) {
        panic!("{}: {why}: {case:?}", engine.level());
    }
});

/// A select; and whether the strides of its output may be such that it is refused.
fn case(random: &mut Random) -> (Case, bool) {
    let mode = random.pick(MODES);
    let mut case = Case::new(mode, random.pick(DataType::WHOLE), [&[], &[], &[]]);
    let most_rank = random.pick(&[3, 5, 12]);
    let rank = random.below(most_rank + 1);
    let mut full: Vec<i64> = (0..rank).map(|_| random.pick(DIMS)).collect();
    while elements(&full) > MOST_ELEMENTS {
        let largest = (0..full.len()).max_by_key(|&axis| full[axis]).unwrap_or(0);
        full[largest] /= 2;
    }
    case.axis = match mode {
        AutoBroadcast::Pdpd if random.below(2) == 0 => Some(random.below(rank + 2) as i64 - 1),
        _ => None,
    };
    let placed = case.axis.filter(|&axis| axis >= 0);
    case.dims = [0, 1, 2].map(|operand| {
        // Some dims left out, some repeated; a few that do not fit at all.
        let from = match (operand, placed) {
            (1, _) | (_, None) => {
                if random.below(3) == 0 {
                    random.below(rank + 1)
                } else {
                    0
                }
            }
            (_, Some(axis)) => axis as usize,
        };
        let kept = full.get(from..).unwrap_or_default();
        let kept = if random.below(8) == 0 { &kept[..random.below(kept.len() + 1)] } else { kept };
        let repeat = random.below(2) == 0;
        kept.iter()
            .map(|&dim| match random.below(16) {
                0 => random.pick(&[0, 1, 2, 3]),
                1..6 if repeat => 1,
                _ => dim,
            })
            .collect()
    });
    for operand in 0..3 {
        case.strides[operand] = (random.below(2) == 0).then(|| strides(&case.dims[operand], random));
    }
    let result = common::broadcast(case.mode, case.axis, &case.dims);
    let mut has_odd_output = false;
    case.dst_strides = match random.below(3) {
        0 => None,
        1 => result.map(|dims| separate_strides(&dims, random)),
        _ => result.map(|dims| {
            has_odd_output = true;
            strides(&dims, random)
        }),
    };
    (case, has_odd_output)
}

/// How many elements there would be if no dim were 0, so that strides of empty tensors stay small as well.
fn elements(dims: &[i64]) -> i64 {
    dims.iter().fold(1, |count, &dim| count.saturating_mul(dim.max(1)))
}

/// Strides under which no two elements share memory: some dim order, some dims spaced out.
fn separate_strides(dims: &[i64], random: &mut Random) -> Vec<i64> {
    let mut order: Vec<usize> = (0..dims.len()).collect();
    if random.below(2) == 0 {
        (1..order.len()).for_each(|i| order.swap(i, random.below(i + 1)));
    }
    let mut strides = vec![0; dims.len()];
    let mut stride = random.pick(&[1, 1, 2, 3]);
    for &axis in order.iter().rev() {
        strides[axis] = stride;
        stride = stride * dims[axis].max(1) + random.pick(&[0, 0, 0, 1, 5]);
    }
    strides
}

/// Any strides: separate ones, some of them replaced.
fn strides(dims: &[i64], random: &mut Random) -> Vec<i64> {
    let mut strides = separate_strides(dims, random);
    for stride in &mut strides {
        if random.below(6) == 0 {
            *stride = random.pick(&[0, 1, 2, 7, 64]);
        }
    }
    strides
}

fn check(case: &Case, has_odd_output: bool, engine: &Engine, random: &mut Random) -> Result<(), String> {
    let Some(dims) = common::broadcast(case.mode, case.axis, &case.dims) else {
        return match case.compile(engine) {
            Ok(_) => Err("shapes that do not fit are taken".into()),
            Err(error) if error.status() == Status::InvalidShape => Ok(()),
            Err(error) => Err(format!("shapes that do not fit: {error}")),
        };
    };
    if elements(&dims) > 4 * MOST_ELEMENTS {
        return Ok(()); // Operands that enlarge each other.
    }
    let compiled = match case.compile(engine) {
        Ok(compiled) => compiled,
        Err(error) if has_odd_output && error.status() == Status::InvalidArguments => return Ok(()),
        Err(error) => return Err(error.to_string()),
    };
    let desc = &compiled.outputs()[0];
    if has_odd_output && share_memory(&dims, desc.strides().unwrap_or_default()) {
        return Err("an output is taken whose elements share memory".into());
    }
    let size = desc.memory_size().max(desc.span().unwrap_or(0) * 8);
    if compiled.inputs().iter().any(|input| input.memory_size() > sterna_fuzz::MOST_BYTES)
        || size > sterna_fuzz::MOST_BYTES
    {
        return Ok(());
    }
    let inputs = case.filled(&compiled, engine, random);
    let mut output = TensorBuf::zeroed(desc.clone(), engine).map_err(|error| error.to_string())?;
    output.as_mut_bytes().fill(GAP);
    common::run(&compiled, engine, &inputs, &mut output).map_err(|error| error.to_string())?;
    case.compare(&inputs, &output)?;

    let value = |tensor: &TensorBuf| Value::read(&tensor.as_tensor()).map_err(|error| error.to_string());
    let operands = inputs.iter().map(value).collect::<Result<Vec<Value>, String>>()?;
    let expected = reference::run(&case.op(), &operands).map_err(|error| error.to_string())?;
    if value(&output)? != expected[0] {
        return Err("the reference gives something else".into());
    }
    check_tight(&compiled, engine, &inputs, &output, random)?;
    (compiled.in_place_pairs().iter())
        .try_for_each(|&pair| check_in_place(&compiled, engine, &inputs, &output, pair))
}

/// True if two elements lie at one place.
fn share_memory(dims: &[i64], strides: &[i64]) -> bool {
    let mut seen = HashSet::new();
    let offset = |at: Vec<i64>| at.iter().zip(strides).map(|(i, stride)| i * stride).sum::<i64>();
    !common::indices(dims).into_iter().all(|at| seen.insert(offset(at)))
}

/// Runs on memory without a byte to spare, scratch included; the bytes must be the same.
fn check_tight(
    compiled: &CompiledPartition,
    engine: &Engine,
    inputs: &[TensorBuf],
    output: &TensorBuf,
    random: &mut Random,
) -> Result<(), String> {
    let copy = |tensor: &TensorBuf, random: &mut Random| {
        let mut tight = Tight::new(tensor.desc(), random.below(9));
        tight.bytes().copy_from_slice(tensor.as_bytes());
        tight
    };
    let sources: Vec<Tight> = inputs.iter().map(|input| copy(input, random)).collect();
    let mut target = Tight::new(output.desc(), random.below(9));
    target.bytes().fill(GAP);
    let tensors: Vec<_> =
        sources.iter().zip(inputs).map(|(tight, input)| tight.tensor(input.desc(), engine)).collect();
    let mut scratch = vec![MaybeUninit::<u8>::uninit(); compiled.scratchpad_size()];
    let mut outputs = [target.tensor_mut(output.desc(), engine)];
    compiled
        .execute_with_scratchpad(&Stream::new(engine), &tensors, &mut outputs, &mut scratch)
        .map_err(|error| error.to_string())?;
    match target.bytes() == output.as_bytes() {
        true => Ok(()),
        false => Err("on tight memory it gives something else".into()),
    }
}

/// Runs in place; the elements must be the same, and what lies between them as it was.
fn check_in_place(
    compiled: &CompiledPartition,
    engine: &Engine,
    inputs: &[TensorBuf],
    output: &TensorBuf,
    pair: InPlacePair,
) -> Result<(), String> {
    let of_pair = inputs.iter().find(|input| input.desc().id() == pair.input);
    let replaced = of_pair.ok_or("an in-place pair names no input")?;
    let fresh = || {
        let mut tensor = TensorBuf::zeroed(output.desc().clone(), engine).map_err(|e| e.to_string())?;
        tensor.as_mut_bytes().copy_from_slice(replaced.as_bytes());
        Ok::<_, String>(tensor)
    };
    let (mut apart, mut within) = (fresh()?, fresh()?);
    common::run(compiled, engine, inputs, &mut apart).map_err(|error| error.to_string())?;
    let others = inputs.iter().filter(|input| input.desc().id() != pair.input);
    let others: Vec<_> = others.map(TensorBuf::as_tensor).collect();
    let mut outputs: [TensorMut<'_>; 1] = [within.as_tensor_mut().in_place_of(pair.input)];
    compiled.execute(&Stream::new(engine), &others, &mut outputs).map_err(|error| error.to_string())?;
    match apart.as_bytes() == within.as_bytes() {
        true => Ok(()),
        false => Err(format!("in place of tensor {} it gives something else", pair.input)),
    }
}
