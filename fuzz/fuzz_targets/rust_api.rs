//! Sequences of calls on the Rust API, most of them with arguments that fit together, many not.
//!
//! Nothing panics, every error has a sentence and no status of a defect, and what is refused writes nothing.
#![no_main]

use std::collections::BTreeMap;
use std::mem::MaybeUninit;

use libfuzzer_sys::fuzz_target;
use sterna::reference::{self, Value};
use sterna::{
    Attr, AttrType, AttrValue, AutoBroadcast, CompiledPartition, DataType, Element, Engine, Error, FpMath,
    FpMathMode, Graph, Layout, LogicalTensor, Op, Partition, Policy, Property, Result, Schema, Status,
    Stream, Tensor, TensorBuf, TensorFault, TensorMut,
};
use sterna_fuzz::common::{GAP, Random};
use sterna_fuzz::{ENGINES, MOST_BYTES, PLAIN_OPS, Tight, check_json, one_of_the_engines, some_kind, trace};

type Call = fn(&mut World);

/// Calls by name, the frequent ones more than once.
const CALLS: &[(&str, Call)] = &[
    ("describe", World::describe),
    ("build an op", World::build_op),
    ("build an op", World::build_op),
    ("set an attribute", World::set_attr),
    ("add an op", World::add_op),
    ("add an op", World::add_op),
    ("add an op", World::add_op),
    ("start a graph", World::start_graph),
    ("set the math mode", World::set_fpmath),
    ("finalize", World::finalize),
    ("partition", World::partition),
    ("partition", World::partition),
    ("partition one op", World::partition_op),
    ("compile", World::compile),
    ("compile", World::compile),
    ("compile", World::compile),
    ("execute", World::execute),
    ("execute", World::execute),
    ("execute", World::execute),
    ("interpret", World::interpret),
    ("bind memory", World::bind),
    ("set the cache's capacity", World::set_capacity),
];

/// How many of each thing are held; a further one takes the place of another.
const MOST_HELD: usize = 6;
/// Tensors and ops have ids below this, so that they meet.
const IDS: usize = 12;
const MOST_CALLS: usize = 200;

fuzz_target!(|bytes: &[u8]| {
    let mut world = World::new(Random::from_bytes(bytes));
    for _ in 0..MOST_CALLS {
        if world.random.is_spent() {
            break;
        }
        let (name, call) = world.random.pick(CALLS);
        trace(name);
        call(&mut world);
    }
    sterna::set_compiled_partition_cache_capacity(1024);
});

/// The objects that the calls so far have made.
struct World {
    random: Random,
    /// The dims that most shapes have, or broadcast to.
    dims: Vec<i64>,
    /// The first mention of each tensor.
    mentions: BTreeMap<usize, LogicalTensor>,
    descs: Vec<LogicalTensor>,
    ops: Vec<Op>,
    graphs: Vec<Graph>,
    partitions: Vec<Partition>,
    compiled: Vec<CompiledPartition>,
}

/// The value, where there is one; an error must be one that a caller can make.
fn seen<T>(result: Result<T>) -> Option<T> {
    result.map_err(|error| check_error(&error)).ok()
}

fn check_error(error: &Error) {
    assert!(!error.to_string().is_empty(), "{error:?} has no sentence");
    assert_ne!(error.status(), Status::RuntimeError, "{error}");
    assert_ne!(error.status(), Status::Success, "{error}");
}

impl World {
    fn new(mut random: Random) -> Self {
        let dims = (0..random.below(5)).map(|_| random.pick(&[1, 2, 3, 5, 8, 17, 33])).collect();
        Self {
            random,
            dims,
            mentions: BTreeMap::new(),
            descs: Vec::new(),
            ops: Vec::new(),
            graphs: vec![Graph::new()],
            partitions: Vec::new(),
            compiled: Vec::new(),
        }
    }

    /// True once in so many times, where something is to go wrong.
    fn errs(&mut self, times: usize) -> bool {
        self.random.below(times) == times - 1
    }

