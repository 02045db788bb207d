//! Lowers ops that work on rows: reductions, SoftMax, norms and their gradients.
//!
//! An op becomes one phase or a few. The axes of a phase are of two kinds: places, along which results
//! differ, and rows, the other axes. The axes keep their order along a row whatever the strides, so that sums
//! have the same bits in every layout.

mod phase;
mod programs;

use smallvec::{SmallVec, smallvec};

use self::phase::{Fused, MeasuredParts, Roles, RowsProgram, rows_phase};
use self::programs::{ProgramAxes, axes_of_groups};
use super::elementwise::{DriverSpace, GroupValue};
use super::memory;
use super::phases::{AxisStrides, PlacedTensor, PlanBuilder};
use super::row_axes::{Along, AxisOperand, RowAxes, along};
use super::shaped_partition::ShapedPartition;
use crate::error::{CompileFault, Result};
use crate::graph::infer;
use crate::graph::logical_tensor::LogicalTensor;
use crate::graph::op::Op;
use crate::kernels::Extent;
use crate::kernels::rows::{self, COLUMNS, Fold, RowPass, ScanOrder};
use crate::partition::Partition;
use crate::plan::{Base, FoldFinish, FoldWork, InPlacePorts, Phase, Plan, RowMap, RowWork, ValueId};
use crate::types::dtype::DataType;
use crate::types::kind::{Attr, Level, OpKind};
use crate::types::shape::Dims;

/// The plan of a partition for concrete inputs, for one thread or for more.
pub(super) fn lower(
    partition: &Partition,
    inputs: &[&LogicalTensor],
    outputs: &[&LogicalTensor],
    level: Level,
    single_thread: bool,
) -> Result<Plan> {
    let shaped = ShapedPartition::new(partition, inputs, outputs)?.with_moves_as_strides();
    let mut builder = PlanBuilder::new(&shaped, level, single_thread);
    let mut in_place = Vec::new();
    for anchor in 0..shaped.group.anchors.len() {
        in_place.extend(add(&shaped, &mut builder, anchor)?);
    }
    let mut plan = builder.finish()?;
    // The kernels read a row of the source, or a part of a row, before they write it, so nothing else may
    // read the source by then. The phase that measures parts has ended.
    let is_pair = |pair: &InPlacePorts| {
        let &InPlacePorts { input, output } = pair;
        let (group, output) = (&shaped.group, output - inputs.len());
        let (value, result) = (&group.values[ValueId(input)], &group.values[group.outputs[output]]);
        let own = plan.phases.iter().filter_map(|phase| match phase {
            Phase::Rows(rows) if rows.pass() != RowPass::Measure => Some(&rows.nest),
            _ => None,
        });
        let nests = plan.phases.iter().flat_map(Phase::nests).chain(own);
        let accesses = nests.flat_map(|nest| &nest.program.accesses);
        let reads = accesses.filter(|access| access.base == Base::Port(input)).count();
        reads == 1
            && shaped.keeps_places(pair)
            && value.data_type == result.data_type
            && value.dims == result.dims
            && inputs[input].strides() == Some(&plan.outputs[output].1)
    };
    in_place.retain(is_pair);
    plan.in_place.extend(in_place);
    Ok(plan)
}

/// Adds the phases of one op on rows, with the programs that run in their tiles.
pub(super) fn add(
    shaped: &ShapedPartition<'_>,
    builder: &mut PlanBuilder<'_>,
    anchor: usize,
) -> Result<Option<InPlacePorts>> {
    let op = &shaped.partition.ops()[shaped.group.anchors[anchor].op];
    RowsLowering { builder, fused: Fused::default(), in_place: None, source_at: None }.run(op, anchor)
}

/// Lowers one op.
struct RowsLowering<'b, 'a> {
    builder: &'b mut PlanBuilder<'a>,
    fused: Fused,
    /// The output may replace the input.
    in_place: Option<InPlacePorts>,
    /// Bytes to the first element of the source, if strides lead to its elements in another value.
    source_at: Option<isize>,
}

