//! Helpers of all tests: selects described as data, run through the whole workflow, and judged by an oracle
//! of its own that knows nothing of strides, loops or kernels.
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part of this")]

pub mod graphs;
pub mod guarded;
pub mod open;

use std::sync::Mutex;

use sterna::{
    Attr, AttrRow, AttrType, AttrValue, AutoBroadcast, CompiledPartition, Count, DataType, Engine, Graph,
    LogicalTensor, Op, OpKind, Partition, Port, Result, Schema, Stream, TensorBuf,
};

/// Ids of the tensors of a select.
pub const COND: usize = 0;
pub const THEN: usize = 1;
pub const ELSE: usize = 2;
pub const DST: usize = 3;

/// A select of concrete shapes and layouts.
#[derive(Debug, Clone)]
pub struct Case {
    pub mode: AutoBroadcast,
    pub axis: Option<i64>,
    pub data_type: DataType,
    /// Dims of `cond`, `then` and `else`.
    pub dims: [Vec<i64>; 3],
    /// Strides of `cond`, `then` and `else`; row-major where there are none.
    pub strides: [Option<Vec<i64>>; 3],
    /// Strides of the result; left to compilation where there are none.
    pub dst_strides: Option<Vec<i64>>,
}

impl Case {
    pub fn new(mode: AutoBroadcast, data_type: DataType, dims: [&[i64]; 3]) -> Self {
        let dims = dims.map(<[i64]>::to_vec);
        Self { mode, axis: None, data_type, dims, strides: [None, None, None], dst_strides: None }
    }

    pub fn op(&self) -> Op {
        let unknown = LogicalTensor::unknown;
        let data = self.data_type;
        let op = Op::select(
            0,
            unknown(COND, DataType::Boolean),
            unknown(THEN, data),
            unknown(ELSE, data),
            unknown(DST, data),
        );
        let op = op.auto_broadcast(self.mode);
        match self.axis {
            Some(axis) => op.axis(axis),
            None => op,
        }
    }

    pub fn inputs(&self) -> Result<Vec<LogicalTensor>> {
        (0..3)
            .map(|i| {
                let data_type = if i == COND { DataType::Boolean } else { self.data_type };
                match &self.strides[i] {
                    Some(strides) => LogicalTensor::with_strides(i, data_type, &self.dims[i], strides),
                    None => LogicalTensor::strided(i, data_type, &self.dims[i]),
                }
            })
            .collect()
    }

    pub fn output(&self, dims: Option<&[i64]>) -> Result<LogicalTensor> {
        match &self.dst_strides {
            Some(strides) => open::with_layout(DST, self.data_type, dims, open::strides(strides)),
            None => Ok(LogicalTensor::unknown(DST, self.data_type)),
        }
    }

    pub fn compile(&self, engine: &Engine) -> Result<CompiledPartition> {
        let dims = broadcast(self.mode, self.axis, &self.dims);
        Partition::from_op(self.op())?.compile_for(engine, &self.inputs()?, &[self.output(dims.as_deref())?])
    }

    /// Compiles and runs the case on bytes from `random`, and says what is wrong with the result.
    pub fn check(&self, engine: &Engine, random: &mut Random) -> std::result::Result<(), String> {
        let compiled = self.compile(engine).map_err(|error| error.to_string())?;
        let inputs = self.filled(&compiled, engine, random);
        let mut output =
            TensorBuf::zeroed(compiled.outputs()[0].clone(), engine).map_err(|e| e.to_string())?;
        output.as_mut_bytes().fill(GAP);
        run(&compiled, engine, &inputs, &mut output).map_err(|error| error.to_string())?;
        self.compare(&inputs, &output)
    }