    fn odd_number(&mut self) -> i64 {
        let odd = [0, 1, -1, 2, 13, 1 << 31, (1 << 32) + 1, 1 << 62, i64::MAX, i64::MIN, i64::MIN + 1];
        self.random.pick(&odd)
    }

    fn odd_numbers(&mut self) -> Vec<i64> {
        (0..self.random.below(15)).map(|_| self.odd_number()).collect()
    }

    /// Dims that broadcast to those of the world, or any.
    fn some_dims(&mut self) -> Vec<i64> {
        if self.errs(24) {
            return self.odd_numbers();
        }
        let lacking = if self.random.below(4) == 0 { self.random.below(self.dims.len() + 1) } else { 0 };
        let dims = self.dims[lacking..].to_vec();
        dims.into_iter().map(|dim| if self.random.below(6) == 5 { 1 } else { dim }).collect()
    }

    fn some_strides(&mut self, dims: &[i64]) -> Vec<i64> {
        if self.errs(24) {
            return self.odd_numbers();
        }
        let mut stride = 1i64;
        let mut strides: Vec<i64> = (dims.iter().rev())
            .map(|dim| {
                let own = stride;
                stride = stride.saturating_mul((*dim).max(1)).saturating_add(self.random.below(8) as i64 / 7);
                own
            })
            .collect();
        strides.reverse();
        if self.random.below(4) == 0 && strides.len() > 1 {
            strides.swap(0, 1);
        }
        if self.random.below(8) == 7 && !strides.is_empty() {
            let axis = self.random.below(strides.len());
            strides[axis] = 0;
        }
        strides
    }

    /// A description by any of the ways to make one.
    fn desc(&mut self, id: usize, data_type: DataType) -> Option<LogicalTensor> {
        let dims = self.some_dims();
        let desc = match self.random.below(8) {
            0..3 => LogicalTensor::strided(id, data_type, &dims),
            3..5 => {
                let strides = self.some_strides(&dims);
                LogicalTensor::with_strides(id, data_type, &dims, &strides)
            }
            5 => Ok(LogicalTensor::unknown(id, data_type)),
            6 => LogicalTensor::any(id, data_type, &dims),
            _ => {
                let strides = self.some_strides(&dims);
                let mut partial = |numbers: Vec<i64>| -> Vec<Option<i64>> {
                    numbers.into_iter().map(|number| (self.random.below(8) != 7).then_some(number)).collect()
                };
                let (dims, strides) = (partial(dims), partial(strides));
                let strided = Layout::Strided(strides.into_iter().collect());
                let layouts = [Layout::Undef, Layout::Any, strided, Layout::Opaque(7)];
                let (layout, has_rank) = (self.random.pick(&layouts), self.random.below(4) != 0);
                LogicalTensor::with_layout(id, data_type, has_rank.then_some(&dims), layout)
            }
        };
        let desc = seen(desc)?;
        let desc = match self.random.below(16) {
            property @ 12..16 => seen(desc.with_property(Property::ALL[property - 12]))?,
            _ => desc,
        };
        check_desc(&desc);
        Some(desc)
    }

    fn some_type(&mut self) -> DataType {
        self.random.pick(DataType::ALL)
    }

    fn describe(&mut self) {
        let (id, data_type) = (self.random.below(IDS), self.some_type());
        if let Some(desc) = self.desc(id, data_type) {
            keep(&mut self.descs, desc, &mut self.random);
        }
    }

    /// A mention of a tensor of a type: mostly one that other ops mention as well.
    fn mention(&mut self, data_type: DataType) -> LogicalTensor {
        if !self.descs.is_empty() && self.errs(16) {
            return self.random.pick(&self.descs);
        }
        let id = self.random.below(IDS);
        if let Some(known) = self.mentions.get(&id)
            && known.data_type() == data_type
        {
            return known.clone();
        }
        let id =
            if self.mentions.contains_key(&id) && !self.errs(16) { IDS + self.mentions.len() } else { id };
        let desc = self.desc(id, data_type).unwrap_or_else(|| LogicalTensor::unknown(id, data_type));
        self.mentions.entry(id).or_insert(desc).clone()
    }