impl RowsLowering<'_, '_> {
    /// Adds the phases of an anchor, with the programs that can run in their tiles before and behind it.
    /// Returns ports that may share memory.
    fn run(mut self, op: &Op, anchor: usize) -> Result<Option<InPlacePorts>> {
        let group = self.builder.group();
        let (operands, results) = (&group.anchors[anchor].inputs, &group.anchors[anchor].outputs);
        let (source, result) = (operands[0], results[0]);
        let programs = ProgramAxes::new(op, &group.values[source].dims)?;
        let of_rows = programs.as_ref().and_then(ProgramAxes::of_rows);
        let is_fold = infer::is_reduction(op);
        let is_read = |value: ValueId| {
            let is_used = |user: ValueId| group.operands(user).contains(&value);
            group.outputs.contains(&value) || group.values.ids().any(is_used)
        };
        let has_program =
            |value: ValueId| self.builder.place(value).is_none() && !group.outputs.contains(&value);
        let is_computed = group.anchor_of(source).is_none() && has_program(source);
        // A prologue would move the elements to scratch first.
        let view = self.builder.view(source).filter(|(view, _)| {
            is_computed && reads_by_strides(op) && view.data_type == group.values[source].data_type
        });
        self.source_at = view.as_ref().map(|&(_, offset)| offset);
        // A gradient of a parameter needs the source in memory as well.
        let is_read_twice = operands[1..].contains(&source)
            || matches!(op.kind(), OpKind::LayerNormBackward | OpKind::PReLUBackward)
                && results[1..].iter().any(|&result| is_read(result));
        let is_program =
            |folded| self.builder.is_folded_program(&group.values[source].dims, folded, &[], source);
        let has_prologue = is_computed && view.is_none() && !is_read_twice && of_rows.is_some_and(is_program);
        let mut inputs: SmallVec<[PlacedTensor; 6]> = SmallVec::new();
        for (index, &value) in operands.iter().enumerate() {
            let tensor = match &view {
                Some((view, _)) if index == 0 => view.clone(),
                _ if index == 0 && has_prologue => of_program(&group.values[value]),
                _ => self.builder.operand(value)?,
            };
            inputs.push(tensor);
        }
        // One number of a row needs no axis along the row.
        let roots = match of_rows {
            _ if is_fold && programs.is_some() => self.builder.epilogue_roots(anchor, &[result], None),
            Some(folded) => self.builder.epilogue_roots(anchor, &[result], folded),
            None => Vec::new(),
        };
        let has_epilogue = roots.iter().any(|&root| root != result);
        let mut outputs: SmallVec<[Option<PlacedTensor>; 3]> = SmallVec::new();
        for (index, &value) in results.iter().enumerate() {
            outputs.push(match index {
                0 if has_epilogue => Some(of_program(&group.values[value])),
                _ if is_read(value) => Some(self.builder.result(value)),
                _ => None,
            });
        }
        if let Some(programs) = programs.filter(|_| has_prologue || has_epilogue) {
            let (count, readings) = programs.parts(op);
            let axes = &programs.axes;
            let place = axes.places.iter().rposition(|&axis| axes.dims[axis] != 1);
            let extent = place.map_or(1, |place| axes.dims[axes.places[place]] as usize);
            let mut rows = memory::rows_of_tile(count);
            // Places that are neighbours in memory are combined together.
            let is_neighbour = |place: usize| inputs[0].strides.get(axes.places[place]) == Some(&1);
            if is_fold && !has_prologue && place.is_some_and(is_neighbour) {
                rows = rows.max(COLUMNS);
            }
            let rows = rows.clamp(1, extent.max(1));
            let element = |value: ValueId| group.values[value].data_type.size().unwrap_or(1);
            self.fused.tile = Some((rows, place));
            if has_prologue {
                let element = element(source);
                let (space, row_stride) = programs.space(count, (rows, place), element);
                for _ in 0..readings {
                    let nest = self.builder.slot_program(&space, &[], source, 0)?;
                    self.fused.prologues.push(RowsProgram { nest, row_stride, element, is_by_place: false });
                }
            }
            if has_epilogue {
                let element = element(result);
                let (space, row_stride) = match is_fold {
                    false => programs.space(count, (rows, place), element),
                    true => {
                        let dims = &group.values[result].dims;
                        let keeps = dims.len() == axes.dims.len();
                        let columns = place.map(|place| if keeps { axes.places[place] } else { place });
                        let space = DriverSpace::new(
                            dims.clone(),
                            [None, columns],
                            Extent { rows: 1, columns: rows },
                            smallvec![(0, element as isize)],
                        );
                        (space, element)
                    }
                };
                let nest = self.builder.epilogue(&space, &[(result, 0)], &roots)?;
                self.fused.epilogue = Some(RowsProgram { nest, row_stride, element, is_by_place: is_fold });
            }
        }
        let unsupported = || CompileFault::Unsupported(format!("no kernel runs {}", op.kind()));
        match self.op(op, &inputs, &outputs)? {
            Some(()) => Ok(self.in_place),
            None => Err(self.builder.refuse(unsupported())),
        }
    }