    /// Inputs with random bytes; half of the conditions are false, the others any other byte.
    pub fn filled(
        &self,
        compiled: &CompiledPartition,
        engine: &Engine,
        random: &mut Random,
    ) -> Vec<TensorBuf> {
        let fill = |desc: &LogicalTensor| {
            let mut tensor = TensorBuf::zeroed(desc.clone(), engine).unwrap();
            let is_cond = desc.id() == COND;
            for byte in tensor.as_mut_bytes() {
                let bits = random.next();
                *byte = if is_cond && bits & 0x100 != 0 { 0 } else { bits as u8 };
            }
            tensor
        };
        compiled.inputs().iter().map(fill).collect()
    }

    /// Compares a result with the oracle, byte for byte; bytes between elements must still be [`GAP`].
    pub fn compare(&self, inputs: &[TensorBuf], output: &TensorBuf) -> std::result::Result<(), String> {
        let dims = broadcast(self.mode, self.axis, &self.dims).ok_or("the oracle refuses the shapes")?;
        if output.desc().dims() != Some(&dims[..]) {
            return Err(format!("the result is {:?}, not {dims:?}", output.desc().dims()));
        }
        let size = self.data_type.size().unwrap();
        let mut expected = vec![GAP; output.as_bytes().len()];
        let starts = starts(self.mode, self.axis, &self.dims, dims.len());
        for index in indices(&dims) {
            let offset = |i: usize| {
                let own = &self.dims[i];
                let strides = inputs[i].desc().strides().unwrap();
                (0..own.len())
                    .map(|d| if own[d] == 1 { 0 } else { index[starts[i] + d] * strides[d] })
                    .sum::<i64>() as usize
            };
            let from = if inputs[COND].as_bytes()[offset(COND)] != 0 { THEN } else { ELSE };
            let source = offset(from) * size;
            let strides = output.desc().strides().unwrap();
            let target = index.iter().zip(strides).map(|(i, s)| i * s).sum::<i64>() as usize * size;
            expected[target..target + size].copy_from_slice(&inputs[from].as_bytes()[source..source + size]);
        }
        match expected.iter().zip(output.as_bytes()).position(|(a, b)| a != b) {
            Some(at) => Err(format!("byte {at} is {:#x}, not {:#x}", output.as_bytes()[at], expected[at])),
            None => Ok(()),
        }
    }
}

/// The value of the bytes of an output before an execution.
pub const GAP: u8 = 0xa5;

pub fn run(
    compiled: &CompiledPartition,
    engine: &Engine,
    inputs: &[TensorBuf],
    output: &mut TensorBuf,
) -> Result<()> {
    let inputs: Vec<_> = inputs.iter().map(TensorBuf::as_tensor).collect();
    compiled.execute(&Stream::new(engine), &inputs, &mut [output.as_tensor_mut()])
}

/// Every index tuple of a shape.
pub fn indices(dims: &[i64]) -> Vec<Vec<i64>> {
    dims.iter().fold(vec![vec![]], |prefixes, &dim| {
        let extend = |prefix: &Vec<i64>| (0..dim).map(|i| [&prefix[..], &[i]].concat()).collect::<Vec<_>>();
        prefixes.iter().flat_map(extend).collect()
    })
}

/// The dim of the result at which each operand's first dim stands.
fn starts(mode: AutoBroadcast, axis: Option<i64>, dims: &[Vec<i64>; 3], rank: usize) -> [usize; 3] {
    let axis = axis.filter(|&axis| mode == AutoBroadcast::Pdpd && axis != -1);
    let right = |i: usize| rank - dims[i].len();
    [axis.map_or(right(COND), |a| a as usize), right(THEN), axis.map_or(right(ELSE), |a| a as usize)]
}