    fn build_op(&mut self) {
        let kind = some_kind(&mut self.random);
        let id = self.random.below(IDS) + if self.errs(8) { usize::MAX - IDS } else { 0 };
        let plain = &PLAIN_OPS[&kind];
        let mut op = Op::new(id, kind);
        for (attr, value) in plain.attrs() {
            op = op.attr(attr, value.clone());
        }
        let typed = |world: &mut Self, port: &LogicalTensor| {
            if world.errs(32) { world.some_type() } else { port.data_type() }
        };
        for port in plain.inputs() {
            let data_type = typed(self, port);
            op = op.input(self.mention(data_type));
        }
        for port in plain.outputs() {
            let data_type = typed(self, port);
            let fresh = IDS + self.mentions.len();
            let output = match self.errs(8) {
                true => self.mention(data_type),
                false => LogicalTensor::unknown(fresh, data_type),
            };
            self.mentions.insert(output.id().get(), output.clone());
            op = op.output(output);
        }
        if self.errs(16) {
            let name = self.random.pick(&["", "a", "\"\\\n\0é", "Select_0"]);
            op = op.named(name);
        }
        if self.errs(32) {
            op = op.input(self.mention(DataType::F32));
        }
        let _ = Schema::of(kind);
        keep(&mut self.ops, op, &mut self.random);
    }

    fn set_attr(&mut self) {
        let Some(index) = self.index(self.ops.len()) else { return };
        let op = self.ops.swap_remove(index);
        let rows = Schema::of(op.kind()).attributes;
        let (attr, value_type, allowed) = match rows.is_empty() || self.errs(8) {
            true => {
                let attr = self.random.pick(Attr::ALL);
                (attr, self.random.pick(&[AttrType::Bool, AttrType::S64, AttrType::S64s]), &[][..])
            }
            false => {
                let row = self.random.pick(rows);
                (row.attr, row.value_type, row.allowed)
            }
        };
        let number = self.odd_number();
        let float = self.random.pick(&[0.0, -1.0, 1.0, 0.5, f32::NAN, f32::INFINITY, f32::MAX, -0.0]);
        let value: AttrValue = match value_type {
            AttrType::Bool => (number & 1 == 1).into(),
            AttrType::S64 if self.random.below(2) == 0 => (self.random.below(6) as i64 - 3).into(),
            AttrType::S64 => number.into(),
            AttrType::F32 => float.into(),
            AttrType::String if allowed.is_empty() || self.errs(4) => "multidirectional".into(),
            AttrType::String => self.random.pick(allowed).into(),
            AttrType::S64s if self.random.below(2) == 0 => self.some_dims().into(),
            AttrType::S64s => self.odd_numbers().into(),
            AttrType::F32s => vec![float; self.random.below(4)].into(),
        };
        let op = match self.random.below(8) {
            6 => op.axis(number),
            7 => op.auto_broadcast(AutoBroadcast::ALL[self.random.below(4)]),
            _ => op.attr(attr, value),
        };
        let _ = format!("{op:?}");
        self.ops.push(op);
    }

    /// The library alone says which ops partitions take; its answer must not depend on who asks.
    fn add_op(&mut self) {
        let (Some(op), Some(graph)) = (self.index(self.ops.len()), self.index(self.graphs.len())) else {
            return;
        };
        let op = self.ops[op].clone();
        let before = self.graphs[graph].clone();
        if seen(self.graphs[graph].add_op(op)).is_none() {
            assert_eq!(self.graphs[graph], before, "a refused op changed the graph");
        }
    }

    fn start_graph(&mut self) {
        keep(&mut self.graphs, Graph::new(), &mut self.random);
    }

