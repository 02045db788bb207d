//! The values of a group of ops, by position, with definitions and shapes.

use rustc_hash::FxHashMap;
use smallvec::{SmallVec, smallvec};

use super::composites::{self, CompositePart, PartOperand};
use super::forms::form_of;
use super::view::{NestBox, Obstacle, View};
use crate::compile::shapes::{MAX_ELEMENTS, check_inferred, is_countable};
use crate::error::{CompileFault, Error, Result};
use crate::graph::function::{Composite, Function, Movement};
use crate::graph::infer::{self, DimRange, Placement};
use crate::graph::logical_tensor::LogicalTensor;
use crate::graph::masking::additive_masks;
use crate::graph::op::Op;
use crate::partition::Partition;
use crate::partition::matches::Match;
use crate::partition::pointwise::{Pointwise, TypedFunction};
use crate::plan::{Base, OfValues, ValueId};
use crate::types::dtype::DataType;
use crate::types::function::{Binary, computes_in_f32};
use crate::types::id::TensorId;
use crate::types::shape::{self, Dims, SaturatingProduct};

/// The values of a partition: its inputs, then the results of its ops in run order.
#[derive(Clone)]
pub(in crate::compile) struct ShapedGroup {
    pub(in crate::compile) values: OfValues<GroupValue>,
    /// Number of inputs of the partition.
    pub(in crate::compile) inputs: usize,
    /// The values that are outputs of the partition.
    pub(in crate::compile) outputs: SmallVec<[ValueId; 2]>,
    /// The first result of each op.
    pub(in crate::compile) results: Vec<ValueId>,
    /// The ops that are not pointwise, in run order.
    pub(in crate::compile) anchors: Vec<Anchor>,
    /// The dequantisations, in run order.
    dequantizations: Vec<Dequantization>,
}

/// An op that turns integers, or small floats, into numbers.
#[derive(Clone)]
pub(in crate::compile) struct Dequantization {
    /// The op, by its index in the partition.
    pub(in crate::compile) op: usize,
    /// The values of its inputs.
    pub(in crate::compile) inputs: SmallVec<[ValueId; 3]>,
    /// The value that it gives.
    value: ValueId,
}

/// A tensor within a group.
#[derive(Clone)]
pub(in crate::compile) struct GroupValue {
    pub(in crate::compile) data_type: DataType,
    pub(in crate::compile) dims: Dims,
    /// Its definition; `None` for an input and for the result of an anchor.
    pub(in crate::compile) def: Option<ValueDef>,
}

/// An op that is not pointwise: a phase of its own computes its results.
#[derive(Clone)]
pub(in crate::compile) struct Anchor {
    /// The op, by its index in the partition.
    pub(in crate::compile) op: usize,
    /// The op that runs, if others run in the place of that of the partition.
    pub(in crate::compile) form: Option<Op>,
    /// The values of its inputs, and of its outputs.
    pub(in crate::compile) inputs: SmallVec<[ValueId; 3]>,
    pub(in crate::compile) outputs: SmallVec<[ValueId; 1]>,
}

/// A value in memory, or where a driver supplies it.
#[derive(Debug, Clone, Copy)]
pub(in crate::compile) struct Stored<'a> {
    pub(in crate::compile) base: Base,
    /// Strides in elements; `None` for row-major ones, and for those of a driver.
    pub(in crate::compile) strides: Option<&'a [i64]>,
}

impl GroupValue {
    /// Bytes of its elements.
    pub(in crate::compile) fn bytes(&self) -> usize {
        bytes_of(shape::element_count(&self.dims).unwrap_or(0) as usize, self.data_type)
    }

    /// Bytes of the elements that are distinct in memory with these strides.
    pub(in crate::compile) fn distinct_bytes(&self, strides: &[i64]) -> usize {
        let varying = self.dims.iter().zip(strides).filter(|&(_, &stride)| stride != 0);
        let elements = varying.map(|(&dim, _)| dim as usize).saturating_product();
        bytes_of(elements, self.data_type)
    }
}