    /// Adds the phases of an op; `None` if it is no op on rows.
    fn op(
        &mut self,
        op: &Op,
        inputs: &[PlacedTensor],
        outputs: &[Option<PlacedTensor>],
    ) -> Result<Option<()>> {
        use OpKind as K;
        let Some(source) = inputs.first() else { return Ok(None) };
        let (level, dims, rank) = (self.builder.level, source.dims.clone(), source.dims.len());
        let whole = |tensor: &PlacedTensor| tensor.onto(rank, 0);
        let moved_source = AxisOperand { offset: self.source_at.unwrap_or(0), ..whole(source) };
        let result = |index: usize| outputs.get(index).and_then(Option::as_ref);
        let epsilon = f64::from(op.f32_attr(Attr::Epsilon).unwrap_or(0.0));
        let is_affine = op.get_attr(Attr::UseAffine).is_none() || op.bool_attr(Attr::UseAffine);
        match op.kind() {
            K::SoftMax | K::LogSoftmax => {
                let axis = infer::resolved_axis(op, &dims)?;
                let is_logarithm = op.kind() == K::LogSoftmax;
                let roles = Roles {
                    operands: smallvec![moved_source],
                    result: result(0).map(whole),
                    numbers: smallvec![result(1).map(whole)],
                    ..Roles::default()
                };
                let work = RowWork::SoftMax {
                    kernel: rows::softmax(level),
                    inf_as_zero: op.str_attr(Attr::Mode) == Some("inf_as_zero"),
                    is_logarithm,
                };
                self.may_replace(source, result(0));
                self.add_results(op, work, &RowAxes::new(&dims, |other| other == axis), roles);
            }
            K::SoftMaxBackward | K::LogSoftmaxBackward => {
                let axis = infer::resolved_axis(op, &dims)?;
                let roles = Roles {
                    operands: inputs[..2].iter().map(whole).collect(),
                    result: result(0).map(whole),
                    ..Roles::default()
                };
                let work = RowWork::SoftMaxBackward(match op.kind() {
                    K::SoftMaxBackward => rows::softmax_backward(level),
                    _ => rows::log_softmax_backward(level),
                });
                self.add_results(op, work, &RowAxes::new(&dims, |other| other == axis), roles);
            }
            K::LayerNorm | K::RMSNorm => {
                let begin = infer::norm_axis(op, &dims)?;
                let is_centred = op.kind() == K::LayerNorm;
                let given = if is_affine || !is_centred { &inputs[1..] } else { &[] };
                let onto = |tensor: &PlacedTensor| tensor.onto(rank, rank - tensor.dims.len());
                let before = |tensor: &PlacedTensor| {
                    tensor.along((0..rank).map(|axis| Some(axis).filter(|&a| a < begin)))
                };
                let roles = Roles {
                    operands: smallvec![moved_source],
                    result: result(0).map(whole),
                    parameters: given.iter().map(onto).collect(),
                    numbers: smallvec![result(1).map(before), result(2).map(before)],
                    ..Roles::default()
                };
                self.may_replace(source, result(0));
                let work = RowWork::Norm { kernel: rows::norm(level), is_centred, epsilon };
                self.add_results(op, work, &RowAxes::new(&dims, |axis| axis >= begin), roles);
            }
            K::GroupNorm => self.group_norm(op, inputs, outputs, epsilon)?,
            K::CumSum => {
                let axis = infer::resolved_axis(op, &dims)?;
                let Some(kernel) = rows::scan(level, source.data_type) else { return Ok(None) };
                let order = ScanOrder {
                    is_exclusive: op.bool_attr(Attr::Exclusive),
                    is_reverse: op.bool_attr(Attr::Reverse),
                };
                let roles = Roles {
                    operands: smallvec![moved_source],
                    result: result(0).map(whole),
                    ..Roles::default()
                };
                self.may_replace(source, result(0));
                let axes = RowAxes::new(&dims, |other| other == axis);
                self.add(op, RowWork::Scan { kernel, order }, &axes, roles);
            }
            _ if infer::is_reduction(op) => {
                let along = infer::reduced_axes(op, &dims)?;
                let Some(to) = result(0) else { return Ok(None) };
                if along.is_empty() {
                    let roles = Roles {
                        operands: smallvec![moved_source],
                        result: Some(whole(to)),
                        ..Roles::default()
                    };
                    self.add(op, RowWork::Copy, &RowAxes::new(&dims, |axis| axis + 1 == rank), roles);
                    return Ok(Some(()));
                }
                let axes = RowAxes::new(&dims, |axis| along.contains(&axis));
                let keeps = op.bool_attr(Attr::KeepDims);
                let dim = |axis: usize| match keeps {
                    true => Some(axis).filter(|axis| !along.contains(axis)),
                    false => axes.places.iter().position(|&place| place == axis),
                };
                let to = to.along((0..rank).map(dim));
                let (fold, finish) = match op.kind() {
                    K::ReduceMean => (Fold::Sum, FoldFinish::Mean(axes.length() as f64)),
                    K::ReduceMax => (Fold::Maximum, FoldFinish::AsItIs),
                    K::ReduceMin => (Fold::Minimum, FoldFinish::AsItIs),
                    K::ReduceProd => (Fold::Product, FoldFinish::AsItIs),
                    K::ReduceL1 => (Fold::SumOfSizes, FoldFinish::AsItIs),
                    K::ReduceL2 => (Fold::SumOfSquares, FoldFinish::Root),
                    _ => (Fold::Sum, FoldFinish::AsItIs),
                };
                let roles = Roles { operands: smallvec![moved_source], ..Roles::default() };
                self.reduce(op, (fold, finish), RowMap::None, &axes, roles, to);
            }
            K::BiasAddBackward => {
                let channels = infer::channel_axis(op, &dims)?;
                let Some(to) = result(0) else { return Ok(None) };
                let to = to.along((0..rank).map(|axis| (axis == channels).then_some(0)));
                let roles = Roles { operands: smallvec![moved_source], ..Roles::default() };
                let axes = RowAxes::new(&dims, |axis| axis != channels);
                self.reduce(op, (Fold::Sum, FoldFinish::AsItIs), RowMap::None, &axes, roles, to);
            }
            K::LayerNormBackward => self.layer_norm_backward(op, inputs, outputs, epsilon)?,
            K::PReLUBackward => {
                let [source, slope, gradient] = inputs else { return Ok(None) };
                let start = infer::slope_start(op, &[&dims, &slope.dims])?;
                let slope_along = slope.onto(rank, start);
                if let Some(to) = result(0) {
                    let roles = Roles {
                        operands: smallvec![whole(source), slope_along, whole(gradient)],
                        result: Some(whole(to)),
                        ..Roles::default()
                    };
                    let work = RowWork::PreluBackward(rows::prelu_backward(level));
                    self.add(op, work, &RowAxes::new(&dims, |axis| axis + 1 == rank), roles);
                    self.fused = Fused::default();
                }
                if let Some(to) = result(1) {
                    let repeated = |axis: usize| {
                        axis.checked_sub(start)
                            .is_none_or(|dim| slope.dims.get(dim).is_none_or(|&dim| dim == 1))
                    };
                    let roles =
                        Roles { operands: smallvec![whole(source), whole(gradient)], ..Roles::default() };
                    let map = RowMap::Prelu(rows::prelu_products(level));
                    let axes = RowAxes::new(&dims, repeated);
                    self.reduce(op, (Fold::Sum, FoldFinish::AsItIs), map, &axes, roles, to.onto(rank, start));
                }
            }
            _ => return Ok(None),
        }
        Ok(Some(()))
    }