/// The broadcasting rules by brute force: operands are padded to one rank with ones, then held against each
/// other dim by dim. `None` where the shapes do not fit.
pub fn broadcast(mode: AutoBroadcast, axis: Option<i64>, dims: &[Vec<i64>; 3]) -> Option<Vec<i64>> {
    let padded = |dims: &[i64], rank: usize| [&vec![1; rank - dims.len()][..], dims].concat();
    let join = |a: &[i64], b: &[i64]| -> Option<Vec<i64>> {
        let rank = a.len().max(b.len());
        let pairs = padded(a, rank).into_iter().zip(padded(b, rank));
        pairs.map(|(x, y)| if x == y || y == 1 { Some(x) } else { (x == 1).then_some(y) }).collect()
    };
    let fits = |a: &[i64], onto: &[i64]| a.len() <= onto.len() && join(a, onto).as_deref() == Some(onto);
    let [cond, then, else_] = dims;
    match mode {
        AutoBroadcast::None => (cond == then && then == else_).then(|| then.clone()),
        AutoBroadcast::Numpy => join(then, else_).filter(|result| fits(cond, result)),
        AutoBroadcast::Multidirectional => join(&join(cond, then)?, else_),
        AutoBroadcast::Pdpd => {
            let placed = |operand: &[i64]| -> bool {
                let start = match axis.unwrap_or(-1) {
                    -1 => then.len() as i64 - operand.len() as i64,
                    axis => axis,
                };
                let behind = then.len() as i64 - start - operand.len() as i64;
                start >= 0 && behind >= 0 && fits(&[operand, &vec![1; behind as usize][..]].concat(), then)
            };
            (placed(cond) && placed(else_)).then(|| then.clone())
        }
        _ => None,
    }
}

/// Where choices come from: numbers that look random and are the same from run to run (xorshift64*), or bytes
/// that spell the choices out, as a fuzzer does.
#[derive(Debug, Clone)]
pub enum Random {
    Seed(u64),
    Bytes(std::vec::IntoIter<u8>),
}

impl Random {
    pub fn new(seed: u64) -> Self {
        Self::Seed(seed.wrapping_mul(2).wrapping_add(1))
    }

    /// Each choice takes as many bytes as it needs; behind the last one, all choices are 0.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Self::Bytes(Vec::from(bytes).into_iter())
    }

    /// True if bytes spelled the choices out and none is left.
    pub fn is_spent(&self) -> bool {
        matches!(self, Self::Bytes(bytes) if bytes.len() == 0)
    }

    #[allow(clippy::should_implement_trait, reason = "it never ends")]
    pub fn next(&mut self) -> u64 {
        match self {
            Self::Seed(state) => {
                *state ^= *state >> 12;
                *state ^= *state << 25;
                *state ^= *state >> 27;
                state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
            }
            Self::Bytes(_) => self.spelled(8),
        }
    }

    /// A number below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        let number = match self {
            Self::Seed(_) => self.next(),
            Self::Bytes(_) if n <= 1 => 0,
            Self::Bytes(_) => self.spelled(1 + (n - 1).ilog2() / 8),
        };
        (number % n as u64) as usize
    }

    fn spelled(&mut self, count: u32) -> u64 {
        let Self::Bytes(bytes) = self else { unreachable!("a seed spells nothing out") };
        (0..count).fold(0, |number, _| number << 8 | u64::from(bytes.next().unwrap_or(0)))
    }

    /// One of some values.
    pub fn pick<T: Clone>(&mut self, values: &[T]) -> T {
        values[self.below(values.len())].clone()
    }
}

/// One engine for each level that the machine runs, on one thread.
pub fn engines() -> Vec<Engine> {
    sterna::Level::all_available()
        .map(|level| Engine::builder().max_level(level).threads(1).build())
        .collect()
}

/// Random graphs by seed. `STERNA_FUSION_SEEDS` sets how many instead of `most`, `STERNA_FUSION_FIRST` where
/// to start.
pub fn seeds(most: u64) -> std::ops::Range<u64> {
    let number = |name: &str, default: u64| {
        std::env::var(name).ok().and_then(|number| number.parse().ok()).unwrap_or(default)
    };
    let first = number("STERNA_FUSION_FIRST", 0);
    first..first + number("STERNA_FUSION_SEEDS", most)
}