/// Definition of a value from others.
#[derive(Clone)]
pub(in crate::compile) struct ValueDef {
    pub(in crate::compile) pointwise: TypedFunction,
    /// The values whose data is used, and for each the dim of the result at which its first dim starts.
    pub(in crate::compile) operands: SmallVec<[(ValueId, usize); 3]>,
    /// The axis of an index.
    pub(in crate::compile) axis: usize,
    /// The elements of a fill in row-major order; a single one is repeated.
    pub(in crate::compile) constants: Vec<f32>,
    /// The places of its elements in its operands, if it moves them.
    pub(in crate::compile) moved: Option<Moved>,
}

/// The places in its operands from which an op moves the elements of its result.
#[derive(Clone)]
pub(in crate::compile) enum Moved {
    /// Dim `i` of the result is dim `order[i]` of the operand.
    Transposed(SmallVec<[usize; 6]>),
    /// The operand has the same elements in the same order.
    Reshaped,
    /// The result has a range of each dim of the operand.
    Sliced(SmallVec<[DimRange; 6]>),
    /// The operands follow each other along an axis; the places at which they start, and the size of the dim.
    Concatenated { axis: usize, firsts: Dims },
}

impl Moved {
    fn new(movement: Movement, op: &Op, operands: &[&[i64]]) -> Result<Self> {
        Ok(match movement {
            Movement::Transpose => Self::Transposed(infer::resolved_order(op, operands[0])?),
            Movement::Reshape => Self::Reshaped,
            Movement::Slice => Self::Sliced(infer::slice_ranges(op, operands[0])?),
            Movement::Concat => {
                let axis = infer::resolved_axis(op, operands[0])?;
                let mut firsts: Dims = [0].as_slice().into();
                firsts.extend(operands.iter().scan(0, |end, dims| {
                    *end += dims[axis];
                    Some(*end)
                }));
                Self::Concatenated { axis, firsts }
            }
        })
    }
}

/// A group to which inputs and ops are added in run order.
struct GroupBuilder<'p> {
    partition: &'p Partition,
    /// The outputs of the partition, as far as their shapes are given.
    given: &'p [&'p LogicalTensor],
    /// True if the partition has phases that are no maps.
    has_phases: bool,
    /// For each op the operand that masks scores, if one does; empty for all but attention.
    masks: Vec<Option<usize>>,
    values: OfValues<GroupValue>,
    positions: FxHashMap<TensorId, ValueId>,
    anchors: Vec<Anchor>,
    dequantizations: Vec<Dequantization>,
    /// The next id of a tensor between ops that run in the place of one.
    next_id: usize,
}