    /// Notes that a result may replace the source.
    fn may_replace(&mut self, source: &PlacedTensor, result: Option<&PlacedTensor>) {
        if let (Base::Port(input), Some(Base::Port(output)), None) =
            (source.base, result.map(|to| to.base), self.source_at)
        {
            self.in_place = Some(InPlacePorts { input, output });
        }
    }

    /// The channels of a group and all that lies beside them are a row.
    fn group_norm(
        &mut self,
        op: &Op,
        inputs: &[PlacedTensor],
        outputs: &[Option<PlacedTensor>],
        epsilon: f64,
    ) -> Result<()> {
        let source = &inputs[0];
        let groups = infer::channel_groups(op, &source.dims)?;
        let axes = axes_of_groups(&groups, &source.dims);
        let infer::ChannelGroups { axis, channels, .. } = groups;
        let rank = axes.dims.len();
        // The dim of channels as that of groups and that of the channels of a group.
        let split = |operand: AxisOperand, axis_of_channels: isize| {
            let AxisOperand { mut strides, .. } = operand;
            strides.insert(axis, axis_of_channels * channels as isize);
            AxisOperand { strides, ..operand }
        };
        let whole = |tensor: &PlacedTensor| {
            let operand = tensor.onto(rank - 1, 0);
            let stride = operand.strides[axis];
            split(operand, stride)
        };
        let of_channels = |tensor: &PlacedTensor| {
            let operand = tensor.along((0..rank - 1).map(|other| (other == axis).then_some(0)));
            let stride = operand.strides[axis];
            split(operand, stride)
        };
        let moved_source = AxisOperand { offset: self.source_at.unwrap_or(0), ..whole(source) };
        let of_groups = |tensor: &PlacedTensor| {
            tensor.along((0..rank).map(|other| match other {
                0 => Some(0),
                _ => (other == axis).then_some(1),
            }))
        };
        let is_affine = op.bool_attr(Attr::UseAffine);
        let result = |index: usize| outputs.get(index).and_then(Option::as_ref);
        let roles = Roles {
            operands: smallvec![moved_source],
            result: result(0).map(whole),
            parameters: inputs[1..].iter().filter(|_| is_affine).map(of_channels).collect(),
            numbers: smallvec![result(1).map(of_groups), result(2).map(of_groups)],
            ..Roles::default()
        };
        self.may_replace(source, result(0));
        let level = self.builder.level;
        let by_rows = RowWork::Norm { kernel: rows::norm(level), is_centred: true, epsilon };
        let count = groups.groups as usize;
        let [of_source, of_result] = [roles.operands.first(), roles.result.as_ref()]
            .map(|operand| operand.is_some_and(|operand| lies_by_channels(operand, &axes, axis)));
        if !of_source {
            self.add_results(op, by_rows, &axes, roles);
            return Ok(());
        }
        // The source alone decides how it is measured, so that no bit depends on what else is in the group.
        let by_channels =
            RowWork::ChannelNorm { kernels: rows::channels(level), channels: channels as usize, epsilon };
        let of_channels = axes_of_groups(&groups, &source.dims).with_last_along(axis + 1);
        let part = of_channels.part_of_channels(channels as usize, count);
        let [measuring, mut roles] = self.split(roles, &axes, part);
        // Programs hand over one row a place (decision: norm-channels-alone).
        let mut alone = Fused { tile: Some((count, Some(1))), ..Fused::default() };
        self.add_fused(op, by_channels, &of_channels, measuring, &mut alone);
        if of_result {
            self.add_fused(op, by_channels, &of_channels, roles, &mut alone);
        } else {
            roles.part = None;
            self.add(op, by_rows, &axes, roles);
        }
        Ok(())
    }

