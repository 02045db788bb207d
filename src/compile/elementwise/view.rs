//! Views: the map from the axes of a nest to the elements of a value, through broadcasting, transposes,
//! slices, reshapes and concatenations, as pure functions of numbers.

use std::ops::Range;

use smallvec::{SmallVec, smallvec};

use crate::types::shape::{self, Dims, MAX_RANK};

/// The elements of a value that a nest goes through, one for each point of its index space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::compile) struct View {
    /// Runs of the value's dims, from the first dim to the last.
    pub(in crate::compile) runs: SmallVec<[DimRun; 6]>,
}

/// Neighbouring dims of a value, whose elements are numbered in row-major order. The number of the element at
/// a point of a nest is the offset plus the sum of all terms.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::compile) struct DimRun {
    /// Number of dims.
    pub(in crate::compile) dims: usize,
    pub(in crate::compile) offset: i64,
    pub(in crate::compile) terms: SmallVec<[Term; 2]>,
}

/// An axis of a nest along which a number grows, and its growth with each iteration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::compile) struct Term {
    pub(in crate::compile) axis: usize,
    pub(in crate::compile) step: i64,
}

/// Why a view of an operand cannot be told for the axes of a nest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::compile) enum Obstacle {
    /// An axis goes through two dims of the operand: it has to be split, with a number of iterations inside.
    Split { axis: usize, inner: i64 },
    /// An axis goes through two operands of a concatenation: the nest has to be cut at an iteration.
    Cut { axis: usize, at: i64 },
    /// No axes lead to the elements.
    Inexpressible,
}

/// The index space of a nest: a box of the elements of a value.
#[derive(Debug, Clone)]
pub(in crate::compile) struct NestBox {
    /// The runs of the value's dims, each with the number of its first element.
    runs: SmallVec<[(usize, i64); 6]>,
    axes: SmallVec<[BoxAxis; 6]>,
}

#[derive(Debug, Clone, Copy)]
struct BoxAxis {
    run: usize,
    /// Elements of the run from one iteration to the next.
    step: i64,
    extent: i64,
}

impl NestBox {
    /// All elements of a value, an axis for each dim.
    pub(in crate::compile) fn of_dims(dims: &[i64]) -> Self {
        let axes = dims.iter().enumerate().map(|(run, &extent)| BoxAxis { run, step: 1, extent });
        Self { runs: smallvec![(1, 0); dims.len()], axes: axes.collect() }
    }

    /// All elements of a value, an axis for each dim before one, and an axis for all dims from that one on.
    pub(in crate::compile) fn folded(dims: &[i64], first: usize) -> Self {
        let (own, rest) = dims.split_at(first);
        let mut folded = Self::of_dims(own);
        folded.runs.push((rest.len(), 0));
        folded.axes.push(BoxAxis { run: first, step: 1, extent: shape::saturating_count(rest) });
        folded
    }

    /// All elements of a value, an axis for each run of neighbouring dims.
    pub(in crate::compile) fn of_runs(dims: &[i64], runs: &[Range<usize>]) -> Self {
        let axis = |(run, of): (usize, &Range<usize>)| {
            let extent = shape::saturating_count(&dims[of.clone()]);
            BoxAxis { run, step: 1, extent }
        };
        let axes = runs.iter().enumerate().map(axis).collect();
        Self { runs: runs.iter().map(|run| (run.len(), 0)).collect(), axes }
    }

    /// The same elements with the axes in an order.
    pub(in crate::compile) fn in_order(&self, order: &[usize]) -> Self {
        Self { runs: self.runs.clone(), axes: order.iter().map(|&axis| self.axes[axis]).collect() }
    }

    /// All elements of a value, in their row-major order.
    pub(in crate::compile) fn flat(dims: &[i64]) -> Self {
        match dims {
            [] => Self::of_dims(dims),
            _ => Self {
                runs: smallvec![(dims.len(), 0)],
                axes: smallvec![BoxAxis { run: 0, step: 1, extent: shape::saturating_count(dims) }],
            },
        }
    }

