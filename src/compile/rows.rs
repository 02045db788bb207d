//! Lowers ops that work on rows: reductions, SoftMax, norms and their gradients.
//!
//! An op becomes one phase or a few. The axes of a phase are of two kinds: places, along which results
//! differ, and rows, the other axes. The axes keep their order along a row whatever the strides, so that sums
//! have the same bits in every layout.

mod lowering;
mod ops;
mod phase;
mod programs;
mod table;

use smallvec::SmallVec;

use self::lowering::{RowCall, RowsLowering};
use self::phase::{Fused, RowsProgram};
use self::programs::ProgramAxes;
use self::table::{RowOp, RowParts};
use super::elementwise::{FoldedAxes, GroupValue};
use super::memory;
use super::phases::{PlacedTensor, PlanBuilder};
use super::shaped_partition::ShapedPartition;
use crate::error::{CompileFault, Result};
use crate::graph::function::Function;
use crate::kernels::rows::COLUMNS;
use crate::partition::matches::Match;
use crate::plan::{Base, InPlacePorts, ValueId};
use crate::types::dtype::DataType;
use crate::types::function::{Binary, Unary};
use crate::types::kind::OpKind;
use crate::types::shape::Dims;

/// Adds the phases of one op on rows, with the programs that can run in their tiles before and behind it.
pub(super) fn add(shaped: &ShapedPartition<'_>, builder: &mut PlanBuilder<'_>, anchor: usize) -> Result<()> {
    let (op, values) = (builder.anchor_op(anchor), &shaped.group.values);
    let unsupported = || CompileFault::Unsupported(format!("no kernel runs {}", op.kind()));
    let row = RowOp::of(op).ok_or_else(|| builder.refuse(unsupported()))?;
    let (source, result) = (shaped.group.anchors[anchor].inputs[0], shaped.group.anchors[anchor].outputs[0]);
    let mut neighbours = Neighbours { row, anchor, builder: &mut *builder };
    let programs = ProgramAxes::new(row, op, &values[source].dims)?;
    let form = neighbours.source(programs.as_ref());
    let inputs = neighbours.inputs(&form)?;
    let roots = neighbours.roots(programs.as_ref());
    let epilogue = Some(&roots[..]).filter(|roots| roots.iter().any(|&root| root != result));
    let outputs = neighbours.outputs(epilogue.is_some());
    let has_prologue = matches!(form, SourceForm::Program);
    let fused = match &programs {
        Some(programs) if has_prologue || epilogue.is_some() => {
            neighbours.programs(programs, &inputs[0], has_prologue, epilogue)?
        }
        _ => Fused::default(),
    };
    let is_squared = matches!(form, SourceForm::Squared(..));
    let source_at = match form {
        SourceForm::Viewed(_, offset) | SourceForm::Squared(_, offset) => Some(offset),
        SourceForm::Memory | SourceForm::Program => None,
    };
    let call = RowCall { op, inputs: &inputs, outputs: &outputs, source_at, is_squared };
    let axes = (row.axes)(op, call.dims())?;
    let mut lowering =
        RowsLowering { builder: &mut *builder, call: &call, axes: &axes, fused, cost: row.cost };
    let added = (row.lower)(&mut lowering)?;
    added.ok_or_else(|| builder.refuse(unsupported()))?;
    if let (Base::Port(input), Some(Base::Port(output)), None, true) =
        (inputs[0].base, call.result(0).map(|to| to.base), source_at, row.is_in_place)
        && shaped.partition.matched() == Some(&Match::Rows)
    {
        builder.may_share(InPlacePorts { input, output });
    }
    Ok(())
}

/// The form in which the source of an op reaches its phase.
enum SourceForm {
    /// In memory.
    Memory,
    /// Strides lead to its elements in another value, that many bytes from the start.
    Viewed(PlacedTensor, isize),
    /// The same, and the work squares them.
    Squared(PlacedTensor, isize),
    /// From a program that runs before the work.
    Program,
}

/// The pointwise ops before and behind an op on rows.
struct Neighbours<'n, 'a> {
    row: &'static RowOp,
    anchor: usize,
    builder: &'n mut PlanBuilder<'a>,
}