    /// The gradient of the source by rows; those of gamma and beta are sums over all rows.
    fn layer_norm_backward(
        &mut self,
        op: &Op,
        inputs: &[PlacedTensor],
        outputs: &[Option<PlacedTensor>],
        epsilon: f64,
    ) -> Result<()> {
        let dims = &inputs[0].dims;
        let (level, rank) = (self.builder.level, dims.len());
        let begin = infer::norm_axis(op, dims)?;
        let whole = |tensor: &PlacedTensor| tensor.onto(rank, 0);
        let before =
            |tensor: &PlacedTensor| tensor.along((0..rank).map(|axis| Some(axis).filter(|&a| a < begin)));
        let onto = |tensor: &PlacedTensor| tensor.onto(rank, rank - tensor.dims.len());
        let is_affine = op.bool_attr(Attr::UseAffine);
        let result = |index: usize| outputs.get(index).and_then(Option::as_ref);
        let operands: SmallVec<[AxisOperand; 3]> = inputs[..2].iter().map(whole).collect();
        let given: SmallVec<[AxisOperand; 2]> = inputs[2..4].iter().map(before).collect();
        if let Some(to) = result(0) {
            let roles = Roles {
                operands: operands.clone(),
                result: Some(whole(to)),
                parameters: inputs.get(4).filter(|_| is_affine).map(onto).into_iter().collect(),
                given: given.clone(),
                ..Roles::default()
            };
            let work = RowWork::NormBackward { kernel: rows::norm_backward(level), epsilon };
            self.add_results(op, work, &RowAxes::new(dims, |axis| axis >= begin), roles);
            self.fused = Fused::default();
        }
        for (index, operands) in [(1, operands), (2, smallvec![whole(&inputs[1])])] {
            let Some(to) = result(index) else { continue };
            let start = rank - to.dims.len();
            let is_repeated = |axis: usize| axis < start.max(begin) || to.dims[axis - start] == 1;
            let axes = RowAxes::new(dims, is_repeated);
            let (map, given) = match index {
                1 => (RowMap::Norm { kernel: rows::norm_products(level), epsilon }, given.clone()),
                _ => (RowMap::None, SmallVec::new()),
            };
            let roles = Roles { operands, given, ..Roles::default() };
            self.reduce(op, (Fold::Sum, FoldFinish::AsItIs), map, &axes, roles, to.onto(rank, start));
        }
        Ok(())
    }