impl GroupBuilder<'_> {
    fn add_input(&mut self, input: &LogicalTensor) -> Result<()> {
        let dims: Dims = input.dims().unwrap_or_default().into();
        let reaches_far = self.has_phases && input.span().is_none_or(|span| span as i64 > MAX_ELEMENTS);
        if reaches_far || !is_countable(&dims, input.data_type(), self.has_phases) {
            let fault = CompileFault::TooLarge { tensor: input.id(), dims };
            return Err(Error::Compile { partition: self.partition.id(), fault });
        }
        let value = self.values.push(GroupValue { data_type: input.data_type(), dims, def: None });
        self.positions.insert(input.id(), value);
        Ok(())
    }

    /// Adds an op, or those that run in its place.
    fn add_op(&mut self, index: usize, op: &Op) -> Result<()> {
        let operands = self.operands(op);
        if Pointwise::of(op).is_some() {
            return self.add_one(index, op, false);
        }
        let (positions, mut next) = (&self.positions, self.next_id);
        let mut fresh = || {
            while positions.contains_key(&TensorId::new(next)) {
                next = next.wrapping_sub(1);
            }
            next = next.wrapping_sub(1);
            TensorId::new(next.wrapping_add(1))
        };
        let form = form_of(op, &self.dims(&operands), &mut fresh)?;
        self.next_id = next;
        match form.is_empty() {
            true => self.add_one(index, op, false),
            false => {
                // Errors name the op of the graph.
                let shapes = self.shapes(op, &operands)?;
                shapes.iter().enumerate().try_for_each(|(output, dims)| self.check(op, output, dims))?;
                form.iter().try_for_each(|op| self.add_one(index, op, true))
            }
        }
    }

    /// The values of the inputs of an op.
    fn operands(&self, op: &Op) -> SmallVec<[ValueId; 3]> {
        op.inputs().iter().map(|input| self.positions[&input.id()]).collect()
    }

    fn add_one(&mut self, index: usize, op: &Op, is_form: bool) -> Result<()> {
        let operands = self.operands(op);
        match Pointwise::of(op) {
            None => self.add_anchor(index, op, operands, is_form),
            Some(Pointwise::Composite(kind)) => self.add_composite(index, op, kind, &operands),
            Some(Pointwise::Function(function)) => self.add_function(index, op, function, &operands),
        }
    }

    fn add_anchor(
        &mut self,
        index: usize,
        op: &Op,
        operands: SmallVec<[ValueId; 3]>,
        is_form: bool,
    ) -> Result<()> {
        let shapes = self.shapes(op, &operands)?;
        let mut results = SmallVec::new();
        for (output, (result, dims)) in op.outputs().iter().zip(shapes).enumerate() {
            self.check(op, output, &dims)?;
            let value = self.values.push(GroupValue { data_type: result.data_type(), dims, def: None });
            self.positions.insert(result.id(), value);
            results.push(value);
        }
        let form = is_form.then(|| op.clone());
        self.anchors.push(Anchor { op: index, form, inputs: operands, outputs: results });
        Ok(())
    }

    /// Adds an op of several functions.
    fn add_composite(
        &mut self,
        index: usize,
        op: &Op,
        kind: Composite,
        operands: &SmallVec<[ValueId; 3]>,
    ) -> Result<()> {
        self.shapes(op, operands)?;
        let composite = composites::parts(op, kind, &self.dims(operands))?;
        let first = self.values.next_id();
        self.values.extend(composite.parts.into_iter().map(|part| value_of(part, operands, first)));
        for (output, (result, part)) in op.outputs().iter().zip(composite.outputs).enumerate() {
            self.check(op, output, &self.values[first + part].dims)?;
            self.positions.insert(result.id(), first + part);
            if kind == Composite::Dequantize {
                let (value, inputs) = (first + part, operands.clone());
                self.dequantizations.push(Dequantization { op: index, inputs, value });
            }
        }
        Ok(())
    }

    fn add_function(
        &mut self,
        index: usize,
        op: &Op,
        pointwise: TypedFunction,
        operands: &[ValueId],
    ) -> Result<()> {
        let (placement, moved) = match pointwise.function {
            Function::Move(movement) => {
                let result = self.shapes(op, operands)?[0].clone();
                let moved = Moved::new(movement, op, &self.dims(operands))?;
                (Placement { result, starts: smallvec![0; operands.len()] }, Some(moved))
            }
            _ => {
                let placement = infer::placement(op, &self.dims(operands))?;
                (placement.ok_or_else(|| self.unsupported(op))?, None)
            }
        };
        let result = &op.outputs()[0];
        if let Some(&Some(mask)) = self.masks.get(index)
            && computes_in_f32(self.values[operands[mask]].data_type)
        {
            let parts = composites::masking_add(op, mask, &self.dims(operands), &placement);
            self.check(op, 0, &placement.result)?;
            let first = self.values.next_id();
            self.values.extend(parts.parts.into_iter().map(|part| value_of(part, operands, first)));
            self.positions.insert(result.id(), first + parts.outputs[0]);
            return Ok(());
        }
        let axis = match pointwise.function {
            Function::Index => infer::resolved_axis(op, &placement.result)?,
            _ => 0,
        };
        // An index uses its operand, an input or another value of the group, for the shape alone.
        let operands = match pointwise.function {
            Function::Index => SmallVec::new(),
            _ => operands.iter().copied().zip(placement.starts).collect(),
        };
        self.check(op, 0, &placement.result)?;
        let constants = match pointwise.function {
            Function::Fill(number) => vec![number],
            _ => Vec::new(),
        };
        let def = Some(ValueDef { pointwise, operands, axis, constants, moved });
        let of_result = GroupValue { data_type: result.data_type(), dims: placement.result, def };
        let value = self.values.push(of_result);
        self.positions.insert(result.id(), value);
        Ok(())
    }

    fn dims(&self, operands: &[ValueId]) -> SmallVec<[&[i64]; 3]> {
        operands.iter().map(|&value| &self.values[value].dims[..]).collect()
    }

    /// The shapes of the results of an op.
    fn shapes(&self, op: &Op, operands: &[ValueId]) -> Result<SmallVec<[Dims; 1]>> {
        infer::output_shapes(op, &self.dims(operands))?.ok_or_else(|| self.unsupported(op))
    }

    /// Refuses the dims of a result that are not those given for it, or too large.
    fn check(&self, op: &Op, output: usize, dims: &Dims) -> Result<()> {
        let result = op.outputs()[output].id();
        let given = self.given.iter().find(|output| output.id() == result).copied();
        check_inferred(op, output, given, dims, self.has_phases)
    }

    fn unsupported(&self, op: &Op) -> Error {
        let fault = CompileFault::Unsupported(format!("no kernel runs {}", op.kind()));
        Error::Compile { partition: self.partition.id(), fault }
    }
}