    /// Iterations of each axis.
    pub(in crate::compile) fn extents(&self) -> Dims {
        self.axes.iter().map(|axis| axis.extent).collect()
    }

    /// The view of the value.
    pub(in crate::compile) fn view(&self) -> View {
        let run = |(index, &(dims, offset)): (usize, &(usize, i64))| {
            let axes = self.axes.iter().enumerate().filter(|(_, axis)| axis.run == index && axis.extent != 1);
            let terms = axes.map(|(axis, &BoxAxis { step, .. })| Term { axis, step }).collect();
            DimRun { dims, offset, terms }
        };
        View { runs: self.runs.iter().enumerate().map(run).collect() }
    }

    /// The box with one axis split into two, the inner one with `inner` iterations; `None` if a
    /// nest cannot have one axis more.
    pub(in crate::compile) fn split(&self, axis: usize, inner: i64) -> Option<Self> {
        let BoxAxis { run, step, extent } = self.axes[axis];
        let mut split = self.clone();
        split.axes[axis] = BoxAxis { run, step: step * inner, extent: extent / inner };
        split.axes.insert(axis + 1, BoxAxis { run, step, extent: inner });
        (split.axes.len() <= MAX_RANK).then_some(split)
    }

    /// The box with some iterations of an axis: `count` from the first on, `step` apart.
    pub(in crate::compile) fn strided(&self, axis: usize, first: i64, step: i64, count: i64) -> Self {
        let mut strided = self.clone();
        let BoxAxis { run, step: own, .. } = self.axes[axis];
        strided.runs[run].1 += own * first;
        strided.axes[axis] = BoxAxis { run, step: own * step, extent: count };
        strided
    }

    /// The two boxes before and from one iteration of an axis.
    pub(in crate::compile) fn cut(&self, axis: usize, at: i64) -> [Self; 2] {
        let (mut before, mut from) = (self.clone(), self.clone());
        let BoxAxis { run, step, .. } = self.axes[axis];
        before.axes[axis].extent = at;
        from.axes[axis].extent -= at;
        from.runs[run].1 += step * at;
        [before, from]
    }
}

impl View {
    /// The view of an operand whose first dim stands at dim `start` of a value, onto which it broadcasts.
    pub(in crate::compile) fn broadcast(
        &self,
        dims: &[i64],
        operand: &[i64],
        start: usize,
        extents: &[i64],
    ) -> Result<Self, Obstacle> {
        if operand == dims {
            return Ok(self.clone());
        }
        if operand.iter().all(|&dim| dim == 1) {
            return Ok(Self { runs: smallvec![DimRun { dims: 1, ..DimRun::default() }; operand.len()] });
        }
        let mut runs = SmallVec::new();
        let mut first = 0;
        for run in &self.runs {
            let of_run = first..first + run.dims;
            first = of_run.end;
            let shared = of_run.start.max(start)..of_run.end.min(start + operand.len());
            if shared.is_empty() {
                continue;
            }
            let counts = &operand[shared.start - start..shared.end - start];
            // A run that the operand has as a whole, or repeats as a whole, need not be taken apart.
            if counts.iter().all(|&count| count == 1) {
                runs.extend(counts.iter().map(|_| DimRun { dims: 1, ..DimRun::default() }));
            } else if *counts == dims[of_run.clone()] {
                runs.push(run.clone());
            } else {
                let digits = run.digits(&dims[of_run.clone()], extents)?;
                runs.extend(shared.zip(counts).map(|(dim, &count)| match count {
                    1 => DimRun { dims: 1, ..DimRun::default() },
                    _ => digits[dim - of_run.start].clone(),
                }));
            }
        }
        Ok(Self { runs })
    }

    /// The view of an operand whose dim `order[i]` is dim `i` of a value.
    pub(in crate::compile) fn transposed(
        &self,
        dims: &[i64],
        order: &[usize],
        extents: &[i64],
    ) -> Result<Self, Obstacle> {
        let of_dims = self.by_dims(dims, extents)?;
        let mut operand = of_dims.clone();
        for (run, &dim) in of_dims.runs.into_iter().zip(order) {
            operand.runs[dim] = run;
        }
        Ok(operand)
    }

