//! Promise: every kernel, at every level of the machine, writes exactly the elements of its tile and touches
//! nothing around its operands, whatever their lengths, addresses, strides and conditions.

use std::fmt::Debug;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::guarded::{AT_BACK, AT_FRONT, Guarded, Place};
use crate::common::{COND, Case, DST, ELSE, GAP, Random, THEN, engines, report};
use sterna::{
    AutoBroadcast, CompiledPartition, DataType, Engine, InPlacePair, Level, Stream, Tensor, TensorMut,
};

/// One type for each width of an element.
const TYPES: [DataType; 4] = [DataType::U8, DataType::F16, DataType::F32, DataType::S64];

/// The values of the bytes of a condition.
#[derive(Debug, Clone, Copy)]
enum Condition {
    Random,
    /// Runs of up to so many equal truths.
    Runs(usize),
    Uniform(bool),
    /// All alike but for the element at a place.
    OneOdd(usize, bool),
}

impl Condition {
    fn fill(self, cond: &mut [u8], random: &mut Random) {
        let truth = |truth: bool, random: &mut Random| match truth {
            true => random.pick(&[1u8, 2, 0x80, 0xff]),
            false => 0,
        };
        match self {
            Self::Random => cond.iter_mut().for_each(|byte| *byte = truth(random.next() & 1 != 0, random)),
            Self::Runs(longest) => {
                let mut rest = cond;
                let mut value = truth(random.next() & 1 != 0, random);
                while !rest.is_empty() {
                    let run = (1 + random.below(longest)).min(rest.len());
                    let (head, tail) = rest.split_at_mut(run);
                    head.fill(value);
                    value = truth(value == 0, random);
                    rest = tail;
                }
            }
            Self::Uniform(value) => cond.fill(truth(value, random)),
            Self::OneOdd(at, value) => {
                cond.fill(truth(value, random));
                if let Some(odd) = cond.get_mut(at) {
                    *odd = truth(!value, random);
                }
            }
        }
    }
}

/// A select of 2-D operands, each with any strides along rows and columns.
#[derive(Debug, Clone)]
struct Tile {
    data_type: DataType,
    rows: usize,
    columns: usize,
    /// Elements from row to row and from column to column, for each operand and the result.
    steps: [[usize; 2]; 4],
}

impl Tile {
    /// One row, along which each operand is dense or repeats one element.
    fn row(data_type: DataType, columns: usize, dense: [bool; 3]) -> Self {
        let [cond, then, else_] = dense.map(|dense| [columns, usize::from(dense)]);
        Self { data_type, rows: 1, columns, steps: [cond, then, else_, [columns, 1]] }
    }

    fn compile(&self, engine: &Engine) -> CompiledPartition {
        let dims = [self.rows as i64, self.columns as i64];
        let strides = |i: usize| Some(self.steps[i].iter().map(|&step| step as i64).collect::<Vec<_>>());
        let mut case = Case::new(AutoBroadcast::None, self.data_type, [&dims, &dims, &dims]);
        case.strides = [COND, THEN, ELSE].map(strides);
        case.dst_strides = strides(DST);
        case.compile(engine).unwrap()
    }

    fn width(&self, operand: usize) -> usize {
        if operand == COND { 1 } else { self.data_type.size().unwrap() }
    }

    /// Bytes from the first element of an operand to the end of its last one.
    fn span(&self, operand: usize) -> usize {
        if self.rows == 0 || self.columns == 0 {
            return 0;
        }
        let [row, column] = self.steps[operand];
        ((self.rows - 1) * row + (self.columns - 1) * column + 1) * self.width(operand)
    }