/// The faults of some cases, looked for on all processors: all of them, or some more than `most`.
pub fn faults_of<T: Send, F: IntoIterator<Item: Send>>(
    cases: impl IntoIterator<Item = T, IntoIter: Send>,
    most: usize,
    of_case: impl Fn(T) -> F + Sync,
) -> Vec<F::Item> {
    let (cases, faults) = (Mutex::new(cases.into_iter()), Mutex::new(Vec::new()));
    let work = || {
        while faults.lock().unwrap().len() < most {
            let Some(case) = cases.lock().unwrap().next() else { break };
            let found: Vec<F::Item> = of_case(case).into_iter().collect();
            faults.lock().unwrap().extend(found);
        }
    };
    std::thread::scope(|scope| {
        (0..std::thread::available_parallelism().map_or(1, Into::into)).for_each(|_| drop(scope.spawn(work)));
    });
    faults.into_inner().unwrap()
}

/// Fails with all rows that went wrong.
pub fn report<T: std::fmt::Debug>(wrong: &[T]) {
    assert!(wrong.is_empty(), "{} rows are wrong: {:#?}", wrong.len(), &wrong[..wrong.len().min(20)]);
}

/// By how many units in the last place two elements differ: 0 for equal bits alone, and as much as can be
/// where only one is NaN or the type is no floating-point one.
pub fn ulps_apart(a: &[u8], b: &[u8], data_type: DataType) -> u64 {
    if a == b {
        return 0;
    }
    let infinity: i64 = match data_type {
        DataType::F64 => 0x7ff0_0000_0000_0000,
        DataType::F32 => 0x7f80_0000,
        DataType::F16 => 0x7c00,
        DataType::Bf16 => 0x7f80,
        _ => return u64::MAX,
    };
    let ordered = |element: &[u8]| {
        let bits = if cfg!(target_endian = "little") {
            element.iter().rev().fold(0i64, |bits, &byte| bits << 8 | i64::from(byte))
        } else {
            element.iter().fold(0i64, |bits, &byte| bits << 8 | i64::from(byte))
        };
        let sign = 1i64 << (8 * element.len() - 1);
        let size = bits & sign.wrapping_sub(1);
        (size <= infinity).then_some(if bits & sign == 0 { size } else { -size })
    };
    match (ordered(a), ordered(b)) {
        (Some(a), Some(b)) => a.abs_diff(b).max(1),
        _ => u64::MAX,
    }
}

/// Ops whose elements follow from others by indices, which must be in range, or from whole lines.
pub const LOOKUPS: [OpKind; 11] = [
    OpKind::ArgMax,
    OpKind::ArgMin,
    OpKind::CacheStore,
    OpKind::Gather,
    OpKind::GatherBackward,
    OpKind::GatherElements,
    OpKind::GatherND,
    OpKind::PagedLoad,
    OpKind::ScatterElements,
    OpKind::ScatterND,
    OpKind::TopK,
];

/// An op of a kind that a graph takes: as few tensors as the row of the kind allows, of the first types that
/// suit it, and the attributes that it must have. Of the tensors only the types are known; inputs have ids
/// from 0, outputs from 100.
pub fn plain_op(kind: OpKind) -> Op {
    let schema = Schema::of(kind);
    let counts = |count: Count| (0..8).filter(move |&n| count.allows(n));
    let types = || DataType::ALL.iter().copied();
    let candidates = counts(schema.input_count).flat_map(|inputs| {
        counts(schema.output_count).flat_map(move |outputs| {
            types().flat_map(move |first| {
                types().map(move |other| typed_op(schema, [inputs, outputs], first, other))
            })
        })
    });
    let taken = |op: &Op| Graph::new().add_op(op.clone()).is_ok();
    candidates.map(with_required).find(taken).unwrap_or_else(|| panic!("no op of kind {kind} is taken"))
}