impl<'a> Neighbours<'_, 'a> {
    fn operands(&self) -> &'a [ValueId] {
        &self.builder.group().anchors[self.anchor].inputs
    }

    fn results(&self) -> &'a [ValueId] {
        &self.builder.group().anchors[self.anchor].outputs
    }

    fn is_combined(&self) -> bool {
        self.row.parts == RowParts::Combined
    }

    /// True if the partition needs a value in memory.
    fn is_read(&self, value: ValueId) -> bool {
        let group = self.builder.group();
        let is_used = |user: ValueId| group.operands(user).contains(&value);
        group.outputs.contains(&value) || group.values.ids().any(is_used)
    }

    fn source(&self, programs: Option<&ProgramAxes>) -> SourceForm {
        let (builder, group, source) = (&self.builder, self.builder.group(), self.operands()[0]);
        let is_hidden = builder.place(source).is_none() && !group.outputs.contains(&source);
        if group.anchor_of(source).is_some() || !is_hidden {
            return SourceForm::Memory;
        }
        // A prologue would move the elements to scratch first.
        let of_type = group.values[source].data_type;
        let view = builder.view(source).filter(|(view, _)| self.row.is_strided && view.data_type == of_type);
        if let Some((view, offset)) = view {
            return SourceForm::Viewed(view, offset);
        }
        if let Some((view, offset)) = self.squared(source) {
            return SourceForm::Squared(view, offset);
        }
        // The gradient of a parameter needs the source in memory as well.
        let is_read_again = self.row.reads_again && self.results()[1..].iter().any(|&of| self.is_read(of));
        let is_read_twice = self.operands()[1..].contains(&source) || is_read_again;
        let is_program = |folded: Option<&FoldedAxes>| {
            builder.is_folded_program(&group.values[source].dims, folded, &[], source)
        };
        match programs.and_then(ProgramAxes::of_rows).is_some_and(is_program) && !is_read_twice {
            true => SourceForm::Program,
            false => SourceForm::Memory,
        }
    }

    /// The elements whose squares are a value that is summed up.
    fn squared(&self, value: ValueId) -> Option<(PlacedTensor, isize)> {
        let values = &self.builder.group().values;
        let def = values[value].def.as_ref().filter(|def| def.moved.is_none())?;
        let of = match (def.pointwise.function, &def.operands[..]) {
            (Function::Unary(Unary::Square, _), &[(x, 0)]) => x,
            (Function::Binary(Binary::Multiply, _), &[(x, 0), (y, 0)]) if x == y => x,
            _ => return None,
        };
        let is_sum = matches!(self.row.kind, OpKind::ReduceSum | OpKind::ReduceMean);
        let are_f32 = [value, of].iter().all(|&value| values[value].data_type == DataType::F32);
        let are_alike = values[value].dims == values[of].dims;
        self.builder
            .view(of)
            .filter(|(view, _)| is_sum && are_f32 && are_alike && view.data_type == DataType::F32)
    }

    fn inputs(&mut self, source: &SourceForm) -> Result<SmallVec<[PlacedTensor; 6]>> {
        let mut inputs = SmallVec::new();
        for (index, &value) in self.operands().iter().enumerate() {
            inputs.push(match source {
                SourceForm::Viewed(view, _) | SourceForm::Squared(view, _) if index == 0 => view.clone(),
                SourceForm::Program if index == 0 => of_program(&self.builder.group().values[value]),
                _ => self.builder.operand(value)?,
            });
        }
        Ok(inputs)
    }

    /// The values that a program behind the work writes.
    fn roots(&self, programs: Option<&ProgramAxes>) -> Vec<ValueId> {
        let result = self.results()[0];
        let of_rows = programs.and_then(ProgramAxes::of_rows);
        match of_rows {
            // One number of a row needs no axis along the row.
            _ if self.is_combined() && programs.is_some() => {
                self.builder.epilogue_roots(self.anchor, &[result], None)
            }
            Some(folded) => self.builder.epilogue_roots(self.anchor, &[result], folded),
            None => Vec::new(),
        }
    }

    fn outputs(&mut self, has_epilogue: bool) -> SmallVec<[Option<PlacedTensor>; 3]> {
        let mut outputs = SmallVec::new();
        for (index, &value) in self.results().iter().enumerate() {
            outputs.push(match index {
                0 if has_epilogue => Some(of_program(&self.builder.group().values[value])),
                _ if self.is_read(value) => Some(self.builder.result(value)),
                _ => None,
            });
        }
        outputs
    }

    /// The programs before and behind the work, given the roots of the latter.
    fn programs(
        &mut self,
        programs: &ProgramAxes,
        source: &PlacedTensor,
        has_prologue: bool,
        epilogue: Option<&[ValueId]>,
    ) -> Result<Fused> {
        let (count, readings) = programs.parts(self.row);
        let axes = &programs.axes;
        let place = axes.places.iter().rposition(|&axis| axes.dims[axis] != 1);
        let extent = place.map_or(1, |place| axes.dims[axes.places[place]] as usize);
        // Places that are neighbours in memory are combined together.
        let is_neighbour = |place: usize| source.strides.get(axes.places[place]) == Some(&1);
        let least = match self.is_combined() && !has_prologue && place.is_some_and(is_neighbour) {
            true => COLUMNS,
            false => 0,
        };
        let rows = memory::rows_of_tile(count).max(least).clamp(1, extent.max(1));
        let group = self.builder.group();
        let element = |value: ValueId| group.values[value].data_type.size().unwrap_or(1);
        let mut prologues = SmallVec::new();
        if has_prologue {
            let source = self.operands()[0];
            let element = element(source);
            let (space, row_stride) = programs.space(count, (rows, place), element);
            for _ in 0..readings {
                let nest = self.builder.slot_program(&space, &[], source, 0)?;
                prologues.push(RowsProgram { nest, row_stride, element, is_by_place: false });
            }
        }
        let epilogue = match epilogue {
            None => None,
            Some(roots) => {
                let result = self.results()[0];
                let element = element(result);
                let (space, row_stride) = match self.is_combined() {
                    false => programs.space(count, (rows, place), element),
                    true => programs.space_of_places(&group.values[result].dims, (rows, place), element),
                };
                let nest = self.builder.epilogue(&space, &[(result, 0)], roots)?;
                Some(RowsProgram { nest, row_stride, element, is_by_place: self.is_combined() })
            }
        };
        Ok(Fused { tile: Some((rows, place)), prologues, epilogue })
    }
}

/// A value that a program hands over.
fn of_program(value: &GroupValue) -> PlacedTensor {
    let strides = Dims::from_elem(0, value.dims.len());
    PlacedTensor { base: Base::Driver(0), data_type: value.data_type, dims: value.dims.clone(), strides }
}