    /// The memory of the result after an execution, from the bytes of it and of the inputs before.
    fn select(&self, [cond, then, else_]: [&[u8]; 3], result: &mut [u8]) {
        let width = self.data_type.size().unwrap();
        let [cond_step, then_step, else_step, step] = self.steps;
        for row in 0..self.rows {
            let truth = |column: usize| cond[row * cond_step[0] + column * cond_step[1]] != 0;
            let mut first = 0;
            while first < self.columns {
                let chosen = truth(first);
                let next = (first + 1..self.columns).find(|&i| truth(i) != chosen).unwrap_or(self.columns);
                let (from, [pitch, inner]) = if chosen { (then, then_step) } else { (else_, else_step) };
                if inner == 1 && step[1] == 1 {
                    let (source, target) = ((row * pitch + first) * width, (row * step[0] + first) * width);
                    let run = (next - first) * width;
                    result[target..target + run].copy_from_slice(&from[source..source + run]);
                } else {
                    for i in first..next {
                        let (source, target) =
                            ((row * pitch + i * inner) * width, (row * step[0] + i * step[1]) * width);
                        result[target..target + width].copy_from_slice(&from[source..source + width]);
                    }
                }
                first = next;
            }
        }
    }
}

/// Memory for the operands of one execution after another.
struct Workbench {
    memory: [Guarded; 4],
    /// Random bytes that the branches are filled with, each from a place of its own.
    noise: Vec<u8>,
    /// The bytes expected of the result and around it.
    expected: Vec<u8>,
    random: Random,
}

/// Bytes around a result in which nothing may change.
const AROUND: usize = 128;

impl Workbench {
    /// Room for operands that span up to so many bytes.
    fn new(span: usize) -> Self {
        let mut random = Random::new(span as u64);
        let noise = (0..span + 1024).map(|_| random.next() as u8).collect();
        let memory = std::array::from_fn(|_| Guarded::new(span + 64));
        Self { memory, noise, expected: Vec::new(), random }
    }

    /// Runs a compiled tile on operands at some places, in place of a branch where one is named, and compares
    /// the memory of the result with the oracle's.
    fn check(
        &mut self,
        tile: &Tile,
        compiled: &CompiledPartition,
        places: [Place; 4],
        condition: Condition,
        in_place_of: Option<usize>,
    ) -> Result<(), String> {
        let target = in_place_of.unwrap_or(DST);
        let ranges: [Range<usize>; 4] =
            std::array::from_fn(|i| places[i].range(&self.memory[i], tile.span(i)));
        condition.fill(self.memory[COND].bytes_mut(ranges[COND].clone()), &mut self.random);
        for branch in [THEN, ELSE] {
            let noise = &self.noise[branch * 100..][..ranges[branch].len()];
            self.memory[branch].bytes_mut(ranges[branch].clone()).copy_from_slice(noise);
        }
        let range = ranges[target].clone();
        let around = range.start.saturating_sub(AROUND)..(range.end + AROUND).min(self.memory[target].size);
        if target == DST {
            self.memory[DST].bytes_mut(around.clone()).fill(GAP);
        }
        self.expected.clear();
        self.expected.extend_from_slice(self.memory[target].bytes(around.clone()));
        let inputs = [COND, THEN, ELSE].map(|i| self.memory[i].bytes(ranges[i].clone()));
        tile.select(inputs, &mut self.expected[range.start - around.start..range.end - around.start]);

        let addresses = std::array::from_fn(|i| self.memory[i].at(ranges[i].start));
        execute(compiled, addresses, in_place_of);

        let given = self.memory[target].bytes(around.clone());
        if given == self.expected {
            return Ok(());
        }
        let at = given.iter().zip(&self.expected).position(|(a, b)| a != b).unwrap_or(0);
        let from_start = at as isize - (range.start - around.start) as isize;
        Err(format!("byte {from_start} of the result is {:#x}, not {:#x}", given[at], self.expected[at]))
    }
}

/// Executes on operands and a result at addresses, each good for the span of its port.
fn execute(compiled: &CompiledPartition, addresses: [*mut u8; 4], in_place_of: Option<usize>) {
    let engine = compiled.engine();
    let given = [COND, THEN, ELSE].into_iter().filter(|&i| Some(i) != in_place_of);
    // SAFETY: the memory belongs to the caller, who looks at none of it meanwhile.
    let inputs: Vec<Tensor<'_>> = unsafe {
        given.map(|i| Tensor::from_raw_parts(&compiled.inputs()[i], engine, addresses[i])).collect()
    };
    let address = addresses[in_place_of.unwrap_or(DST)];
    // SAFETY: as above.
    let output = unsafe { TensorMut::from_raw_parts(&compiled.outputs()[0], engine, address) };
    let output = match in_place_of {
        Some(input) => output.in_place_of(input),
        None => output,
    };
    compiled.execute(&Stream::new(engine), &inputs, &mut [output]).unwrap();
}

