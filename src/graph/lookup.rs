//! The spaces of lookups: which dims of a table, of indices and of rows go together.
//!
//! A lookup goes through places. Each place has an element of `rows`, and an index, or a tuple of indices,
//! that names an element of `table`. [Gather](crate::OpKind::Gather) reads the table and writes the rows;
//! a scatter reads the rows, its updates, and writes the table.

use smallvec::SmallVec;

use super::axis::{dim_of, resolved_axis, unfit};
use super::op::Op;
use super::row::{Schema, ShapeRule};
use crate::error::{Error, Result};
use crate::types::kind::{Attr, OpKind};
use crate::types::shape::{Dims, MAX_RANK};

/// The places of a lookup.
#[derive(Debug)]
pub(crate) struct LookupSpace {
    /// The shape of the result.
    pub(crate) result: Dims,
    /// The dims of the places, which are the dims of the rows in their order.
    pub(crate) dims: SmallVec<[LookupDim; 6]>,
    /// The dims of the table that the indices name.
    pub(crate) axes: SmallVec<[usize; 2]>,
    /// True if the last dim of the indices holds an index for each axis; else there is one axis.
    pub(crate) has_tuples: bool,
    /// The sizes of the table.
    pub(crate) table: Dims,
}

/// A dim of the places of a lookup.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LookupDim {
    pub(crate) size: i64,
    /// The dim of the table that goes along, unless indices name a place there.
    pub(crate) table: Option<usize>,
    /// The dim of the indices that goes along; along others an index is repeated.
    pub(crate) indices: Option<usize>,
}

/// The input that holds the indices of every lookup.
const INDICES: usize = 1;

/// The shapes of the inputs of a lookup by their part in it.
struct LookupShapes<'a> {
    table: &'a [i64],
    indices: &'a [i64],
    /// The shape of the rows, and their port, if they are an input.
    rows: Option<(&'a [i64], usize)>,
}

/// The space of a lookup with inputs of some shapes.
///
/// # Errors
///
/// [`Error::Shape`](crate::Error::Shape) if the shapes do not go together.
pub(crate) fn space(op: &Op, inputs: &[&[i64]]) -> Result<LookupSpace> {
    let rule = Schema::of(op.kind()).shape_rule;
    let shapes = match rule {
        ShapeRule::GatherBackward => {
            let rows = Some((inputs[0], 0));
            LookupShapes { table: op.s64s_attr(Attr::SrcShape), indices: inputs[INDICES], rows }
        }
        _ => {
            let rows = inputs.get(2).map(|&rows| (rows, 2));
            LookupShapes { table: inputs[0], indices: inputs[INDICES], rows }
        }
    };
    let (dims, axes, has_tuples) = match rule {
        ShapeRule::GatherElements | ShapeRule::ScatterElements => along_elements(op, &shapes)?,
        ShapeRule::GatherNd | ShapeRule::ScatterNd => along_tuples(op, &shapes)?,
        _ => along_axis(op, &shapes)?,
    };
    let rows: Dims = dims.iter().map(|dim| dim.size).collect();
    if rows.len() > MAX_RANK {
        return Err(shapes.misfit(op, "the result has more dims than a tensor can have"));
    }
    if let Some((given, port)) = shapes.rows
        && given != &rows[..]
    {
        return Err(unfit(op, port, given, "it has the shape of what the indices name"));
    }
    let is_empty = |&axis: &usize| shapes.table[axis] == 0;
    if op.bool_attr(Attr::ClampIndices) && axes.iter().any(is_empty) && !rows.contains(&0) {
        return Err(shapes.misfit(op, "no index can be clamped into a dim without elements"));
    }
    let result = if shapes.rows.is_some() { shapes.table.into() } else { rows };
    Ok(LookupSpace { result, dims, axes, has_tuples, table: shapes.table.into() })
}

impl LookupShapes<'_> {
    /// The dim of the table that the attribute `axis` names.
    fn axis(&self, op: &Op) -> Result<usize> {
        match self.rows {
            // The table is the attribute `src_shape`.
            Some((rows, port @ 0)) => dim_of(op.s64_attr(Attr::Axis).unwrap_or(0), self.table)
                .ok_or_else(|| unfit(op, port, rows, "the attribute `axis` is a dim of `src_shape`")),
            _ => resolved_axis(op, self.table),
        }
    }

    fn misfit(&self, op: &Op, why: &'static str) -> Error {
        unfit(op, INDICES, self.indices, why)
    }
}

type PlaceDims = (SmallVec<[LookupDim; 6]>, SmallVec<[usize; 2]>, bool);