    /// Combines rows to a number each; long rows by parts whose numbers are then combined.
    fn reduce(
        &mut self,
        op: &Op,
        (fold, finish): (Fold, FoldFinish),
        map: RowMap,
        axes: &RowAxes,
        mut roles: Roles,
        to: AxisOperand,
    ) {
        let (length, part) = (axes.length(), axes.part());
        let parts = if length <= part { 1 } else { length.div_ceil(part) };
        let kernels = rows::fold(self.builder.level, fold);
        let work = |finish| RowWork::Fold(FoldWork { kernels, map, by_columns: false, finish });
        if parts == 1 {
            roles.numbers = smallvec![Some(to)];
            return self.add(op, work(Some(finish)), axes, roles);
        }
        let partial = self.numbers_of_parts(axes, parts);
        roles.numbers = smallvec![Some(partial.clone())];
        self.add(op, work(None), axes, roles);
        // The parts are the axis along which the second phase goes.
        let mut dims: Dims = axes.places.iter().map(|&axis| axes.dims[axis]).collect();
        dims.push(parts as i64);
        let of_places = |operand: &AxisOperand, along: isize| {
            let mut strides: AxisStrides = axes.places.iter().map(|&axis| operand.strides[axis]).collect();
            strides.push(along);
            AxisOperand { strides, ..operand.clone() }
        };
        let roles = Roles {
            operands: smallvec![of_places(&partial, size_of::<f64>() as isize)],
            numbers: smallvec![Some(of_places(&to, 0))],
            ..Roles::default()
        };
        let last = dims.len() - 1;
        self.add(op, RowWork::Merge { fold, finish }, &RowAxes::new(&dims, |axis| axis == last), roles);
    }