impl ShapedGroup {
    /// Infers the shapes of all values from those of the inputs.
    pub(in crate::compile) fn new(
        partition: &Partition,
        inputs: &[&LogicalTensor],
        outputs: &[&LogicalTensor],
    ) -> Result<Self> {
        let masks = match partition.matched() {
            Some(Match::Attention { .. } | Match::AttentionBackward { .. }) => {
                additive_masks(partition.ops())
            }
            _ => Vec::new(),
        };
        let mut builder = GroupBuilder {
            partition,
            given: outputs,
            has_phases: partition.matched().is_some_and(|found| *found != Match::Elementwise),
            masks,
            values: OfValues::with_capacity(inputs.len() + partition.ops().len()),
            positions: FxHashMap::default(),
            anchors: Vec::new(),
            dequantizations: Vec::new(),
            next_id: usize::MAX,
        };
        inputs.iter().try_for_each(|input| builder.add_input(input))?;
        partition.ops().iter().enumerate().try_for_each(|(index, op)| builder.add_op(index, op))?;
        let GroupBuilder { values, positions, anchors, dequantizations, .. } = builder;
        let outputs = outputs.iter().map(|output| positions[&output.id()]).collect();
        let results = partition.ops().iter().map(|op| positions[&op.outputs()[0].id()]).collect();
        Ok(Self { values, inputs: inputs.len(), outputs, results, anchors, dequantizations })
    }

