//! Reorders: the elements of one memory, in the places and of the type of another. A reorder is a partition
//! of Sterna's graph ops.

use std::ffi::c_int;

use sterna::{Attr as OpAttr, AttrValue, DataType, Graph, LogicalTensor, Op, OpKind, Policy};
use sterna_capi::data_type;
use sterna_capi::ffi::Fault;

use crate::attr::{Attr, Quantization};
use crate::memory::Memory;
use crate::memory_desc::MemoryDesc;
use crate::nibbles;

/// Numbers of arguments of an execution.
pub(crate) mod arg {
    use std::ffi::c_int;

    pub(crate) const FROM: c_int = 1;
    pub(crate) const TO: c_int = 17;
    pub(crate) const SCALES: c_int = 4096;
    pub(crate) const ZERO_POINTS: c_int = 8192;
}

/// The id of the result in the graph; inputs have the numbers of their arguments as ids.
const RESULT: usize = arg::TO as usize;

/// A compiled reorder.
pub(crate) struct Reorder {
    compiled: sterna::CompiledPartition,
    /// The arguments that are read, with their offsets, in the order of the partition's inputs.
    inputs: Vec<Input>,
    /// The result in memory, if that holds integers of 4 bits; the partition gives bytes.
    packed: Option<LogicalTensor>,
    /// The bytes in front of the first element of the result.
    offset: usize,
}

struct Input {
    arg: c_int,
    tensor: LogicalTensor,
    /// The tensor in memory, if that holds integers of 4 bits; the partition takes bytes.
    packed: Option<LogicalTensor>,
    offset: usize,
}

impl Input {
    /// Checks memory that an execution gives.
    fn fitting<'a>(&self, memory: &'a Memory) -> Result<&'a Memory, Fault> {
        let stored = self.packed.as_ref().unwrap_or(&self.tensor);
        let (given, needed) = (memory.desc(), stored.memory_size());
        let is_of_type = given.data_type() == stored.data_type().code() as c_int;
        match is_of_type && given.bytes().is_some_and(|bytes| bytes >= needed) {
            true => Ok(memory),
            false => Err(Fault::invalid_arguments(format!(
                "argument {} takes {needed} bytes of {}",
                self.arg,
                stored.data_type()
            ))),
        }
    }
}

/// Data of an argument, as it lies or as bytes of its integers, or ones where the attributes name zero points
/// alone.
enum Value<'a> {
    Memory(&'a Memory),
    Integers(Vec<u8>),
    One(f32),
}

impl Reorder {
    pub(crate) fn compile(
        src: &MemoryDesc,
        dst: &MemoryDesc,
        engine: &sterna::Engine,
        attr: &Attr,
    ) -> Result<Self, Fault> {
        let unimplemented = Fault::unimplemented;
        if src.dims() != dst.dims() {
            let (src, dst) = (src.dims(), dst.dims());
            return Err(Fault::invalid_arguments(format!("a reorder from {src:?} to {dst:?}")));
        }
        if src.is_any() || dst.is_any() {
            return Err(Fault::invalid_arguments("a reorder to or from a layout that is not chosen yet"));
        }
        if !src.is_strided() || !dst.is_strided() || src.is_runtime() || dst.is_runtime() {
            return Err(unimplemented("a reorder of memory without known dims and strides"));
        }
        if !attr.is_quantization_alone() {
            return Err(unimplemented("a reorder with attributes other than scales and zero points"));
        }
        let steps = steps(src, dst, attr)?;
        let mut graph = Graph::new();
        let mut inputs = vec![input(src, arg::FROM)?];
        let (result, packed) = in_bytes(dst, RESULT)?;
        let mut value = inputs[0].tensor.clone();
        let last = steps.len() - 1;
        for (index, step) in steps.into_iter().enumerate() {
            let to = match index == last {
                true => result.clone(),
                false => LogicalTensor::any(RESULT + 1 + index, step.to, dst.dims())?,
            };
            let mut op = Op::new(index, step.kind).input(value).output(to.clone());
            for (name, attr_value) in step.attrs {
                op = op.attr(name, attr_value);
            }
            for input in step.inputs {
                op = op.input(input.tensor.clone());
                inputs.push(input);
            }
            graph.add_op(op)?;
            value = to;
        }
        graph.finalize()?;
        let [partition] = &graph.partitions(Policy::Fusion)?[..] else {
            return Err(unimplemented("a reorder that is more than one partition"));
        };
        if !partition.is_supported() {
            let reason = partition.unsupported_reason().unwrap_or_default().to_string();
            return Err(Fault::unimplemented(reason));
        }
        let offset = dst.offset_bytes().unwrap_or(0);
        Ok(Self { compiled: partition.compile(engine)?, inputs, packed, offset })
    }

    /// The arguments of an execution that are read.
    pub(crate) fn args(&self) -> impl Iterator<Item = c_int> {
        self.inputs.iter().filter(|input| input.offset != ONES).map(|input| input.arg)
    }