    /// An internal buffer of some numbers for each place, which are neighbours.
    fn numbers_of_parts(&mut self, axes: &RowAxes, numbers: usize) -> AxisOperand {
        let mut stride = numbers * size_of::<f64>();
        let bytes =
            axes.places.iter().map(|&axis| axes.dims[axis] as usize).fold(stride, usize::saturating_mul);
        let mut partial = AxisOperand {
            base: self.builder.buffer(bytes),
            offset: 0,
            data_type: DataType::F64,
            strides: AxisStrides::from_elem(0, axes.dims.len()),
        };
        for &axis in axes.places.iter().rev() {
            partial.strides[axis] = stride as isize;
            stride = stride.saturating_mul(axes.dims[axis] as usize);
        }
        partial
    }

    /// Adds the phase of work whose results depend on two numbers of the whole row; two phases if the rows
    /// are computed in parts.
    fn add_results(&mut self, op: &Op, work: RowWork, axes: &RowAxes, mut roles: Roles) {
        if let Some(part) = axes.part_of_results() {
            let [mut measuring, of_results] = self.split(roles, axes, part);
            roles = of_results;
            // The sums of a gradient are those of numbers that are scaled already.
            if matches!(work, RowWork::NormBackward { .. }) {
                measuring.parameters = roles.parameters.clone();
                measuring.given = roles.given.clone();
            }
            self.add(op, work, axes, measuring);
        }
        self.add(op, work, axes, roles);
    }

    /// The roles of a phase that measures parts of so many elements, and of the one that has the results.
    fn split(&mut self, mut roles: Roles, axes: &RowAxes, part: usize) -> [Roles; 2] {
        let numbers = self.numbers_of_parts(axes, 2 * axes.length().div_ceil(part));
        let measured = |pass| Some(MeasuredParts { numbers: numbers.clone(), pass, part });
        let measuring = Roles {
            operands: roles.operands.clone(),
            part: Some(part),
            measured: measured(RowPass::Measure),
            ..Roles::default()
        };
        (roles.part, roles.measured) = (Some(part), measured(RowPass::Results));
        [measuring, roles]
    }

    /// Adds a phase.
    fn add(&mut self, op: &Op, work: RowWork, axes: &RowAxes, roles: Roles) {
        let mut fused = std::mem::take(&mut self.fused);
        self.add_fused(op, work, axes, roles, &mut fused);
        self.fused = fused;
    }

    /// Adds a phase with the programs that run in its tiles.
    fn add_fused(&mut self, op: &Op, work: RowWork, axes: &RowAxes, roles: Roles, fused: &mut Fused) {
        let (phase, flops) = rows_phase(op.kind(), work, axes, roles, fused, self.builder.level);
        self.builder.push(Phase::Rows(Box::new(phase)), flops, true);
    }
}

/// True if the channels of all groups lie beside each other, and positions at one stride. `axis` is that of
/// groups, and the next one that of the channels of a group.
fn lies_by_channels(operand: &AxisOperand, axes: &RowAxes, axis: usize) -> bool {
    let (bytes, channels) = (operand.bytes() as isize, axes.dims[axis + 1] as isize);
    let of_positions = RowAxes::new(&axes.dims, |other| axes.along.contains(&other) && other != axis + 1);
    !operand.is_of_program()
        && axes.dims[axis] > 1
        && channels > 0
        && operand.strides[axis] == bytes * channels
        && (channels == 1 || operand.strides[axis + 1] == bytes)
        && matches!(along(&of_positions, operand)[..], [(positions, _)] if positions > 1)
}

/// True if an op reads its first operand along any strides from any first element on.
fn reads_by_strides(op: &Op) -> bool {
    use OpKind as K;
    let of_one =
        [K::SoftMax, K::LogSoftmax, K::LayerNorm, K::RMSNorm, K::GroupNorm, K::BiasAddBackward, K::CumSum];
    of_one.contains(&op.kind()) || infer::is_reduction(op)
}

/// A value that a program hands over.
fn of_program(value: &GroupValue) -> PlacedTensor {
    let strides = Dims::from_elem(0, value.dims.len());
    PlacedTensor { base: Base::Driver(0), data_type: value.data_type, dims: value.dims.clone(), strides }
}
