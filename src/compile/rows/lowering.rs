//! The phases of an op on rows, from its axes and the roles of its tensors.

use smallvec::smallvec;

use super::phase::{Fused, MeasuredParts, Roles, rows_phase};
use crate::compile::phases::{AxisStrides, PlacedTensor, PlanBuilder};
use crate::compile::row_axes::{Along, AxisOperand, RowAxes};
use crate::graph::op::Op;
use crate::kernels::rows::{self, Fold, RowPass};
use crate::plan::{FoldFinish, FoldWork, Phase, RowMap, RowWork};
use crate::types::dtype::DataType;
use crate::types::shape::Dims;

/// An op on rows with the places of its operands and results.
pub(super) struct RowCall<'c> {
    pub(super) op: &'c Op,
    pub(super) inputs: &'c [PlacedTensor],
    /// `None` for a result that nothing reads.
    pub(super) outputs: &'c [Option<PlacedTensor>],
    /// Bytes to the first element of the source, if strides lead to its elements in another value.
    pub(super) source_at: Option<isize>,
    /// True if the squares of the first input are the source.
    pub(super) is_squared: bool,
}

impl RowCall<'_> {
    /// The dims of the source.
    pub(super) fn dims(&self) -> &Dims {
        &self.inputs[0].dims
    }

    pub(super) fn result(&self, index: usize) -> Option<&PlacedTensor> {
        self.outputs.get(index).and_then(Option::as_ref)
    }

    /// A tensor with the dims of the source.
    pub(super) fn whole(&self, tensor: &PlacedTensor) -> AxisOperand {
        tensor.onto(self.dims().len(), 0)
    }

    /// A tensor that broadcasts onto the last dims of the source.
    pub(super) fn trailing(&self, tensor: &PlacedTensor) -> AxisOperand {
        let rank = self.dims().len();
        tensor.onto(rank, rank - tensor.dims.len())
    }

    /// A tensor with the first dims of the source.
    pub(super) fn leading(&self, tensor: &PlacedTensor, dims: usize) -> AxisOperand {
        tensor.along((0..self.dims().len()).map(|axis| Some(axis).filter(|&axis| axis < dims)))
    }

    /// The source at the place where strides lead to its elements.
    pub(super) fn source(&self) -> AxisOperand {
        self.moved(self.whole(&self.inputs[0]))
    }

    /// An operand of the source, by other axes, at that place.
    pub(super) fn moved(&self, source: AxisOperand) -> AxisOperand {
        AxisOperand { offset: self.source_at.unwrap_or(0), ..source }
    }

    /// The roles of the source and of the first result.
    pub(super) fn roles(&self) -> Roles {
        Roles {
            operands: smallvec![self.source()],
            result: self.result(0).map(|to| self.whole(to)),
            ..Roles::default()
        }
    }
}

/// Adds the phases of one op.
pub(super) struct RowsLowering<'b, 'a> {
    pub(super) builder: &'b mut PlanBuilder<'a>,
    pub(super) call: &'b RowCall<'b>,
    /// The axes of places and those along rows of the source.
    pub(super) axes: &'b RowAxes,
    /// The programs that no phase has taken yet.
    pub(super) fused: Fused,
    /// Time for an element, in bytes that could be moved in the same time.
    pub(super) cost: usize,
}

impl RowsLowering<'_, '_> {
    /// Combines rows to a number each; long rows by parts whose numbers are then combined.
    pub(super) fn reduce(
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
        let work =
            |finish| RowWork::Fold(FoldWork { kernels, map, by_columns: false, transpose: None, finish });
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
    pub(super) fn add_results(&mut self, op: &Op, work: RowWork, axes: &RowAxes, mut roles: Roles) {
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
    pub(super) fn split(&mut self, mut roles: Roles, axes: &RowAxes, part: usize) -> [Roles; 2] {
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
    pub(super) fn add(&mut self, op: &Op, work: RowWork, axes: &RowAxes, roles: Roles) {
        let mut fused = std::mem::take(&mut self.fused);
        self.add_fused(op, work, axes, roles, &mut fused);
        self.fused = fused;
    }

    /// Adds a phase with the programs that run in its tiles.
    pub(super) fn add_fused(
        &mut self,
        op: &Op,
        work: RowWork,
        axes: &RowAxes,
        roles: Roles,
        fused: &mut Fused,
    ) {
        let (phase, flops) = rows_phase(op.kind(), self.cost, work, axes, roles, fused, self.builder.level);
        self.builder.push(Phase::Rows(Box::new(phase)), flops, true);
    }
}