    /// Runs the reorder on memory that `memory` finds by the number of an argument.
    ///
    /// # Safety
    ///
    /// Each memory has the elements that its descriptor says, nobody writes to those that are read, and
    /// nobody else uses the result's, until the call returns.
    pub(crate) unsafe fn execute<'a>(
        &self,
        stream: &sterna::Stream,
        memory: impl Fn(c_int) -> Result<&'a Memory, Fault>,
    ) -> Result<(), Fault> {
        let values: Vec<Value<'a>> = self
            .inputs
            .iter()
            .map(|input| match (input.offset, &input.packed) {
                (ONES, _) => Ok(Value::One(1.0)),
                (_, None) => input.fitting(memory(input.arg)?).map(Value::Memory),
                (offset, Some(packed)) => {
                    let first = input.fitting(memory(input.arg)?)?.value().cast_mut();
                    let first = elements_behind(address(first, offset), packed)?;
                    // SAFETY: as the caller promises.
                    Ok(Value::Integers(unsafe { nibbles::unpacked(packed, first) }))
                }
            })
            .collect::<Result<_, Fault>>()?;
        let to = memory(arg::TO)?;
        let engine = stream.engine();
        let inputs: Vec<sterna::Tensor<'_>> = self
            .inputs
            .iter()
            .zip(&values)
            .map(|(input, value)| {
                let address = match value {
                    Value::Memory(memory) => address(memory.value().cast_mut(), input.offset).cast_const(),
                    Value::Integers(bytes) => bytes.as_ptr().cast(),
                    Value::One(one) => std::ptr::from_ref(one).cast(),
                };
                // SAFETY: as the caller promises; what this function holds outlives the tensor.
                unsafe { sterna::Tensor::from_raw_parts(&input.tensor, engine, address) }
            })
            .collect();
        let result = &self.compiled.outputs()[0];
        let place = address(to.address(), self.offset);
        let mut integers = match &self.packed {
            Some(_) => vec![0u8; result.element_count().unwrap_or(0)],
            None => Vec::new(),
        };
        let into = if self.packed.is_some() { integers.as_mut_ptr() } else { place };
        // SAFETY: as the caller promises; what this function holds outlives the tensor.
        let result = unsafe { sterna::TensorMut::from_raw_parts(result, engine, into) };
        self.compiled.execute(stream, &inputs, &mut [result])?;
        if let Some(packed) = &self.packed {
            let first = elements_behind(place, packed)?;
            // SAFETY: as the caller promises.
            unsafe { nibbles::pack(&integers, packed, first) };
        }
        Ok(())
    }
}

/// An address behind an offset; a null one stays null, for the library to refuse.
fn address(start: *mut u8, offset: usize) -> *mut u8 {
    if start.is_null() { start } else { start.wrapping_add(offset) }
}

/// An address, unless it is null and the tensor has elements.
fn elements_behind(first: *mut u8, tensor: &LogicalTensor) -> Result<*mut u8, Fault> {
    match first.is_null() && tensor.element_count() != Some(0) {
        true => Err(Fault::invalid_arguments("memory of a reorder is null")),
        false => Ok(first),
    }
}

/// The offset of an input that no argument gives: it is 1.
const ONES: usize = usize::MAX;

fn input(desc: &MemoryDesc, arg: c_int) -> Result<Input, Fault> {
    let (tensor, packed) = in_bytes(desc, arg as usize)?;
    Ok(Input { arg, tensor, packed, offset: desc.offset_bytes().unwrap_or(0) })
}

/// A tensor of a partition, and that in memory if it is another: integers of 4 bits become bytes.
fn in_bytes(desc: &MemoryDesc, id: usize) -> Result<(LogicalTensor, Option<LogicalTensor>), Fault> {
    let stored = desc.logical(id)?;
    match nibbles::in_bytes(stored.data_type()) {
        None => Ok((stored, None)),
        Some(_) if !desc.starts_with_a_byte() => {
            Err(Fault::unimplemented("a reorder of memory that begins inside a byte"))
        }
        Some(data_type) => Ok((LogicalTensor::strided(id, data_type, desc.dims())?, Some(stored))),
    }
}

/// An op of a reorder.
struct Step {
    kind: OpKind,
    to: DataType,
    attrs: Vec<(OpAttr, AttrValue)>,
    inputs: Vec<Input>,
}

impl Step {
    fn new(kind: OpKind, to: DataType) -> Self {
        Self { kind, to, attrs: Vec::new(), inputs: Vec::new() }
    }

    /// A conversion to or from a type that holds numbers in steps of a scale, which is 1 here.
    fn unscaled(kind: OpKind, to: DataType) -> Self {
        Self {
            attrs: vec![(OpAttr::Scales, AttrValue::F32s([1.0].into_iter().collect()))],
            ..Self::new(kind, to)
        }
    }

