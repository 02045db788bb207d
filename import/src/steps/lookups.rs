//! Lookups at places that indices name, and places of elements in order of size.

use sterna::{Attr, AttrValue, DataType, OpKind, TensorId};

use super::Steps;
use crate::error::Fault;
use crate::fold;
use crate::weights::{byte_count, integers};

use DataType as D;
use OpKind as K;

/// The most slices that stand for a lookup at known places; they fuse with their neighbours, and more of them
/// take longer than the lookup.
const MAX_RUNS: usize = 4;

/// Places as ranges of neighbours; one of nothing if there are none.
fn runs(places: &[i64]) -> Vec<[i64; 2]> {
    let mut runs: Vec<[i64; 2]> = Vec::new();
    for &place in places {
        match runs.last_mut() {
            Some([_, end]) if *end == place => *end += 1,
            _ => runs.push([place, place + 1]),
        }
    }
    if runs.is_empty() {
        runs.push([0, 0]);
    }
    runs
}

/// The first and the last of several places that are equally far apart, and not neighbours, and the distance.
fn steps(places: &[i64]) -> Option<[i64; 3]> {
    let [first, second, .., last] = *places else { return None };
    let step = second - first;
    let are_even = step > 1 && places.windows(2).all(|pair| pair[1] - pair[0] == step);
    are_even.then_some([first, last, step])
}

/// The places that tuples of indices name, if they are a grid: along each dim of the data that they look up,
/// places that vary along one dim of the indices at most, and along no other's.
struct Grid {
    /// For each dim that is looked up, the dim of the indices along which its places vary, and the places.
    axes: Vec<(Option<usize>, Vec<i64>)>,
}

impl Grid {
    /// The grid of tuples in row-major order, each with an index for each of the first dims of the data,
    /// whose sizes are given. `None` if they are no grid, or if one is out of range.
    fn new(tuples: &[i64], places: &[i64], sizes: &[i64]) -> Option<Self> {
        let count = sizes.len();
        let strides: Vec<usize> = (0..places.len())
            .map(|dim| places[dim + 1..].iter().map(|&dim| dim as usize).product())
            .collect();
        let mut axes: Vec<(Option<usize>, Vec<i64>)> = Vec::new();
        for (k, &size) in sizes.iter().enumerate() {
            let at = |place: usize| tuples[place * count + k];
            let along = (0..places.len()).find(|&dim| {
                places[dim] > 1 && (1..places[dim] as usize).any(|i| at(i * strides[dim]) != at(0))
            });
            let list: Vec<i64> = match along {
                Some(dim) => (0..places[dim] as usize).map(|i| at(i * strides[dim])).collect(),
                None => vec![at(0)],
            };
            let is_same = |place: usize| match along {
                Some(dim) => at(place) == list[place / strides[dim] % places[dim] as usize],
                None => at(place) == list[0],
            };
            let in_range = list.iter().all(|place| (-size..size).contains(place));
            if !(0..tuples.len() / count).all(is_same) || !in_range {
                return None;
            }
            if along.is_some() && axes.iter().any(|(other, _)| *other == along) {
                return None;
            }
            axes.push((along, list.iter().map(|place| place.rem_euclid(size)).collect()));
        }
        Some(Self { axes })
    }
}

impl Steps<'_, '_> {
    /// Indices in a type that lookups take.
    fn indices(&mut self, places: TensorId) -> Result<TensorId, Fault> {
        match self.builder.data_type(places) {
            D::S32 | D::S64 => Ok(places),
            _ => self.cast(places, D::S64),
        }
    }

    /// An op that looks places up: the second operand has the indices.
    pub(crate) fn looked_up(
        &mut self,
        kind: OpKind,
        attrs: &[(Attr, AttrValue)],
        operands: &[TensorId],
    ) -> Result<TensorId, Fault> {
        let mut operands = operands.to_vec();
        operands[1] = self.indices(operands[1])?;
        self.emit_declared(kind, attrs, &operands, self.builder.data_type(operands[0]))
    }