    /// The view of an operand if a value has a range of each of its dims, by first elements and steps.
    pub(in crate::compile) fn sliced(
        &self,
        dims: &[i64],
        ranges: impl Iterator<Item = (i64, i64)>,
        extents: &[i64],
    ) -> Result<Self, Obstacle> {
        let mut operand = self.by_dims(dims, extents)?;
        for (run, (start, step)) in operand.runs.iter_mut().zip(ranges) {
            *run = run.scaled(step);
            run.offset += start;
        }
        Ok(operand)
    }

    /// The view of an operand that has the elements of a value in the same order, in other dims.
    pub(in crate::compile) fn reshaped(&self, dims: &[i64], operand: &[i64]) -> Self {
        let mut dim = 0;
        let mut given = self.runs.iter().map(|run| {
            dim += run.dims;
            (shape::saturating_count(&dims[dim - run.dims..dim]), run)
        });
        let mut runs = SmallVec::new();
        let mut place = 0;
        while place < operand.len() {
            let mut run = DimRun { dims: 1, ..DimRun::default() };
            let (mut count, mut wanted) = (1, operand[place]);
            place += 1;
            while count != wanted {
                if count < wanted {
                    let Some((size, inner)) = given.next() else { break };
                    run = DimRun { dims: run.dims, ..run.followed_by(size, inner) };
                    count *= size;
                } else {
                    let Some(&more) = operand.get(place) else { break };
                    wanted *= more;
                    run.dims += 1;
                    place += 1;
                }
            }
            runs.push(run);
        }
        Self { runs }
    }

    /// The operand of a concatenation along dim `axis` of a value in which the view lies, and the view of it;
    /// `firsts` are the places of the operands along the dim, and its size.
    pub(in crate::compile) fn concatenated(
        &self,
        dims: &[i64],
        axis: usize,
        firsts: &[i64],
        extents: &[i64],
    ) -> Result<(usize, Self), Obstacle> {
        let mut operand = self.by_dims(dims, extents)?;
        let run = &mut operand.runs[axis];
        let (least, most) = run.bounds(extents);
        // Operands without elements start where the next one does.
        let index = firsts.partition_point(|&first| first <= least) - 1;
        let end = firsts[index + 1];
        if most < end {
            run.offset -= firsts[index];
            return Ok((index, operand));
        }
        let term = run.terms.iter().max_by_key(|term| term.step.abs()).ok_or(Obstacle::Inexpressible)?;
        let &Term { axis, step } = term;
        // The iterations that stay on the side of the first.
        let at = match step > 0 {
            true => (end - run.offset + step - 1).div_euclid(step),
            false => (run.offset - end).div_euclid(-step) + 1,
        };
        match (1..extents[axis]).contains(&at) {
            true => Err(Obstacle::Cut { axis, at }),
            false => Err(Obstacle::Inexpressible),
        }
    }

    /// The same view, each run one dim.
    pub(in crate::compile) fn by_dims(&self, dims: &[i64], extents: &[i64]) -> Result<Self, Obstacle> {
        if self.runs.len() == dims.len() {
            return Ok(self.clone());
        }
        let mut runs = SmallVec::new();
        let mut first = 0;
        for run in &self.runs {
            match run.dims {
                1 => runs.push(run.clone()),
                count => runs.extend(run.digits(&dims[first..first + count], extents)?),
            }
            first += run.dims;
        }
        Ok(Self { runs })
    }