/// The rows that went wrong, each with the level it ran at.
#[derive(Default)]
struct Wrong(Vec<String>);

impl Wrong {
    fn note(&mut self, level: Level, tile: &Tile, how: impl Debug, result: Result<(), String>) {
        if let Err(error) = result {
            self.0.push(format!("{level:?} {tile:?} {how:?}: {error}"));
        }
    }
}

impl Drop for Wrong {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            report(&self.0);
        }
    }
}

/// Every choice of dense and repeated operands.
fn inner_patterns() -> impl Iterator<Item = [bool; 3]> {
    (0..8u8).map(|bits| [bits & 1 == 0, bits & 2 == 0, bits & 4 == 0])
}

#[test]
fn lengths_0_to_300_with_every_inner_stride() {
    let mut wrong = Wrong::default();
    let mut bench = Workbench::new(300 * 8);
    let mut random = Random::new(1);
    for engine in engines() {
        for data_type in TYPES {
            for (length, dense) in (0..=300).flat_map(|n| inner_patterns().map(move |dense| (n, dense))) {
                let tile = Tile::row(data_type, length, dense);
                let compiled = tile.compile(&engine);
                for (places, condition) in [
                    (AT_BACK, Condition::Random),
                    (AT_FRONT, Condition::Random),
                    ([(); 4].map(|()| Place::random(&mut random)), Condition::Random),
                    ([(); 4].map(|()| Place::random(&mut random)), Condition::Runs(100)),
                    (AT_BACK, Condition::Uniform(true)),
                    (AT_BACK, Condition::Uniform(false)),
                ] {
                    let result = bench.check(&tile, &compiled, places, condition, None);
                    wrong.note(engine.level(), &tile, (places, condition), result);
                }
            }
        }
    }
}

#[test]
fn offsets_0_to_63_of_every_operand() {
    let mut wrong = Wrong::default();
    let mut bench = Workbench::new(300 * 8);
    for engine in engines() {
        for data_type in TYPES {
            for (length, dense) in
                [1, 17, 64, 130, 300].into_iter().flat_map(|n| inner_patterns().map(move |dense| (n, dense)))
            {
                let tile = Tile::row(data_type, length, dense);
                let compiled = tile.compile(&engine);
                for (operand, offset) in (0..4).flat_map(|operand| (0..64).map(move |o| (operand, o))) {
                    for mut places in [AT_BACK, AT_FRONT] {
                        places[operand] = match places[operand] {
                            Place::Back(_) => Place::Back(offset),
                            Place::Front(_) => Place::Front(offset),
                        };
                        let result = bench.check(&tile, &compiled, places, Condition::Random, None);
                        wrong.note(engine.level(), &tile, places, result);
                    }
                }
            }
        }
    }
}

#[test]
fn rows_with_pitches_of_their_own() {
    let mut wrong = Wrong::default();
    let mut bench = Workbench::new(5 * 110 * 8);
    let mut random = Random::new(3);
    for engine in engines() {
        for data_type in TYPES {
            for columns in [1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 100] {
                for _ in 0..60 {
                    let step = |random: &mut Random| {
                        [random.pick(&[0, columns, columns + 3]), random.pick(&[0, 1, 1, 1])]
                    };
                    let mut tile = Tile { data_type, rows: 2 + random.below(4), columns, steps: [[0; 2]; 4] };
                    tile.steps = [(); 4].map(|()| step(&mut random));
                    tile.steps[DST] = [columns + random.pick(&[0, 1, 3]), 1];
                    let compiled = tile.compile(&engine);
                    let in_place = compiled.in_place_pairs().first().map(|pair| pair.input.get());
                    let condition = random.pick(&[Condition::Random, Condition::Runs(3 * columns)]);
                    for (places, in_place_of) in [
                        (AT_BACK, None),
                        (AT_FRONT, None),
                        ([(); 4].map(|()| Place::random(&mut random)), None),
                        (AT_BACK, in_place),
                    ] {
                        let result = bench.check(&tile, &compiled, places, condition, in_place_of);
                        wrong.note(engine.level(), &tile, (places, condition, in_place_of), result);
                    }
                }
            }
        }
    }
}