/// An op of so many inputs and outputs without attributes. A port of the type variable of the first port has
/// the type `first`, any other `other`; where a port cannot have that, it has the first type that it can
/// have.
fn typed_op(schema: &Schema, [inputs, outputs]: [usize; 2], first: DataType, other: DataType) -> Op {
    let first_variable = schema.inputs.iter().chain(schema.outputs).next().map(|port| port.type_variable);
    let type_of = |port: &Port| {
        let wanted = if Some(port.type_variable) == first_variable { first } else { other };
        match schema.types.iter().find(|(variable, _)| *variable == port.type_variable) {
            Some((_, allowed)) if !allowed.contains(&wanted) => allowed[0],
            _ => wanted,
        }
    };
    op_of_types(
        schema,
        &port_types(schema.inputs, inputs, type_of),
        &port_types(schema.outputs, outputs, type_of),
    )
}

/// The types of so many ports; the last port of a row stands for all that follow.
fn port_types(ports: &[Port], count: usize, type_of: impl Fn(&Port) -> DataType) -> Vec<DataType> {
    (0..count).map(|i| ports.get(i).or(ports.last()).map_or(DataType::F32, &type_of)).collect()
}

/// An op of these types without attributes.
pub fn op_of_types(schema: &Schema, inputs: &[DataType], outputs: &[DataType]) -> Op {
    let tensor = |(id, &data_type): (usize, &DataType)| LogicalTensor::unknown(id, data_type);
    let op = Op::new(7, schema.kind).inputs_from(inputs.iter().enumerate().map(tensor));
    outputs.iter().enumerate().fold(op, |op, (i, data_type)| op.output(tensor((100 + i, data_type))))
}

/// The op with the attributes that it must have and lacks.
pub fn with_required(op: Op) -> Op {
    // One of `sizes` and `scales` must be given, which is a check of the row and no attribute's own.
    let sizes = |attr| attr == Attr::Sizes;
    let rows = Schema::of(op.kind()).attributes.iter().filter(|row| row.required || sizes(row.attr));
    let missing: Vec<&AttrRow> = rows.filter(|row| op.get_attr(row.attr).is_none()).collect();
    missing.into_iter().fold(op, |op, row| op.attr(row.attr, some_value(row)))
}

/// A value that an attribute may have.
pub fn some_value(row: &AttrRow) -> AttrValue {
    match row.value_type {
        AttrType::Bool => true.into(),
        AttrType::S64 => 0i64.into(),
        AttrType::F32 => 1f32.into(),
        AttrType::String => row.allowed.first().copied().unwrap_or("per_tensor").into(),
        AttrType::S64s => vec![1i64].into(),
        AttrType::F32s => vec![1f32].into(),
    }
}

/// A file of the repository that a test can write.
pub struct Golden(std::path::PathBuf);

impl Golden {
    pub fn at(path: &str) -> Self {
        Self(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(path))
    }

    pub fn text(&self) -> String {
        std::fs::read_to_string(&self.0).unwrap_or_default().replace("\r\n", "\n")
    }

    /// A sentence on the place where the file does not hold this text. With `STERNA_REWRITE` set in the
    /// environment it holds it afterwards, and nothing is wrong.
    pub fn differs_from(&self, text: &str) -> Option<String> {
        if self.text() == text {
            return None;
        }
        if std::env::var_os("STERNA_REWRITE").is_some() {
            std::fs::write(&self.0, text).unwrap();
            return None;
        }
        let (is, should): (Vec<String>, Vec<String>) =
            (self.text().lines().map(Into::into).collect(), text.lines().map(Into::into).collect());
        let line = (0..).find(|&line| is.get(line) != should.get(line)).unwrap_or(0);
        Some(format!(
            "{}, line {}: {:?} should be {:?}; STERNA_REWRITE=1 rewrites it",
            self.0.display(),
            line + 1,
            is.get(line),
            should.get(line)
        ))
    }
}