    /// The offset and the stride along each axis, in elements, of a value with these strides.
    pub(in crate::compile) fn strides(
        &self,
        dims: &[i64],
        strides: &[i64],
        extents: &[i64],
    ) -> Result<(i64, Dims), Obstacle> {
        let mut offset = 0;
        let mut of_axis = Dims::from_elem(0, extents.len());
        let mut add = |run: &DimRun, stride: i64| {
            offset += run.offset * stride;
            run.terms.iter().for_each(|term| of_axis[term.axis] += term.step * stride);
        };
        let mut first = 0;
        for run in &self.runs {
            let places = first..first + run.dims;
            first += run.dims;
            if run.dims == 1 {
                add(run, strides[places.start]);
                continue;
            }
            // Neighbours without a gap are one dim.
            let mut merged: SmallVec<[(i64, i64); 6]> = SmallVec::new();
            for place in places.filter(|&place| dims[place] != 1) {
                match merged.last_mut() {
                    Some((count, stride)) if *stride == dims[place] * strides[place] => {
                        (*count, *stride) = (*count * dims[place], strides[place]);
                    }
                    _ => merged.push((dims[place], strides[place])),
                }
            }
            let counts: Dims = merged.iter().map(|&(count, _)| count).collect();
            for (digit, &(_, stride)) in run.digits(&counts, extents)?.iter().zip(&merged) {
                add(digit, stride);
            }
        }
        Ok((offset, of_axis))
    }
}

impl DimRun {
    fn scaled(&self, factor: i64) -> Self {
        let terms = self.terms.iter().map(|&Term { axis, step }| Term { axis, step: step * factor });
        Self { dims: self.dims, offset: self.offset * factor, terms: terms.collect() }
    }

    /// The run of these dims and those of an inner run of `size` elements.
    fn followed_by(&self, size: i64, inner: &Self) -> Self {
        let Self { dims, offset, mut terms } = self.scaled(size);
        terms.extend_from_slice(&inner.terms);
        Self { dims: dims + inner.dims, offset: offset + inner.offset, terms }
    }

    /// The least and the greatest number.
    fn bounds(&self, extents: &[i64]) -> (i64, i64) {
        self.terms.iter().fold((self.offset, self.offset), |(least, most), &Term { axis, step }| {
            let growth = step.saturating_mul(extents[axis] - 1);
            (least.saturating_add(growth.min(0)), most.saturating_add(growth.max(0)))
        })
    }

    /// The indices along dims of these sizes, from the numbers of their elements.
    fn digits(&self, sizes: &[i64], extents: &[i64]) -> Result<SmallVec<[DimRun; 6]>, Obstacle> {
        // Of no elements there are no indices.
        if sizes.contains(&0) {
            return Err(Obstacle::Inexpressible);
        }
        let mut digits: SmallVec<[DimRun; 6]> = SmallVec::new();
        let mut rest = self.offset;
        let mut weights: Dims = sizes.into();
        let mut weight = 1i64;
        for (place, &size) in sizes.iter().enumerate().rev() {
            (weights[place], weight) = (weight, weight.saturating_mul(size));
        }
        for &weight in &weights {
            digits.push(DimRun { dims: 1, offset: rest / weight, terms: SmallVec::new() });
            rest %= weight;
        }
        for &Term { axis, step } in &self.terms {
            let place = weights.iter().position(|&weight| weight <= step.abs());
            let place = place.ok_or(Obstacle::Inexpressible)?;
            let end = weights[place].saturating_mul(sizes[place]);
            let extent = extents[axis];
            if step % weights[place] != 0 {
                return Err(Obstacle::Inexpressible);
            }
            if place > 0 && step.abs().saturating_mul(extent - 1) >= end {
                // The axis continues in the next dim.
                let inner = end / step.abs();
                let fits = end % step == 0 && extent % inner == 0;
                return Err(if fits { Obstacle::Split { axis, inner } } else { Obstacle::Inexpressible });
            }
            digits[place].terms.push(Term { axis, step: step / weights[place] });
        }
        let fits = |(digit, &size): (&DimRun, &i64)| {
            let (least, most) = digit.bounds(extents);
            least >= 0 && most < size
        };
        match digits.iter().zip(sizes).all(fits) {
            true => Ok(digits),
            false => Err(Obstacle::Inexpressible),
        }
    }
}
