//! The rows of the benches as data, and what running one needs: memory, operands, a compiled partition.
#![allow(dead_code, unreachable_pub, reason = "each bench uses a part of this")]

use std::fmt;

use sterna::{
    AutoBroadcast, CompiledPartition, DataType, Engine, Level, LogicalTensor, Op, Partition, Stream, Tensor,
    TensorMut,
};

pub const COND: usize = 0;
pub const THEN: usize = 1;
pub const ELSE: usize = 2;
pub const DST: usize = 3;

/// Types for which each shape is measured.
pub const TYPES: [DataType; 5] = [DataType::F32, DataType::F16, DataType::Bf16, DataType::U8, DataType::S64];

/// Dims and strides of a select.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    pub name: &'static str,
    /// Dims of `cond`, `then` and `else`.
    pub dims: [&'static [i64]; 3],
    /// Strides of `cond`, `then`, `else` and the result; row-major if there are none.
    pub strides: [Option<&'static [i64]>; 4],
    /// The condition of this shape in practice, besides a random one.
    pub natural: Option<Condition>,
    /// The loop that it is compared with.
    pub baseline: Baseline,
}

/// The loop with which a shape is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Baseline {
    /// A loop over the same operands.
    Same,
    /// A loop over as many elements without gaps between rows.
    Dense,
}

/// Which conditions are true.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// This many of 1000, at random.
    Random(u64),
    All(bool),
    /// Alternating runs of this many true and false conditions.
    Runs(usize),
    /// True on and below the diagonal of the last two dims.
    Causal,
    /// True in the first elements of each row: sequences of random lengths.
    Padding,
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Random(permille) => write!(f, "random-{}%", permille / 10),
            Self::All(value) => write!(f, "all-{value}"),
            Self::Runs(length) => write!(f, "runs-{length}"),
            Self::Causal => f.write_str("causal"),
            Self::Padding => f.write_str("padding"),
        }
    }
}

/// Pages of the operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pages {
    /// 4 KiB, or the smallest pages of the machine.
    Small,
    /// The largest pages that the system gives.
    Huge,
}

/// One row of the benches.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    pub shape: &'static Shape,
    pub data_type: DataType,
    pub condition: Condition,
    /// The level to run at, if not the widest.
    pub level: Option<Level>,
    /// The branch that the result replaces.
    pub in_place_of: Option<usize>,
    pub pages: Pages,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.shape.name, self.data_type.name(), self.condition)?;
        if let Some(level) = self.level {
            write!(f, "/{}", level.name())?;
        }
        match self.in_place_of {
            Some(THEN) => f.write_str("/in-place-of-then")?,
            Some(_) => f.write_str("/in-place-of-else")?,
            None => {}
        }
        if self.pages == Pages::Huge { f.write_str("/huge-pages") } else { Ok(()) }
    }
}

const RANDOM: Condition = Condition::Random(500);

const fn dense(name: &'static str, dims: [&'static [i64]; 3]) -> Shape {
    Shape { name, dims, strides: [None; 4], natural: None, baseline: Baseline::Same }
}

const SQUARE: &[i64] = &[4096, 4096];
const MIDDLE: &[i64] = &[2048, 2048];