    fn set_fpmath(&mut self) {
        let Some(graph) = self.index(self.graphs.len()) else { return };
        let mode = self.random.pick(FpMathMode::ALL);
        seen(self.graphs[graph].set_fpmath(FpMath::new(mode).apply_to_int(self.random.below(2) == 0)));
    }

    fn finalize(&mut self) {
        let Some(index) = self.index(self.graphs.len()) else { return };
        let graph = &mut self.graphs[index];
        seen(graph.finalize());
        let ends = graph.inputs().len() + graph.outputs().len();
        assert!(ends <= graph.ops().iter().map(|op| op.inputs().len() + op.outputs().len()).sum());
        check_json(graph);
    }

    fn partition(&mut self) {
        let Some(index) = self.index(self.graphs.len()) else { return };
        if !self.graphs[index].is_finalized() && !self.errs(8) {
            seen(self.graphs[index].finalize());
        }
        let policy = self.random.pick(Policy::ALL);
        let graph = &self.graphs[index];
        let Some(partitions) = seen(graph.partitions(policy)) else { return };
        seen(graph.explain()).expect("the graph is finalized, or its partitions would not be there");
        let ops: usize = partitions.iter().map(|partition| partition.ops().len()).sum();
        assert_eq!(ops, graph.ops().len());
        for partition in partitions {
            assert_eq!(partition.is_supported(), partition.unsupported_reason().is_none());
            if partition.is_supported() || self.errs(8) {
                keep(&mut self.partitions, partition, &mut self.random);
            }
        }
    }

    fn partition_op(&mut self) {
        let Some(index) = self.index(self.ops.len()) else { return };
        if let Some(partition) = seen(Partition::from_op(self.ops[index].clone())) {
            keep(&mut self.partitions, partition, &mut self.random);
        }
    }

    /// A description of a port for compilation.
    fn concrete(&mut self, port: &LogicalTensor, is_output: bool) -> LogicalTensor {
        let known = port.dims().map(<[i64]>::to_vec);
        if self.errs(24) {
            let data_type = self.some_type();
            return self.desc(port.id().get(), data_type).unwrap_or_else(|| port.clone());
        }
        if is_output && self.random.below(2) == 0 {
            return LogicalTensor::unknown(port.id(), port.data_type());
        }
        let dims = match known {
            Some(dims) if !self.errs(8) => dims,
            _ => self.some_dims(),
        };
        let strides = self.some_strides(&dims);
        let strided = match self.random.below(2) {
            0 => LogicalTensor::strided(port.id(), port.data_type(), &dims),
            _ => LogicalTensor::with_strides(port.id(), port.data_type(), &dims, &strides),
        };
        let desc = seen(strided).unwrap_or_else(|| port.clone());
        seen(desc.clone().with_property(port.property())).unwrap_or(desc)
    }

    fn compile(&mut self) {
        let Some(index) = self.index(self.partitions.len()) else { return };
        let partition = self.partitions[index].clone();
        let mut concrete = |ports: &[LogicalTensor], is_output: bool| {
            let mut descs: Vec<_> = ports.iter().map(|port| self.concrete(port, is_output)).collect();
            match self.random.below(32) {
                30 => drop(descs.pop()),
                31 => descs.reverse(),
                29 => descs.extend(self.descs.first().cloned()),
                28 => descs.extend(descs.first().cloned()),
                _ => {}
            }
            descs
        };
        let (inputs, outputs) = (concrete(partition.inputs(), false), concrete(partition.outputs(), true));
        let engine = one_of_the_engines(&mut self.random);
        let Some(compiled) = seen(partition.compile_for(engine, &inputs, &outputs)) else { return };
        for port in compiled.inputs().iter().chain(compiled.outputs()) {
            check_desc(port);
            assert_eq!(compiled.port(port.id()), Ok(port));
        }
        let no_port = Error::Tensor { id: usize::MAX.into(), fault: TensorFault::NoPort };
        assert_eq!(compiled.port(usize::MAX), Err(no_port));
        let _ = (compiled.bytes_moved(), compiled.scratchpad_size());
        keep(&mut self.compiled, compiled, &mut self.random);
    }