    /// A conversion with scales and zero points that are arguments.
    fn scaled(kind: OpKind, to: DataType, arg: c_int, attr: &Attr, desc: &MemoryDesc) -> Result<Self, Fault> {
        let (scales, zero_points) = (attr.scales.get(&arg), attr.zero_points.get(&arg));
        let mask = scales.or(zero_points).map_or(0, |one| one.mask);
        let axis = mask.trailing_zeros() as usize;
        let (qtype, length) = match mask {
            0 => ("per_tensor", 1),
            _ if mask.count_ones() == 1 && axis < desc.dims().len() => ("per_channel", desc.dims()[axis]),
            _ => {
                return Err(Fault::unimplemented(format!(
                    "scales of mask {mask}: along one axis or none they are"
                )));
            }
        };
        let list = |arg: c_int, one: &Quantization| {
            let data_type = data_type::from_code(one.data_type)?;
            let length = match one.mask {
                0 => 1,
                same if same == mask => length,
                _ => return Err(Fault::unimplemented("scales and zero points along different axes")),
            };
            if !one.groups.is_empty() || one.mode != crate::attr::STATIC {
                return Err(Fault::unimplemented("scales of groups"));
            }
            let tensor = LogicalTensor::strided(arg as usize, data_type, &[length])?;
            Ok(Input { arg, tensor, packed: None, offset: 0 })
        };
        let scales = match scales {
            Some(scales) if scales.mask != mask || scales.data_type != crate::attr::F32 => {
                return Err(Fault::unimplemented("scales of a type other than f32"));
            }
            Some(scales) => list(arg::SCALES | arg, scales)?,
            None if mask == 0 => {
                let tensor = LogicalTensor::strided((arg::SCALES | arg) as usize, DataType::F32, &[1])?;
                Input { arg: arg::SCALES | arg, tensor, packed: None, offset: ONES }
            }
            None => return Err(Fault::unimplemented("zero points along an axis without scales")),
        };
        let mut inputs = vec![scales];
        if let Some(zero_points) = zero_points {
            inputs.push(list(arg::ZERO_POINTS | arg, zero_points)?);
        }
        let mut attrs = vec![(OpAttr::Qtype, AttrValue::String(qtype.into()))];
        if mask != 0 {
            attrs.push((OpAttr::Axis, AttrValue::S64(axis as i64)));
        }
        Ok(Self { kind, to, attrs, inputs })
    }
}

/// The ops that make elements of one memory into those of another.
fn steps(src: &MemoryDesc, dst: &MemoryDesc, attr: &Attr) -> Result<Vec<Step>, Fault> {
    use DataType::{Bf16, F8E4m3, F8E5m2, F16, F32, F64, S8, S32, U8};
    let of = |desc: &MemoryDesc| data_type::from_code(desc.data_type());
    let (from, to) = (of(src)?, of(dst)?);
    let [from, to] = [from, to].map(|of| nibbles::in_bytes(of).unwrap_or(of));
    let is_scaled = |arg| attr.scales.contains_key(&arg) || attr.zero_points.contains_key(&arg);
    let (scales_src, scales_dst) = (is_scaled(arg::FROM), is_scaled(arg::TO));
    let known = |arg: &c_int| [arg::FROM, arg::TO].contains(arg);
    if !attr.scales.keys().chain(attr.zero_points.keys()).all(known) {
        return Err(Fault::invalid_arguments(
            "a reorder has scales and zero points of its source and its result",
        ));
    }
    let refuse = || Fault::unimplemented(format!("a reorder from {from} to {to} with these attributes"));
    if !from.is_whole() || !to.is_whole() {
        return Err(refuse());
    }
    let is_float = |one| matches!(one, F32 | Bf16 | F16 | F64);
    let is_integer = |one| matches!(one, S8 | U8 | S32);
    if !scales_src && !scales_dst {
        if from == to {
            return Ok(vec![Step::new(OpKind::Reorder, to)]);
        }
        let is_exact = is_integer(from) && to == S32;
        if is_exact || is_float(to) && (is_float(from) || is_integer(from)) {
            return Ok(vec![Step::new(OpKind::Cast, to)]);
        }
    }
    let mut steps = Vec::new();
    match from {
        S8 | U8 if scales_src => {
            steps.push(Step::scaled(OpKind::DynamicDequantize, F32, arg::FROM, attr, src)?);
        }
        _ if scales_src => return Err(refuse()),
        F32 => {}
        Bf16 | F16 | S8 | U8 | S32 => steps.push(Step::new(OpKind::Cast, F32)),
        F8E5m2 | F8E4m3 => steps.push(Step::unscaled(OpKind::Dequantize, F32)),
        _ => return Err(refuse()),
    }
    match to {
        S8 | U8 if scales_dst => steps.push(Step::scaled(OpKind::DynamicQuantize, to, arg::TO, attr, dst)?),
        _ if scales_dst => return Err(refuse()),
        F32 => {}
        Bf16 | F16 => steps.push(Step::new(OpKind::Cast, to)),
        S8 | U8 | F8E5m2 | F8E4m3 => steps.push(Step::unscaled(OpKind::Quantize, to)),
        S32 => steps.extend([Step::new(OpKind::Round, F32), Step::new(OpKind::Cast, to)]),
        _ => return Err(refuse()),
    }
    Ok(steps)
}