#[test]
fn in_place_of_either_side() {
    let mut wrong = Wrong::default();
    let mut bench = Workbench::new(300 * 8);
    let mut random = Random::new(4);
    for engine in engines() {
        for data_type in TYPES {
            for (length, dense) in (1..=300).flat_map(|n| inner_patterns().map(move |dense| (n, dense))) {
                let tile = Tile::row(data_type, length, dense);
                let compiled = tile.compile(&engine);
                for branch in [THEN, ELSE].into_iter().filter(|&branch| dense[branch]) {
                    if !compiled.in_place_pairs().contains(&InPlacePair::new(branch, DST)) {
                        wrong.note(engine.level(), &tile, branch, Err("is no pair".to_owned()));
                        continue;
                    }
                    for (places, condition) in [
                        (AT_BACK, Condition::Random),
                        (AT_FRONT, Condition::Runs(100)),
                        ([(); 4].map(|()| Place::random(&mut random)), Condition::Random),
                        (AT_BACK, Condition::Uniform(random.next() & 1 == 0)),
                    ] {
                        let result = bench.check(&tile, &compiled, places, condition, Some(branch));
                        wrong.note(engine.level(), &tile, (places, condition, branch), result);
                    }
                }
            }
        }
    }
}

#[test]
fn one_odd_condition_at_every_place() {
    // (length, from one place to the next): all places where it is cheap, else places that drift through
    // every position within a block; the first and the last hundred always.
    let rows = [
        (63, 1),
        (64, 1),
        (65, 1),
        (128, 1),
        (129, 1),
        (255, 1),
        (256, 1),
        (257, 1),
        (511, 1),
        (512, 1),
        (513, 1),
        (1023, 3),
        (1024, 1),
        (1025, 3),
        (4095, 13),
        (4096, 11),
        (4097, 13),
        (16_400, 129),
        (65_537, 1021),
    ];
    let mut wrong = Wrong::default();
    let mut bench = Workbench::new(65_537 * 8);
    for engine in engines() {
        for data_type in TYPES {
            for (length, step) in rows {
                let tile = Tile::row(data_type, length, [true; 3]);
                let compiled = tile.compile(&engine);
                let edge = |at: usize| step < 100 && (at < 100 || length - at <= 100);
                for at in (0..length).filter(|&at| at % step == 0 || edge(at) || at + 1 == length) {
                    let places = if at % 2 == 0 { AT_BACK } else { AT_FRONT };
                    for value in [false, true] {
                        let condition = Condition::OneOdd(at, value);
                        // In place of the side that all but one take, and of the other, every now and then.
                        let in_place_of = [None, None, Some(THEN), Some(ELSE)][at % 4];
                        let result = bench.check(&tile, &compiled, places, condition, in_place_of);
                        wrong.note(engine.level(), &tile, (condition, in_place_of), result);
                    }
                }
            }
        }
    }
}