    fn execute(&mut self) {
        let Some(index) = self.index(self.compiled.len()) else { return };
        let compiled = self.compiled[index].clone();
        let is_small = |desc: &LogicalTensor| {
            desc.memory_size() <= MOST_BYTES / 16 && desc.span().is_some_and(|span| span <= MOST_BYTES / 128)
        };
        if !compiled.inputs().iter().chain(compiled.outputs()).all(is_small)
            || compiled.scratchpad_size() > MOST_BYTES
        {
            return;
        }
        // The tensors are those that were compiled, or in few places others.
        let mut given = |ports: &[LogicalTensor]| -> Vec<LogicalTensor> {
            let other = |world: &mut Self, port: &LogicalTensor| match world.errs(24) {
                true => world.concrete(port, false),
                false => port.clone(),
            };
            let mut descs: Vec<_> = ports.iter().map(|port| other(self, port)).collect();
            match self.random.below(32) {
                31 => descs.reverse(),
                30 => drop(descs.pop()),
                29 => descs.extend(self.descs.first().cloned()),
                _ => {}
            }
            descs.retain(|desc| is_small(desc) && desc.data_type().size().is_some());
            descs
        };
        let (inputs, outputs) = (given(compiled.inputs()), given(compiled.outputs()));
        let mut memory = |descs: &[LogicalTensor], byte: Option<u8>| -> Vec<Tight> {
            let filled = |desc: &LogicalTensor| {
                let mut tight = Tight::new(desc, self.random.below(4));
                tight.bytes().iter_mut().enumerate().for_each(|(i, to)| *to = byte.unwrap_or(i as u8 ^ 0x5a));
                tight
            };
            descs.iter().map(filled).collect()
        };
        let (sources, mut targets) = (memory(&inputs, None), memory(&outputs, Some(GAP)));
        let other_engine = Engine::builder().threads(1).build();
        let engine = if self.errs(32) { &other_engine } else { compiled.engine() };
        let stream = Stream::new(if self.errs(32) { &other_engine } else { compiled.engine() });
        let mut tensors: Vec<Tensor<'_>> = (sources.iter().zip(&inputs))
            .map(|(tight, desc)| match desc.is_host_scalar() {
                true => scalar(desc),
                false => tight.tensor(desc, engine),
            })
            .collect();
        let mut results: Vec<TensorMut<'_>> =
            targets.iter_mut().zip(&outputs).map(|(tight, desc)| tight.tensor_mut(desc, engine)).collect();
        if self.random.below(4) == 0
            && let Some(first) = results.pop()
        {
            let pair = compiled.in_place_pairs().first();
            let input = match pair {
                Some(pair) if !self.errs(4) => pair.input.get(),
                _ => self.random.below(IDS),
            };
            if self.random.below(4) != 0 {
                tensors.retain(|tensor| tensor.desc().id() != input);
            }
            results.push(first.in_place_of(input));
        }
        let result = match self.random.below(4) {
            0 => {
                let lacking = usize::from(self.errs(8));
                let size = compiled.scratchpad_size().saturating_sub(lacking);
                let mut scratch = vec![MaybeUninit::uninit(); size];
                compiled.execute_with_scratchpad(&stream, &tensors, &mut results, &mut scratch)
            }
            _ => compiled.execute(&stream, &tensors, &mut results),
        };
        drop(results);
        if seen(result).is_none() {
            let untouched = targets.iter_mut().all(|target| target.bytes().iter().all(|&byte| byte == GAP));
            assert!(untouched, "an execution that was refused has written");
        }
    }