    /// The places of the inputs, given the strides of the ports, inputs first.
    pub(in crate::compile) fn stored_inputs<'a>(&self, ports: &[&'a [i64]]) -> OfValues<Option<Stored<'a>>> {
        let input = |port: usize| Stored { base: Base::Port(port), strides: Some(ports[port]) };
        self.values.ids().map(|ValueId(place)| (place < self.inputs).then(|| input(place))).collect()
    }

    /// The place of an output, by its index among the outputs.
    pub(in crate::compile) fn stored_output<'a>(&self, output: usize, ports: &[&'a [i64]]) -> Stored<'a> {
        let port = self.inputs + output;
        Stored { base: Base::Port(port), strides: Some(ports[port]) }
    }

    /// The values from whose data a value is computed: the operands of its op. None for an input.
    pub(in crate::compile) fn operands(&self, value: ValueId) -> SmallVec<[ValueId; 3]> {
        match &self.values[value].def {
            Some(def) => def.operands.iter().map(|&(operand, _)| operand).collect(),
            None => {
                self.anchor_of(value).map(|anchor| self.anchors[anchor].inputs.clone()).unwrap_or_default()
            }
        }
    }

    /// The anchor of an op that is not pointwise.
    pub(in crate::compile) fn anchor(&self, op: usize) -> Option<usize> {
        self.anchors.iter().position(|anchor| anchor.op == op)
    }

    /// The anchor whose result a value is.
    pub(in crate::compile) fn anchor_of(&self, value: ValueId) -> Option<usize> {
        self.anchors.iter().position(|anchor| anchor.outputs.contains(&value))
    }

    /// The group without masks between two values: each Select on the path from `from` to `to` becomes the
    /// branch on the path. `None` if the path has no Select, or if there are several paths. If there is one
    /// path, an element of `to` depends on `from` exactly if each Select chooses the branch on the path.
    pub(in crate::compile) fn without_masks(&self, from: ValueId, to: ValueId) -> Option<Self> {
        let path = self.only_path(from, to)?;
        let masks: Vec<_> = path.into_iter().filter(|&(value, place)| self.is_mask(value, place)).collect();
        (!masks.is_empty()).then(|| self.with_passed_on(&masks))
    }

    /// As [`without_masks`](Self::without_masks) for a path on which numbers are added as a mask: sums behind
    /// which nothing but masks stands pass on the value that is masked, as they do where they add 0. Returns
    /// the sums too (decision: left-out-sums). `None` if there are none.
    pub(in crate::compile) fn without_added_masks(
        &self,
        from: ValueId,
        to: ValueId,
    ) -> Option<(Self, Vec<ValueId>)> {
        let path = self.only_path(from, to)?;
        let is_sum = |&&(value, place): &&(ValueId, usize)| self.is_added_mask(value, place);
        let behind = path
            .iter()
            .take_while(|&&(value, place)| self.is_mask(value, place) || self.is_added_mask(value, place));
        let sums: Vec<(ValueId, usize)> = behind.filter(is_sum).copied().collect();
        if sums.is_empty() {
            return None;
        }
        let masks = path.iter().copied().filter(|&(value, place)| self.is_mask(value, place));
        let passed_on: Vec<_> = masks.chain(sums.iter().copied()).collect();
        Some((self.with_passed_on(&passed_on), sums.into_iter().map(|(value, _)| value).collect()))
    }

    /// True if a value is the choice between what is masked, an operand of this place, and something else.
    fn is_mask(&self, value: ValueId, place: usize) -> bool {
        let Some(def) = &self.values[value].def else { return false };
        def.pointwise.function == Function::Select && place > 0 && self.is_alike(value, place)
    }

    /// True if a value is the sum of what is masked, an operand of this place, and another number.
    fn is_added_mask(&self, value: ValueId, place: usize) -> bool {
        let Some(def) = &self.values[value].def else { return false };
        let of = self.values[value].data_type;
        let is_sum =
            matches!(def.pointwise.function, Function::Binary(Binary::Add, _)) && computes_in_f32(of);
        is_sum && self.is_alike(value, place) && self.values[def.operands[place].0].data_type == of
    }

    /// True if an operand has the dims of the value.
    fn is_alike(&self, value: ValueId, place: usize) -> bool {
        let of = |def: &ValueDef| self.values[def.operands[place].0].dims == self.values[value].dims;
        self.values[value].def.as_ref().is_some_and(of)
    }

    /// The values on the path from `from` to `to`, the last one first, each with the place of the operand
    /// that the path comes through; `None` if there are several paths.
    fn only_path(&self, from: ValueId, to: ValueId) -> Option<Vec<(ValueId, usize)>> {
        let mut depends = OfValues::new(self.values.len(), false);
        for value in self.values.ids() {
            depends[value] =
                value == from || self.operands(value).into_iter().any(|operand| depends[operand]);
        }
        let mut path = Vec::new();
        let mut value = to;
        while value != from {
            let def = self.values[value].def.as_ref()?;
            let mut ways =
                def.operands.iter().copied().enumerate().filter(|&(_, (operand, _))| depends[operand]);
            let (Some((place, (operand, _))), None) = (ways.next(), ways.next()) else { return None };
            path.push((value, place));
            value = operand;
        }
        Some(path)
    }

    /// The group in which each of some values is an unchanged copy of one of its operands.
    fn with_passed_on(&self, values: &[(ValueId, usize)]) -> Self {
        let mut group = self.clone();
        for &(value, place) in values {
            if let Some(def) = &mut group.values[value].def {
                let computes_in = self.values[value].data_type;
                let pointwise = TypedFunction { function: Function::Identity, computes_in };
                let operands = smallvec![def.operands[place]];
                *def = ValueDef { pointwise, operands, axis: 0, constants: Vec::new(), moved: None };
            }
        }
        group
    }

    /// The group in which a value is an unchanged copy of another one, so that strides lead to its elements.
    pub(in crate::compile) fn with_operand_of(&self, value: ValueId, operand: ValueId) -> Self {
        let mut group = self.clone();
        let data_type = group.values[operand].data_type;
        let pointwise = TypedFunction { function: Function::Identity, computes_in: data_type };
        let (operands, constants) = (smallvec![(operand, 0)], Vec::new());
        group.values[value].def = Some(ValueDef { pointwise, operands, axis: 0, constants, moved: None });
        group.values[value].data_type = data_type;
        group
    }

    /// The group with an unchanged copy of a value as a further one.
    pub(in crate::compile) fn with_copy(&self, value: ValueId) -> (Self, ValueId) {
        let mut group = self.clone();
        let copy = group.values.push(self.values[value].clone());
        (group.with_operand_of(copy, value), copy)
    }

    /// The group with a value in another type as a further one.
    pub(in crate::compile) fn with_conversion(&self, value: ValueId, data_type: DataType) -> (Self, ValueId) {
        let mut group = self.clone();
        let pointwise = TypedFunction { function: Function::Convert, computes_in: data_type };
        let (operands, constants) = (smallvec![(value, 0)], Vec::new());
        let def = Some(ValueDef { pointwise, operands, axis: 0, constants, moved: None });
        let dims = group.values[value].dims.clone();
        let converted = group.values.push(GroupValue { data_type, dims, def });
        (group, converted)
    }

    /// The group with a further value of some dims, whose elements are those of another one, moved.
    pub(in crate::compile) fn with_moved(&self, from: ValueId, moved: Moved, dims: Dims) -> (Self, ValueId) {
        let mut group = self.clone();
        let data_type = group.values[from].data_type;
        let movement = match moved {
            Moved::Transposed(_) => Movement::Transpose,
            Moved::Reshaped => Movement::Reshape,
            Moved::Sliced(_) => Movement::Slice,
            Moved::Concatenated { .. } => Movement::Concat,
        };
        let pointwise = TypedFunction { function: Function::Move(movement), computes_in: data_type };
        let (operands, constants) = (smallvec![(from, 0)], Vec::new());
        let def = ValueDef { pointwise, operands, axis: 0, constants, moved: Some(moved) };
        let value = group.values.push(GroupValue { data_type, dims, def: Some(def) });
        (group, value)
    }

    /// The value that another one repeats in another type of floating-point numbers.
    pub(in crate::compile) fn converted(&self, value: ValueId) -> Option<ValueId> {
        let def = self.values[value].def.as_ref()?;
        let (operand, _) = *def.operands.first()?;
        let are_floats = [value, operand].iter().all(|&of| computes_in_f32(self.values[of].data_type));
        let converts = matches!(def.pointwise.function, Function::Convert | Function::Identity);
        let is_whole = self.values[operand].dims == self.values[value].dims;
        (converts && are_floats && is_whole).then_some(operand)
    }

    /// The dequantisation that gives a value.
    pub(in crate::compile) fn dequantized(&self, value: ValueId) -> Option<&Dequantization> {
        self.dequantizations.iter().find(|found| found.value == value)
    }

    /// The value that another one is with dims in another order, or as it is.
    pub(in crate::compile) fn moved_from(&self, value: ValueId) -> Option<ValueId> {
        let def = self.values[value].def.as_ref()?;
        let moves = match &def.moved {
            Some(Moved::Concatenated { .. }) => false,
            Some(_) => true,
            None => {
                let operand = def.operands.first()?.0;
                def.pointwise.function == Function::Identity
                    && self.values[operand].dims == self.values[value].dims
            }
        };
        moves.then(|| def.operands.first().map(|&(operand, _)| operand)).flatten()
    }

    /// The value that only moves separate from an output, and the strides with which the value is written to
    /// the output, given the strides of the output. `None` if other ops need the value, if it is an input, or
    /// if no strides lead to all its elements.
    pub(in crate::compile) fn written_as(&self, output: ValueId, strides: &[i64]) -> Option<(ValueId, Dims)> {
        let from = self.moved_from(output)?;
        let [of_output, of_from] = [output, from].map(|value| &self.values[value]);
        let users = |value: ValueId| {
            let used = self.values.ids().filter(|&user| self.operands(user).contains(&value)).count();
            used + self.outputs.iter().filter(|&&other| other == value).count()
        };
        let is_alike = of_output.data_type == of_from.data_type && !of_from.dims.contains(&0);
        if from.0 < self.inputs || !is_alike || users(from) != 1 {
            return None;
        }
        let (dims, extents) = (&of_output.dims, &of_from.dims);
        let strides = match of_output.def.as_ref()?.moved.as_ref() {
            None => strides.into(),
            Some(Moved::Transposed(order)) => {
                let mut of_from = Dims::from_elem(0, order.len());
                order.iter().zip(strides).for_each(|(&dim, &stride)| of_from[dim] = stride);
                of_from
            }
            Some(Moved::Reshaped) => {
                let view = NestBox::of_dims(extents).view().reshaped(extents, dims);
                view.strides(dims, strides, extents).ok()?.1
            }
            Some(Moved::Sliced(_) | Moved::Concatenated { .. }) => return None,
        };
        Some((from, strides))
    }

    /// The only user of a value, if that has the value's dims in an order: axis `i` is axis `order[i]` of the
    /// value.
    pub(in crate::compile) fn only_transposed(
        &self,
        value: ValueId,
    ) -> Option<(ValueId, SmallVec<[usize; 6]>)> {
        let mut users = self.values.ids().filter(|&user| self.operands(user).contains(&value));
        let (user, None) = (users.next()?, users.next()) else { return None };
        let def = self.values[user].def.as_ref()?;
        match &def.moved {
            Some(Moved::Transposed(order)) => Some((user, order.clone())),
            None if self.moved_from(user) == Some(value) => {
                Some((user, (0..self.values[value].dims.len()).collect()))
            }
            _ => None,
        }
    }

    /// The value with some dims whose elements another value has in the same order.
    pub(in crate::compile) fn reshaped_from(&self, mut value: ValueId, dims: &[i64]) -> Option<ValueId> {
        while self.values[value].dims[..] != *dims {
            let def = self.values[value].def.as_ref()?;
            value = match &def.moved {
                Some(Moved::Reshaped) => def.operands.first()?.0,
                Some(_) => return None,
                None => self.moved_from(value)?,
            };
        }
        Some(value)
    }

    /// The view of an operand of a value, given the view of the value and the extents of a nest.
    pub(in crate::compile) fn operand_view(
        &self,
        value: ValueId,
        operand: ValueId,
        start: usize,
        view: &View,
        extents: &[i64],
    ) -> Result<View, Obstacle> {
        let (dims, operand) = (&self.values[value].dims, &self.values[operand].dims);
        match self.values[value].def.as_ref().and_then(|def| def.moved.as_ref()) {
            Some(Moved::Transposed(order)) => view.transposed(dims, order, extents),
            Some(Moved::Reshaped) => Ok(view.reshaped(dims, operand)),
            Some(Moved::Sliced(ranges)) => {
                view.sliced(dims, ranges.iter().map(|range| (range.start, range.step)), extents)
            }
            Some(Moved::Concatenated { .. }) | None => view.broadcast(dims, operand, start, extents),
        }
    }

    /// Bytes from the first to the last element of each port; 0 for inputs whose data nothing uses.
    pub(in crate::compile) fn sizes(&self, ports: &[&[i64]]) -> Vec<usize> {
        // A value whose shape alone is used is never computed, and needs nothing.
        let mut is_used = OfValues::new(self.values.len(), false);
        self.outputs.iter().for_each(|&output| is_used[output] = true);
        for value in self.values.ids().rev() {
            if is_used[value] {
                self.operands(value).into_iter().for_each(|operand| is_used[operand] = true);
            }
        }
        let inputs = self.values.ids().take(ports.len() - self.outputs.len());
        let values = inputs
            .map(|value| (value, is_used[value]))
            .chain(self.outputs.iter().map(|&value| (value, true)));
        let size = |((value, is_used), strides): ((ValueId, bool), &&[i64])| {
            let value = &self.values[value];
            let span = shape::span(&value.dims, strides).unwrap_or(0);
            if is_used { bytes_of(span as usize, value.data_type) } else { 0 }
        };
        values.zip(ports).map(size).collect()
    }
}

/// Bytes of neighbouring elements of a type; two of four bits lie in one.
fn bytes_of(elements: usize, data_type: DataType) -> usize {
    match data_type.size() {
        Some(size) => elements.saturating_mul(size),
        None => elements.div_ceil(2),
    }
}

/// The value of a part of a composite, given the values of the op's inputs and the value of the first part.
fn value_of(part: CompositePart, inputs: &[ValueId], first: ValueId) -> GroupValue {
    let operand = |(operand, start)| match operand {
        PartOperand::Input(port) => (inputs[port], start),
        PartOperand::Part(part) => (first + part, start),
    };
    let operands = part.operands.into_iter().map(operand).collect();
    let moved = (part.typed.function == Function::Move(Movement::Reshape)).then_some(Moved::Reshaped);
    let def = ValueDef { pointwise: part.typed, operands, axis: 0, constants: part.constants, moved };
    GroupValue { data_type: part.data_type, dims: part.dims, def: Some(def) }
}