#[test]
fn long_rows_at_every_alignment_of_the_result() {
    // Large enough for non-temporal stores.
    const BYTES: usize = (12 << 20) + 4099;
    let mut wrong = Wrong::default();
    let mut bench = Workbench::new(BYTES);
    let mut random = Random::new(6);
    // Conditions and alignments, one of each for an execution: by turns, since an execution is long.
    let rounds = [
        (Condition::Random, Place::Back(0)),
        (Condition::Runs(3000), Place::Front(1 + random.below(63))),
        (Condition::Uniform(true), Place::Back(7)),
    ];
    let mut turn = rounds.iter().cycle();
    for engine in engines() {
        let ways = [[true; 3], [true, true, false], [true, false, true], [false, true, true]];
        for (data_type, dense) in TYPES.into_iter().flat_map(|data_type| ways.map(|dense| (data_type, dense)))
        {
            let tile = Tile::row(data_type, BYTES / data_type.size().unwrap(), dense);
            let compiled = tile.compile(&engine);
            let in_place = [None, Some(THEN), Some(ELSE)].into_iter();
            for in_place_of in in_place.filter(|branch| branch.is_none_or(|branch| dense[branch])) {
                let &(condition, place) = turn.next().unwrap();
                let mut places = [(); 4].map(|()| Place::random(&mut random));
                places[in_place_of.unwrap_or(DST)] = place;
                let result = bench.check(&tile, &compiled, places, condition, in_place_of);
                wrong.note(engine.level(), &tile, (places, condition, in_place_of), result);
            }
        }
    }
}

/// Executions with one condition and its opposite alternately, each result read by another thread as soon as
/// the execution returns.
fn read_at_once(engine: &Engine, data_type: DataType, bytes: usize, rounds: usize) -> Result<(), String> {
    let tile = Tile::row(data_type, bytes / data_type.size().unwrap(), [true; 3]);
    let compiled = tile.compile(engine);
    let bench = Workbench::new(bytes);
    let [_, mut then, mut else_, dst] = bench.memory;
    let mut random = Random::new(7);
    let mut cond = [vec![0; tile.columns], vec![0; tile.columns]];
    Condition::Runs(40).fill(&mut cond[0], &mut random);
    cond[1] = cond[0].iter().map(|&byte| u8::from(byte == 0)).collect();
    then.bytes_mut(0..bytes).copy_from_slice(&bench.noise[..bytes]);
    else_.bytes_mut(0..bytes).copy_from_slice(&bench.noise[100..bytes + 100]);
    let span = tile.span(DST);
    let expected = [0, 1].map(|i| {
        let mut result = vec![0; span];
        tile.select([&cond[i], then.bytes(0..bytes), else_.bytes(0..bytes)], &mut result);
        result
    });

    // Odd addresses of the result, so that the first and last lines of a share are no whole lines.
    let at = dst.at(1).expose_provenance();
    // Even: the writer's turn; odd: the reader's.
    let turn = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut error = None;
            for round in 0..rounds {
                while turn.load(Ordering::Acquire) != 2 * round + 1 {
                    std::hint::spin_loop();
                }
                // SAFETY: the writer waits for its turn, and the memory is mapped for as long as the scope.
                let result =
                    unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance::<u8>(at), span) };
                // The end first: it was written last.
                let half = span / 2;
                let expected = &expected[round % 2];
                if (&expected[half..], &expected[..half]) != (&result[half..], &result[..half]) {
                    let at = expected.iter().zip(result).position(|(a, b)| a != b);
                    error.get_or_insert(format!("round {round}, byte {at:?}"));
                }
                turn.store(2 * round + 2, Ordering::Release);
            }
            error
        });
        for round in 0..rounds {
            while turn.load(Ordering::Acquire) != 2 * round {
                std::hint::spin_loop();
            }
            let cond = cond[round % 2].as_ptr().cast_mut();
            execute(&compiled, [cond, then.at(0), else_.at(0), dst.at(1)], None);
            turn.store(2 * round + 1, Ordering::Release);
        }
        reader.join().unwrap().map_or(Ok(()), Err)
    })
}

#[test]
fn large_results_can_be_read_at_once_by_another_thread() {
    let mut wrong = Vec::new();
    for level in Level::all_available() {
        for threads in [1, 2] {
            let engine = Engine::builder().max_level(level).threads(threads).build();
            for (data_type, bytes, rounds) in [
                (DataType::U8, (4 << 20) + 77, 6),
                (DataType::F32, (5 << 20) + 12, 10),
                (DataType::F32, 40 << 20, 2),
                (DataType::S64, (9 << 20) + 8, 4),
            ] {
                if let Err(error) = read_at_once(&engine, data_type, bytes, rounds) {
                    wrong.push((level, threads, data_type, bytes, error));
                }
            }
        }
    }
    report(&wrong);
}