    fn interpret(&mut self) {
        let Some(index) = self.index(self.ops.len()) else { return };
        let op = self.ops[index].clone();
        seen(reference::supports(&op));
        let values: Option<Vec<Value>> = (op.inputs().iter())
            .map(|input| {
                let mut dims = self.some_dims();
                dims.truncate(2);
                let size = usize::try_from(elements(&dims)?).ok().filter(|&count| count <= 64)?;
                let bytes = vec![self.random.next() as u8; size * input.data_type().size()?];
                seen(Value::new(input.data_type(), &dims, bytes))
            })
            .collect();
        // A result that takes its shape from an attribute can be of any size; the sanitizer ends the process
        // where memory for it cannot be had.
        let is_small = [Attr::Shape, Attr::SrcShape].iter().all(|&attr| match op.get_attr(attr) {
            Some(AttrValue::S64s(dims)) => elements(dims).is_none_or(|count| count <= 4096),
            _ => true,
        });
        if let Some(values) = values.filter(|_| is_small) {
            seen(reference::run(&op, &values));
        }
    }

    /// Memory of Rust types for tensors that may have another type or size.
    fn bind(&mut self) {
        let Some(index) = self.index(self.descs.len()) else { return };
        let desc = self.descs[index].clone();
        let count = self.random.below(40);
        fn of<T: Element>(desc: &LogicalTensor, zero: T, count: usize) {
            let engine = &ENGINES[0];
            let mut elements = vec![zero; count];
            seen(Tensor::new(desc, engine, &elements).map(|tensor| Value::read(&tensor)));
            seen(TensorMut::new(desc, engine, &mut elements).map(|_| ()));
            seen(Tensor::scalar(desc, zero).map(|tensor| Value::read(&tensor)));
            let Some(mut buffer) = seen(TensorBuf::zeroed(desc.clone(), engine)) else { return };
            seen(buffer.as_slice::<T>().map(<[T]>::len));
            if let Some(elements) = seen(buffer.as_mut_slice::<T>()) {
                elements.fill(zero);
            }
            assert!(buffer.as_bytes().iter().all(|&byte| byte == 0));
        }
        match self.random.below(6) {
            0 => of(&desc, 0u8, count),
            1 => of(&desc, 0.0f32, count),
            2 => of(&desc, 0i32, count),
            3 => of(&desc, 0i64, count),
            4 => of(&desc, 0u16, count),
            _ => of(&desc, 0.0f64, count),
        }
    }

    fn set_capacity(&mut self) {
        let capacity = self.random.pick(&[0, 1, 2, 3, 1024, usize::MAX]);
        sterna::set_compiled_partition_cache_capacity(capacity);
        assert_eq!(sterna::compiled_partition_cache_capacity(), capacity);
        assert!(sterna::compiled_partition_cache_stats().len <= capacity);
    }

    fn index(&mut self, len: usize) -> Option<usize> {
        (len > 0).then(|| self.random.below(len))
    }
}

fn keep<T>(held: &mut Vec<T>, value: T, random: &mut Random) {
    if held.len() < MOST_HELD {
        held.push(value);
    } else {
        held[random.below(MOST_HELD)] = value;
    }
}

/// How many elements some dims have, if that can be said.
fn elements(dims: &[i64]) -> Option<i64> {
    dims.iter().try_fold(1i64, |count, &dim| count.checked_mul(dim))
}

fn scalar(desc: &LogicalTensor) -> Tensor<'_> {
    let made = match desc.data_type() {
        DataType::F32 => Tensor::scalar(desc, 1.5f32),
        DataType::S32 => Tensor::scalar(desc, 3i32),
        _ => Tensor::scalar(desc, 3i64),
    };
    made.expect("a host scalar is of one of three types")
}

/// The answers of a description agree with each other.
fn check_desc(desc: &LogicalTensor) {
    assert_eq!(&desc.clone(), desc);
    let (size, span, count) = (desc.memory_size(), desc.span(), desc.element_count());
    assert_eq!(desc.partial_dims().map(|dims| dims.len()), desc.rank());
    if let (Some(span), Some(count), Some(bytes)) = (span, count, desc.data_type().size()) {
        assert_eq!(span == 0, count == 0, "{desc:?}");
        assert!(size == 0 || size >= bytes, "{desc:?}");
        assert!(count > 0 || size == 0, "{desc:?}");
    }
}