/// Shapes whose operands are dense.
pub static DENSE: [Shape; 19] = [
    dense("all-4096x4096", [SQUARE; 3]),
    dense("all-2048x2048", [MIDDLE; 3]),
    dense("all-1024x1024", [&[1024, 1024]; 3]),
    dense("all-256x256", [&[256, 256]; 3]),
    dense("all-64x64", [&[64, 64]; 3]),
    dense("heads-8x12x512x512", [&[8, 1, 512, 512], &[8, 12, 512, 512], &[]]),
    Shape {
        natural: Some(Condition::Causal),
        ..dense("causal-1x32x1024x1024", [&[1, 1, 1024, 1024], &[1, 32, 1024, 1024], &[1]])
    },
    Shape {
        natural: Some(Condition::Padding),
        ..dense("padding-64x12x64x512", [&[64, 1, 1, 512], &[64, 12, 64, 512], &[1]])
    },
    dense("cond-column-4096x1024", [&[4096, 1], &[4096, 1024], &[4096, 1024]]),
    dense("mixed-64x256x32x256", [&[1, 256, 1, 256], &[64, 1, 32, 256], &[1, 256, 32, 1]]),
    dense("cond-alone-2x1x512x512", [&[2, 1, 512, 512], &[1], &[1]]),
    dense("then-scalar-2048x2048", [MIDDLE, &[], MIDDLE]),
    dense("then-row-2048x2048", [MIDDLE, &[2048], MIDDLE]),
    dense("then-column-2048x2048", [MIDDLE, &[2048, 1], MIDDLE]),
    dense("else-scalar-2048x2048", [MIDDLE, MIDDLE, &[]]),
    dense("else-row-2048x2048", [MIDDLE, MIDDLE, &[2048]]),
    dense("else-column-2048x2048", [MIDDLE, MIDDLE, &[2048, 1]]),
    dense("scalars-2048x2048", [MIDDLE, &[], &[]]),
    dense("row-and-column-2048x2048", [MIDDLE, &[2048], &[2048, 1]]),
];

/// Shapes with an operand that is not dense.
pub static STRIDED: [Shape; 3] = [
    Shape {
        strides: [None, Some(&[1, 4096]), None, Some(&[4096, 1])],
        ..dense("then-transposed-4096x4096", [SQUARE; 3])
    },
    // [16, 64, 128, 128], with the channels of `then` next to each other.
    Shape {
        strides: [None, Some(&[1_048_576, 1, 8192, 64]), None, Some(&[1_048_576, 16_384, 128, 1])],
        ..dense("then-channels-last-16x64x128x128", [&[16, 64, 128, 128]; 3])
    },
    Shape {
        strides: [Some(&[4112, 1]); 4],
        baseline: Baseline::Dense,
        ..dense("padded-rows-4096x4096", [SQUARE; 3])
    },
];

/// Every row, each shape with all its rows together.
pub fn all() -> Vec<Row> {
    let row = |shape, data_type, condition| Row {
        shape,
        data_type,
        condition,
        level: None,
        in_place_of: None,
        pages: Pages::Small,
    };
    let mut rows = Vec::new();
    for shape in DENSE.iter().chain(&STRIDED) {
        for data_type in TYPES {
            rows.push(row(shape, data_type, RANDOM));
            rows.extend(shape.natural.map(|condition| row(shape, data_type, condition)));
        }
        match shape.name {
            "all-4096x4096" => {
                let base = row(shape, DataType::F32, RANDOM);
                let conditions = [
                    Condition::Random(10),
                    Condition::All(true),
                    Condition::All(false),
                    Condition::Runs(8),
                    Condition::Runs(64),
                    Condition::Runs(1000),
                    Condition::Causal,
                ];
                rows.extend(conditions.map(|condition| Row { condition, ..base }));
                rows.extend(TYPES.map(|data_type| Row { data_type, pages: Pages::Huge, ..base }));
                rows.extend(Level::all_available().map(|level| Row { level: Some(level), ..base }));
                for condition in [RANDOM, Condition::Random(10), Condition::All(true), Condition::Runs(1000)]
                {
                    let in_place = [THEN, ELSE].map(Some);
                    rows.extend(in_place.map(|in_place_of| Row { in_place_of, condition, ..base }));
                }
                let types = [DataType::U8, DataType::Bf16, DataType::S64];
                rows.extend(types.map(|data_type| Row { data_type, in_place_of: Some(THEN), ..base }));
            }
            "all-256x256" | "heads-8x12x512x512" | "cond-column-4096x1024" => {
                let base = row(shape, DataType::F32, RANDOM);
                rows.push(Row { in_place_of: Some(THEN), ..base });
                if shape.dims[ELSE] == shape.dims[THEN] {
                    rows.push(Row { in_place_of: Some(ELSE), ..base });
                    rows.push(Row { condition: Condition::All(true), ..base });
                    rows.push(Row { condition: Condition::Runs(64), ..base });
                }
            }
            "causal-1x32x1024x1024" | "padding-64x12x64x512" => {
                let base = Row { in_place_of: Some(THEN), ..row(shape, DataType::F32, RANDOM) };
                rows.extend(shape.natural.map(|condition| Row { condition, ..base }));
            }
            "padded-rows-4096x4096" => {
                rows.push(Row { in_place_of: Some(THEN), ..row(shape, DataType::F32, RANDOM) });
            }
            _ => {}
        }
    }
    rows
}