/// The indices stand in the place of a dim of the table, behind dims that both share.
fn along_axis(op: &Op, shapes: &LookupShapes<'_>) -> Result<PlaceDims> {
    let &LookupShapes { table, indices, .. } = shapes;
    let axis = shapes.axis(op)?;
    let given = op.s64_attr(Attr::BatchDims).unwrap_or(0);
    let rank = indices.len() as i64;
    let batch = if given < 0 { given.checked_add(rank) } else { Some(given) };
    let batch = batch.filter(|batch| (0..=rank).contains(batch)).map(|batch| batch as usize);
    let Some(batch) = batch.filter(|&batch| batch <= axis) else {
        return Err(shapes.misfit(op, "`batch_dims` is at most its rank and at most `axis`"));
    };
    if table[..batch] != indices[..batch] {
        return Err(shapes.misfit(op, "its first `batch_dims` dims are those of the table"));
    }
    let of_both = |dim: usize| LookupDim { size: table[dim], table: Some(dim), indices: Some(dim) };
    let of_table = |dim: usize| LookupDim { size: table[dim], table: Some(dim), indices: None };
    let of_indices = |dim: usize| LookupDim { size: indices[dim], table: None, indices: Some(dim) };
    let dims = ((0..batch).map(of_both))
        .chain((batch..axis).map(of_table))
        .chain((batch..indices.len()).map(of_indices))
        .chain((axis + 1..table.len()).map(of_table))
        .collect();
    Ok((dims, [axis].into_iter().collect(), false))
}

/// Each index names an element along an axis; along all other dims the places are those of the table.
fn along_elements(op: &Op, shapes: &LookupShapes<'_>) -> Result<PlaceDims> {
    let &LookupShapes { table, indices, .. } = shapes;
    let axis = shapes.axis(op)?;
    let fits =
        indices.len() == table.len() && (0..table.len()).all(|dim| dim == axis || indices[dim] <= table[dim]);
    if !fits {
        return Err(shapes.misfit(op, "its dims are at most those of the table, but along `axis`"));
    }
    let dim = |dim: usize| LookupDim {
        size: indices[dim],
        table: Some(dim).filter(|&dim| dim != axis),
        indices: Some(dim),
    };
    Ok(((0..indices.len()).map(dim).collect(), [axis].into_iter().collect(), false))
}

/// Each tuple of the last dim of the indices names a place in as many dims of the table.
fn along_tuples(op: &Op, shapes: &LookupShapes<'_>) -> Result<PlaceDims> {
    let &LookupShapes { table, indices, .. } = shapes;
    let Some((&tuple, places)) = indices.split_last() else {
        return Err(shapes.misfit(op, "its last dim holds an index for each dim that is looked up"));
    };
    let batch = op.s64_attr(Attr::BatchDims).unwrap_or(0);
    let batch = usize::try_from(batch).ok().filter(|&batch| batch <= places.len() && batch <= table.len());
    let Some(batch) = batch else {
        return Err(
            shapes.misfit(op, "`batch_dims` is from 0 to its rank - 1, and at most that of the table")
        );
    };
    if table[..batch] != places[..batch] {
        return Err(shapes.misfit(op, "its first `batch_dims` dims are those of the table"));
    }
    let most = (table.len() - batch) as i64;
    if !(1..=most).contains(&tuple) {
        return Err(shapes.misfit(op, "its last dim is from 1 to the dims of the table behind `batch_dims`"));
    }
    let behind = batch + tuple as usize;
    let of_place = |dim: usize| LookupDim {
        size: places[dim],
        table: Some(dim).filter(|&dim| dim < batch),
        indices: Some(dim),
    };
    let of_table = |dim: usize| LookupDim { size: table[dim], table: Some(dim), indices: None };
    let dims = (0..places.len()).map(of_place).chain((behind..table.len()).map(of_table)).collect();
    Ok((dims, (batch..behind).collect(), true))
}

/// The first elements of each line along an axis, in an order.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FirstAlong {
    pub(crate) axis: usize,
    /// How many of each line.
    pub(crate) count: i64,
}

/// The axis of [TopK](OpKind::TopK), and of those that give one place, and how many elements of each line
/// they give.
///
/// # Errors
///
/// [`Error::Shape`](crate::Error::Shape) for an axis that is no dim, or that has fewer elements.
pub(crate) fn first_along(op: &Op, dims: &[i64]) -> Result<FirstAlong> {
    let axis = resolved_axis(op, dims)?;
    let (count, why) = match op.kind() {
        OpKind::TopK => (op.s64_attr(Attr::K).unwrap_or(1), "`k` is from 0 to its dim `axis`"),
        _ => (1, "its dim `axis` has no element"),
    };
    let is_empty = dims.iter().enumerate().any(|(dim, &size)| dim != axis && size == 0);
    match (0..=dims[axis]).contains(&count) || (is_empty && op.kind() != OpKind::TopK) {
        true => Ok(FirstAlong { axis, count }),
        false => Err(unfit(op, 0, dims, why)),
    }
}

impl FirstAlong {
    /// The shape of a result; a dim of one element can be left out.
    pub(crate) fn shape(&self, dims: &[i64], keep_dims: bool) -> Dims {
        let mut result: Dims = dims.into();
        match keep_dims {
            true => result[self.axis] = self.count,
            false => drop(result.remove(self.axis)),
        }
        result
    }
}