    /// The slices at places along an axis, behind dims that data and places share. Places that are constants
    /// and few ranges of neighbours are slices.
    pub(crate) fn gathered(
        &mut self,
        x: TensorId,
        axis: usize,
        places: TensorId,
        batch: usize,
    ) -> Result<TensorId, Fault> {
        if batch == 0 && self.are_all_in_order(x, axis, places) {
            return Ok(x);
        }
        if let (Some(known), Some(dims), 0) = (self.known_places(places), self.builder.known_dims(x), batch) {
            let (length, own) = (dims[axis], self.builder.known_dims(places).unwrap_or_default());
            let result = [&dims[..axis], own, &dims[axis + 1..]].concat();
            if result.len() <= sterna::MAX_RANK && known.iter().all(|at| (-length..length).contains(at)) {
                let known: Vec<i64> = known.iter().map(|at| at.rem_euclid(length.max(1))).collect();
                if let Some(found) = self.gathered_at(x, axis, &known, &result)? {
                    return Ok(found);
                }
            }
        }
        let attrs = [(Attr::Axis, (axis as i64).into()), (Attr::BatchDims, (batch as i64).into())];
        self.looked_up(K::Gather, &attrs, &[x, places])
    }

    /// The parts of what is joined along an axis. If the first is what a place gives of an input along
    /// another axis that has one element, as of the cache of one sequence, it is the input, and the others
    /// are what the place gives of them: the same, which refuses the same places, and leaves the cache where
    /// it is.
    pub(crate) fn around_input(
        &mut self,
        mut parts: Vec<TensorId>,
        axis: usize,
    ) -> Result<Vec<TensorId>, Fault> {
        let Some((input, along, places)) = self.builder.input_behind_places(parts[0]) else {
            return Ok(parts);
        };
        let is_one =
            |of: TensorId| self.builder.known_dims(of).is_some_and(|dims| dims.get(along) == Some(&1));
        let is_place = self.builder.known_dims(places) == Some(&[1]);
        if along == axis || !is_place || !is_one(input) || !parts.iter().all(|&part| is_one(part)) {
            return Ok(parts);
        }
        parts[0] = input;
        for part in &mut parts[1..] {
            *part = self.gathered(*part, along, places, 0)?;
        }
        Ok(parts)
    }

    /// True if places are a list of all along an axis in their order, as of caches whose sequences stay.
    fn are_all_in_order(&self, x: TensorId, axis: usize, places: TensorId) -> bool {
        let length = self.builder.dims(x).and_then(|dims| dims.get(axis).copied());
        let (Some(length), Some([count])) = (length, self.builder.known_dims(places)) else { return false };
        *count == length && self.known_places(places).is_some_and(|known| known.iter().copied().eq(0..length))
    }

    /// The values of places that are a constant.
    pub(super) fn known_places(&self, places: TensorId) -> Option<Vec<i64>> {
        integers(self.builder.value(places)?)
    }

    /// The slices at known places within a dim, in the shape of the result; `None` if they are many slices of
    /// what is no constant.
    fn gathered_at(
        &mut self,
        x: TensorId,
        axis: usize,
        places: &[i64],
        result: &[i64],
    ) -> Result<Option<TensorId>, Fault> {
        if let Some(value) = self.builder.value(x) {
            let size = byte_count(value.data_type(), result)?.unwrap_or(usize::MAX);
            if self.builder.charge_folded(size).is_ok()
                && let Some(value) = self.builder.value(x)
            {
                let value = fold::gathered(value, axis, places, result)?;
                return Ok(Some(self.builder.constant(value)?));
            }
        }
        if let Some([first, last, step]) = steps(places) {
            let along = self.strided(x, axis, [first, last + 1, step])?;
            return self.in_shape(along, result).map(Some);
        }
        let runs = runs(places);
        if runs.len() > MAX_RUNS {
            return Ok(None);
        }
        let mut parts = Vec::new();
        for run in runs {
            parts.push(self.part(x, axis, run)?);
        }
        let along = self.joined(parts, axis)?;
        self.in_shape(along, result).map(Some)
    }

    /// The slices that tuples of indices name, behind dims that data and indices share. Constant tuples that
    /// are a grid, as masks by positions have them, are slices of each dim, repeated along others.
    pub(crate) fn gathered_nd(
        &mut self,
        x: TensorId,
        tuples: TensorId,
        batch: usize,
    ) -> Result<TensorId, Fault> {
        let is_constant = self.builder.value(x).is_some();
        let shapes = self.builder.known_dims(x).zip(self.builder.known_dims(tuples));
        let shapes = shapes.map(|(dims, own)| (dims.to_vec(), own.to_vec()));
        if let (Some((dims, own)), Some(known), 0, false) =
            (shapes, self.known_places(tuples), batch, is_constant)
            && let Some((&count, places)) = own.split_last()
            && (1..=dims.len() as i64).contains(&count)
            && !places.contains(&0)
            && places.len() + dims.len() - count as usize <= sterna::MAX_RANK
            && let Some(grid) = Grid::new(&known, places, &dims[..count as usize])
            && let Some(found) = self.on_grid(x, &grid, places, &dims)?
        {
            return Ok(found);
        }
        self.looked_up(K::GatherND, &[(Attr::BatchDims, (batch as i64).into())], &[x, tuples])
    }