/// Dims of the result; every shape here broadcasts in all directions.
pub fn result_dims(dims: [&[i64]; 3]) -> Vec<i64> {
    let rank = dims.iter().map(|dims| dims.len()).max().unwrap_or(0);
    let at = |dims: &[i64], axis: usize| (axis + dims.len()).checked_sub(rank).map_or(1, |own| dims[own]);
    (0..rank).map(|axis| dims.iter().map(|dims| at(dims, axis)).max().unwrap_or(1)).collect()
}

impl Row {
    /// The type of an operand or the result.
    pub fn type_of(&self, operand: usize) -> DataType {
        if operand == COND { DataType::Boolean } else { self.data_type }
    }

    /// The description of an operand or the result.
    pub fn desc(&self, operand: usize) -> LogicalTensor {
        let dims = match operand {
            DST => result_dims(self.shape.dims),
            _ => self.shape.dims[operand].to_vec(),
        };
        let desc = match self.shape.strides[operand] {
            Some(strides) => LogicalTensor::with_strides(operand, self.type_of(operand), &dims, strides),
            None => LogicalTensor::strided(operand, self.type_of(operand), &dims),
        };
        desc.expect("the rows are sound")
    }

    /// The bytes of each operand and, out of place, the result.
    pub fn sizes(&self) -> impl Iterator<Item = usize> {
        let count = if self.in_place_of.is_some() { DST } else { DST + 1 };
        (0..count).map(|i| self.desc(i).memory_size())
    }

    /// A partition with the row's select.
    pub fn partition(&self) -> Partition {
        let unknown = |operand| LogicalTensor::unknown(operand, self.type_of(operand));
        let op = Op::select(0, unknown(COND), unknown(THEN), unknown(ELSE), unknown(DST));
        let op = op.auto_broadcast(AutoBroadcast::Multidirectional);
        Partition::from_op(op).expect("the rows are sound")
    }

    pub fn compile(&self, engine: &Engine) -> CompiledPartition {
        let inputs = [COND, THEN, ELSE].map(|operand| self.desc(operand));
        self.partition().compile_for(engine, &inputs, &[self.desc(DST)]).expect("the rows are sound")
    }

    /// An engine's builder for the level of the row.
    pub fn engine(&self) -> sterna::EngineBuilder {
        let builder = Engine::builder();
        match self.level {
            Some(level) => builder.max_level(level),
            None => builder,
        }
    }
}

/// The memory of a row's operands, filled.
pub struct Operands {
    row: Row,
    memory: Vec<Memory>,
}

impl Operands {
    pub fn new(row: &Row, pages: Pages) -> Self {
        let memory = row.sizes().map(|size| Memory::new(size, pages)).collect();
        let mut operands = Self { row: *row, memory };
        operands.fill();
        operands
    }

    /// Addresses of the operands and the result.
    pub fn addresses(&self) -> [*mut u8; 4] {
        std::array::from_fn(|i| match (i, self.row.in_place_of) {
            (DST, Some(branch)) => self.memory[branch].first,
            _ => self.memory[i].first,
        })
    }

    /// The bytes of the result.
    pub fn result(&self) -> &[u8] {
        self.memory[self.row.in_place_of.unwrap_or(DST)].bytes()
    }

    /// Fills the operands with their initial values and the result with zeros.
    pub fn fill(&mut self) {
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        for memory in &mut self.memory[THEN..=ELSE] {
            for word in memory.bytes_mut().chunks_mut(8) {
                let bits = random.next().to_ne_bytes();
                word.copy_from_slice(&bits[..word.len()]);
            }
        }
        if let Some(result) = self.memory.get_mut(DST) {
            result.bytes_mut().fill(0);
        }
        let dims = self.row.shape.dims[COND];
        fill_condition(self.row.condition, dims, self.memory[COND].bytes_mut(), &mut random);
    }

    /// Calls `run` with the executions of a compiled partition on these operands.
    pub fn with_execution<R>(
        &self,
        compiled: &CompiledPartition,
        run: impl FnOnce(&mut dyn FnMut()) -> R,
    ) -> R {
        let engine = compiled.engine();
        let stream = Stream::new(engine);
        let addresses = self.addresses();
        let given = [COND, THEN, ELSE].into_iter().filter(|&i| Some(i) != self.row.in_place_of);
        // SAFETY: the memory has the size of the descriptions, is initialised, and lives as long as `self`.
        let inputs: Vec<_> = given
            .map(|i| unsafe { Tensor::from_raw_parts(&compiled.inputs()[i], engine, addresses[i]) })
            .collect();
        // SAFETY: as above; nobody reads the result while an execution runs.
        let output = unsafe { TensorMut::from_raw_parts(&compiled.outputs()[0], engine, addresses[DST]) };
        let mut outputs = [match self.row.in_place_of {
            Some(branch) => output.in_place_of(branch),
            None => output,
        }];
        run(&mut || compiled.execute(&stream, &inputs, &mut outputs).expect("the rows are sound"))
    }
}

fn fill_condition(condition: Condition, dims: &[i64], cond: &mut [u8], random: &mut Random) {
    let last = dims.last().map_or(1, |&dim| dim as usize);
    let before_last = dims.iter().rev().nth(1).map_or(1, |&dim| dim as usize);
    match condition {
        Condition::Random(permille) => {
            cond.iter_mut().for_each(|byte| *byte = u8::from((random.next() >> 20) % 1000 < permille));
        }
        Condition::All(value) => cond.fill(u8::from(value)),
        Condition::Runs(length) => {
            cond.chunks_mut(length).enumerate().for_each(|(i, run)| run.fill((i % 2) as u8));
        }
        Condition::Causal => {
            for (i, row) in cond.chunks_mut(last).enumerate() {
                let at = i % before_last;
                row.iter_mut().enumerate().for_each(|(j, byte)| *byte = u8::from(j <= at));
            }
        }
        Condition::Padding => {
            for row in cond.chunks_mut(last) {
                let length = 1 + (random.next() >> 20) as usize % last;
                row.iter_mut().enumerate().for_each(|(j, byte)| *byte = u8::from(j < length));
            }
        }
    }
}

/// Pseudo-random numbers, the same in each run (xorshift64*).
pub struct Random(pub u64);

impl Random {
    #[allow(clippy::should_implement_trait, reason = "it never ends")]
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

/// Zeroed memory in pages of a chosen kind.
pub struct Memory {
    first: *mut u8,
    size: usize,
    layout: std::alloc::Layout,
}

/// Bytes of a huge page; memory on huge pages is aligned to it.
const HUGE_PAGE: usize = 2 << 20;

impl Memory {
    pub fn new(size: usize, pages: Pages) -> Self {
        let align = if pages == Pages::Huge { HUGE_PAGE } else { 4096 };
        let layout = std::alloc::Layout::from_size_align(size.max(1).next_multiple_of(align), align);
        let layout = layout.expect("the rows are sound");
        // SAFETY: the size is not 0.
        let first = unsafe { std::alloc::alloc(layout) };
        if first.is_null() {
            std::alloc::handle_alloc_error(layout);
        }
        #[cfg(target_os = "linux")]
        {
            let advice = if pages == Pages::Huge { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE };
            // SAFETY: the range is the allocation, from the start of a page on.
            unsafe { libc::madvise(first.cast(), layout.size(), advice) };
        }
        // SAFETY: the allocation has so many bytes.
        unsafe { first.write_bytes(0, layout.size()) };
        Self { first, size, layout }
    }

    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the allocation has so many bytes, all written; nobody writes while the slice lives.
        unsafe { std::slice::from_raw_parts(self.first, self.size) }
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, uniquely borrowed.
        unsafe { std::slice::from_raw_parts_mut(self.first, self.size) }
    }
}

// SAFETY: memory owns its bytes as a `Box<[u8]>` does.
unsafe impl Send for Memory {}
// SAFETY: a shared reference only reads bytes; a caller that writes through an address promises exclusive
// use.
unsafe impl Sync for Memory {}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout in `new`.
        unsafe { std::alloc::dealloc(self.first, self.layout) };
    }
}