    /// The slices at the places of a grid; `None` if these are many ranges.
    fn on_grid(
        &mut self,
        x: TensorId,
        grid: &Grid,
        places: &[i64],
        dims: &[i64],
    ) -> Result<Option<TensorId>, Fault> {
        if grid.axes.iter().any(|(_, list)| runs(list).len() > MAX_RUNS) {
            return Ok(None);
        }
        let (mut found, mut dims) = (x, dims.to_vec());
        for (axis, (_, list)) in grid.axes.iter().enumerate() {
            if list.iter().copied().eq(0..dims[axis]) {
                continue;
            }
            dims[axis] = list.len() as i64;
            match self.gathered_at(found, axis, list, &dims)? {
                Some(part) => found = part,
                None => return Ok(None),
            }
        }
        // Dims that vary along none of the places have one element, wherever they stand.
        let count = grid.axes.len();
        let mut order: Vec<usize> = (0..count).collect();
        order.sort_by_key(|&axis| grid.axes[axis].0);
        let order: Vec<i64> = order.into_iter().chain(count..dims.len()).map(|axis| axis as i64).collect();
        if !order.iter().copied().eq(0..dims.len() as i64) {
            let declared = self.declared.take();
            found = self.transposed(found, &order)?;
            self.declared = declared;
        }
        let is_used = |dim: &usize| grid.axes.iter().any(|(along, _)| *along == Some(*dim));
        let beside: Vec<i64> =
            (0..places.len()).map(|dim| if is_used(&dim) { places[dim] } else { 1 }).collect();
        let found = self.in_shape(found, &[&beside, &dims[count..]].concat())?;
        self.enlarged(found, &[places, &dims[count..]].concat()).map(Some)
    }

    /// The largest or the smallest elements along an axis, and their places in s64 or s32.
    pub(crate) fn top_k(
        &mut self,
        x: TensorId,
        (axis, count): (usize, i64),
        largest: bool,
        places: DataType,
    ) -> Result<[TensorId; 2], Fault> {
        let attrs =
            [(Attr::Axis, (axis as i64).into()), (Attr::K, count.into()), (Attr::Largest, largest.into())];
        let types = [self.builder.data_type(x), places];
        let results = self.builder.ops(self.name, K::TopK, &attrs, &[x], &types, None)?;
        Ok([results[0], results[1]])
    }

    /// The place of the largest or the smallest element along an axis, the first or the last of several.
    pub(crate) fn place_of(
        &mut self,
        kind: OpKind,
        x: TensorId,
        axis: usize,
        [keep_dims, last]: [bool; 2],
        places: DataType,
    ) -> Result<TensorId, Fault> {
        let attrs = [
            (Attr::Axis, (axis as i64).into()),
            (Attr::KeepDims, keep_dims.into()),
            (Attr::SelectLastIndex, last.into()),
        ];
        self.emit(kind, &attrs, &[x], places)
    }

    /// One of two numbers for each of some classes along an axis of the result: the first number at the class
    /// that the element of `places` names; negative ones count from the end if `from_end` says so.
    pub(crate) fn one_hot(
        &mut self,
        places: TensorId,
        axis: usize,
        classes: i64,
        from_end: bool,
        [on, off]: [TensorId; 2],
    ) -> Result<Option<TensorId>, Fault> {
        let (own, data_type) = (self.dims(places)?, self.builder.data_type(places));
        let numbers: Vec<i64> = (0..classes).collect();
        let Some(classes_of) = fold::integers_of(data_type, &numbers) else { return Ok(None) };
        let beside = [&own[..axis], &[1], &own[axis..]].concat();
        let mut places = self.in_shape(places, &beside)?;
        if from_end {
            let (zero, count) = (self.number(data_type, 0.0)?, self.number(data_type, classes as f64)?);
            let below = self.predicate(K::Less, places, zero)?;
            let moved = self.pair(K::Add, &[], places, count)?;
            places = self.select(below, moved, places)?;
        }
        let along: Vec<i64> = (0..beside.len()).map(|dim| if dim == axis { classes } else { 1 }).collect();
        let classes_of = self.builder.constant(classes_of.reshaped(&along)?)?;
        let here = self.predicate(K::Equal, places, classes_of)?;
        self.select(here, on, off).map(Some)
    }
}
