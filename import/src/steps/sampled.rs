//! Data at points between its elements.

use sterna::{Attr, DataType, OpKind, TensorId};

use super::Steps;
use crate::dims::{UNKNOWN_DIM, is_known};
use crate::error::Fault;
use crate::weights::element_count;

use DataType as D;
use OpKind as K;

/// The longest dim of data whose places f32 holds.
const LONGEST: i64 = 1 << 24;
/// The coefficient of the cubic convolution of Keys.
const CUBIC: f64 = -0.75;

/// Most channels whose elements are looked up one by one; rows of more are copied.
const FEW_CHANNELS: i64 = 8;

/// How the elements around a point make one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Between {
    Nearest,
    /// The mean of the two beside it along each dim, by their distance.
    Linear,
    /// The sum of the four around it along each dim, by the cubic convolution of Keys.
    Cubic,
}

/// The elements beyond the edges of the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Beyond {
    Zero,
    /// That of the edge.
    Edge,
    /// Those of the data backwards.
    Mirror,
}

impl Beyond {
    /// The names of ONNX and of OpenVINO.
    pub(crate) const NAMES: [(&str, Self); 3] =
        [("zeros", Self::Zero), ("border", Self::Edge), ("reflection", Self::Mirror)];
}

/// How data is sampled.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sampling {
    pub(crate) between: Between,
    pub(crate) beyond: Beyond,
    /// −1 and 1 are the middles of the first and the last element, not their outer edges.
    pub(crate) align_corners: bool,
}

/// One of the elements around points along a dim, or along all dims so far.
#[derive(Debug, Clone, Copy)]
struct Neighbour {
    /// Its place within the data, in s32.
    place: TensorId,
    /// True where it is an element of the data; `None` if it always is.
    is_inside: Option<TensorId>,
    /// `None` for the nearest element.
    weight: Option<TensorId>,
}

impl Sampling {
    pub(crate) const NEEDED: &str = "known dims {N, C, H, W} or, unless cubic, {N, C, D, H, W} with \
        elements, and a grid {N, places, 2 or 3}";

    /// The distances of the elements that are added up from the one before the point.
    fn offsets(self) -> std::ops::RangeInclusive<i64> {
        match self.between {
            Between::Nearest => 0..=0,
            Between::Linear => 0..=1,
            Between::Cubic => -1..=2,
        }
    }
}

impl Steps<'_, '_> {
    /// Data {N, C, dims} at the points of a grid {N, places, number of dims}, each of which has the place
    /// along the last dim first: −1 at the start of a dim and 1 at its end. `None` for dims that do not fit.
    ///
    /// Elements are rows of all channels, which lookups copy, or few channels are planes.
    pub(crate) fn sampled(
        &mut self,
        x: TensorId,
        grid: TensorId,
        by: Sampling,
    ) -> Result<Option<TensorId>, Fault> {
        let dims = self.builder.dims(x).unwrap_or_default().to_vec();
        let points = self.builder.dims(grid).unwrap_or_default().to_vec();
        let rank = dims.len();
        let most = if by.between == Between::Cubic { 4 } else { 5 };
        let fits = (4..=most).contains(&rank)
            && points.len() == rank
            && points[rank - 1] == rank as i64 - 2
            && is_known(&dims[1..])
            && (dims[0] == points[0] || !is_known(&[dims[0], points[0]]))
            && dims[2..].iter().all(|dim| (1..=LONGEST).contains(dim));
        let number = element_count(dims.get(2..).unwrap_or_default()).filter(|&all| all <= i32::MAX.into());
        let (true, Some(number)) = (fits, number) else { return Ok(None) };
        let (batch, channels, data_type) = (dims[0].max(points[0]), dims[1], self.builder.data_type(x));
        let declared = self.declared.take();
        let places = &points[1..rank - 1];
        let is_one_open = places.iter().chain([&batch]).filter(|&&dim| dim == UNKNOWN_DIM).count() < 2;
        let are_planes = channels <= FEW_CHANNELS && is_one_open;
        let beside = [&[batch, 1], places].concat();
        let mut neighbours: Vec<Neighbour> = Vec::new();
        for (axis, &length) in dims[2..].iter().enumerate() {
            let part = rank as i64 - 3 - axis as i64;
            let mut point = self.part(grid, rank - 1, [part, part + 1])?;
            if are_planes {
                point = self.laid_out(point, &beside)?;
            }
            let along = self.neighbours(point, length, by)?;
            neighbours =
                if neighbours.is_empty() { along } else { self.crossed(&neighbours, &along, length)? };
        }
        let is_added = by.between != Between::Nearest;
        let mut table = if is_added { self.cast(x, D::F32)? } else { x };
        table = self.laid_out(table, &[dims[0], channels, number])?;
        if !are_planes {
            let order = [(Attr::Order, vec![0, 2, 1].into())];
            table = self.of_dims(K::StaticTranspose, &order, &[table], &[dims[0], number, channels])?;
        }
        let mut sum = None;
        for neighbour in neighbours {
            let found = if are_planes {
                let place = self.laid_out(neighbour.place, &[&[batch], places].concat())?;
                self.gathered(table, 2, place, 1)?
            } else {
                self.looked_up(K::GatherND, &[(Attr::BatchDims, 1i64.into())], &[table, neighbour.place])?
            };
            let part = self.weighed(found, neighbour)?;
            sum = Some(self.added(sum, part)?);
        }
        self.declared = declared;
        let Some(sum) = sum else { return Ok(None) };
        let sum = self.cast(sum, data_type)?;
        let result = [&[batch, channels], places].concat();
        if are_planes {
            return self.laid_out(sum, &result).map(Some);
        }
        let last = rank as i64 - 1;
        let order: Vec<i64> = [0, last].into_iter().chain(1..last).collect();
        self.of_dims(K::StaticTranspose, &[(Attr::Order, order.into())], &[sum], &result).map(Some)
    }

    /// The part of the sum that one of the elements around each point gives.
    fn weighed(&mut self, mut part: TensorId, neighbour: Neighbour) -> Result<TensorId, Fault> {
        if let Some(is_inside) = neighbour.is_inside {
            let zero = self.number(self.builder.data_type(part), 0.0)?;
            part = self.select(is_inside, part, zero)?;
        }
        match neighbour.weight {
            Some(weight) => self.both(K::Multiply, part, weight),
            None => Ok(part),
        }
    }

    /// The elements along some dims with those along the next one, which is so long.
    fn crossed(
        &mut self,
        neighbours: &[Neighbour],
        along: &[Neighbour],
        length: i64,
    ) -> Result<Vec<Neighbour>, Fault> {
        let mut crossed = Vec::with_capacity(neighbours.len() * along.len());
        let length = self.number(D::S32, length as f64)?;
        for neighbour in neighbours {
            let start = self.both(K::Multiply, neighbour.place, length)?;
            for other in along {
                let mut joined = |kind, a: Option<TensorId>, b: Option<TensorId>| match (a, b) {
                    (Some(a), Some(b)) => self.both(kind, a, b).map(Some),
                    _ => Ok(None),
                };
                let is_inside = joined(K::LogicalAnd, neighbour.is_inside, other.is_inside)?;
                let weight = joined(K::Multiply, neighbour.weight, other.weight)?;
                let place = self.both(K::Add, start, other.place)?;
                crossed.push(Neighbour { place, is_inside, weight });
            }
        }
        Ok(crossed)
    }

    /// The elements along a dim that is so long around points, which are numbers of a grid.
    fn neighbours(&mut self, point: TensorId, length: i64, by: Sampling) -> Result<Vec<Neighbour>, Fault> {
        let place = self.place_of_point(point, length, by)?;
        let (first, ratio) = match by.between {
            Between::Nearest => (place, None),
            _ => {
                let first = self.same(K::Floor, place)?;
                (first, Some(self.both(K::Subtract, place, first)?))
            }
        };
        let mut neighbours = Vec::new();
        for offset in by.offsets() {
            let distance = self.float(offset as f32)?;
            let mut place = if offset == 0 { first } else { self.both(K::Add, first, distance)? };
            let mut is_inside = None;
            match by.beyond {
                Beyond::Zero => {
                    let (zero, last) = (self.float(0.0)?, self.float(length as f32 - 1.0)?);
                    let from = self.predicate(K::GreaterEqual, place, zero)?;
                    let to = self.predicate(K::LessEqual, place, last)?;
                    is_inside = Some(self.both(K::LogicalAnd, from, to)?);
                }
                Beyond::Mirror if by.between == Between::Cubic => {
                    place = self.mirrored(place, length, by.align_corners)?;
                }
                Beyond::Edge | Beyond::Mirror => {}
            }
            // The place of a point that is no number is the first.
            let within = self.within(place, 0, length - 1)?;
            let place = self.cast(within, D::S32)?;
            let weight = match ratio {
                None => None,
                Some(ratio) => Some(self.weight_of(ratio, offset, by.between)?),
            };
            neighbours.push(Neighbour { place, is_inside, weight });
        }
        Ok(neighbours)
    }

    /// The places that points have along a dim, between whole numbers that are those of its elements.
    fn place_of_point(&mut self, point: TensorId, length: i64, by: Sampling) -> Result<TensorId, Fault> {
        let point = self.cast(point, D::F32)?;
        let (one, half) = (self.float(1.0)?, self.float(0.5)?);
        let from_start = self.both(K::Add, point, one)?;
        let mut place = if by.align_corners {
            let (share, span) = (self.both(K::Multiply, from_start, half)?, self.float((length - 1) as f32)?);
            self.both(K::Multiply, share, span)?
        } else {
            let span = self.float(length as f32)?;
            let twice = self.both(K::Multiply, from_start, span)?;
            let moved = self.both(K::Subtract, twice, one)?;
            self.both(K::Multiply, moved, half)?
        };
        if by.between == Between::Nearest {
            place = self.same(K::Round, place)?;
        }
        match (by.between, by.beyond) {
            // So far beyond the edges all elements around a point are alike, and none lies at infinity.
            (Between::Cubic, Beyond::Zero | Beyond::Edge) => self.within(place, -3, length + 2),
            (_, Beyond::Zero) => self.within(place, -2, length + 1),
            (_, Beyond::Edge) => self.within(place, 0, length - 1),
            (Between::Cubic, Beyond::Mirror) => Ok(place),
            (_, Beyond::Mirror) => {
                let place = self.mirrored(place, length, by.align_corners)?;
                self.within(place, 0, length - 1)
            }
        }
    }

    /// Numbers kept between two.
    fn within(&mut self, x: TensorId, least: i64, most: i64) -> Result<TensorId, Fault> {
        let bounds = [(Attr::Min, (least as f32).into()), (Attr::Max, (most as f32).into())];
        self.emit(K::Clamp, &bounds, &[x], D::F32)
    }

    /// Places as often mirrored at the edges of a dim as takes them into it. The edges are the middles of the
    /// first and last element with `align_corners`, else their outer edges.
    fn mirrored(&mut self, place: TensorId, length: i64, align_corners: bool) -> Result<TensorId, Fault> {
        let (start, span) = if align_corners { (0.0, (length - 1) as f32) } else { (-0.5, length as f32) };
        if span == 0.0 {
            return self.within(place, 0, 0);
        }
        let (start, period) = (self.float(start)?, self.float(2.0 * span)?);
        let from_start = self.both(K::Subtract, place, start)?;
        let distance = self.same(K::Abs, from_start)?;
        let share = self.both(K::Divide, distance, period)?;
        let turns = self.same(K::Floor, share)?;
        let whole = self.both(K::Multiply, turns, period)?;
        let there = self.both(K::Subtract, distance, whole)?;
        let back = self.both(K::Subtract, period, there)?;
        let nearer = self.both(K::Minimum, there, back)?;
        self.both(K::Add, nearer, start)
    }

    /// The weight of the element at a distance from the one before the point, which lies at a ratio of the
    /// way to the next one.
    fn weight_of(&mut self, ratio: TensorId, offset: i64, between: Between) -> Result<TensorId, Fault> {
        let one = self.float(1.0)?;
        let rest = self.both(K::Subtract, one, ratio)?;
        let x = if offset > 0 { rest } else { ratio };
        let is_far = !(0..=1).contains(&offset);
        match between {
            Between::Nearest => Ok(one),
            Between::Linear => Ok(if offset == 0 { rest } else { ratio }),
            // With the distance from the nearer element, 1 less than that from a farther one.
            Between::Cubic if is_far => self.polynomial(x, [CUBIC, -2.0 * CUBIC, CUBIC, 0.0]),
            Between::Cubic => self.polynomial(x, [CUBIC + 2.0, -CUBIC - 3.0, 0.0, 1.0]),
        }
    }

    /// A polynomial by its factors, that of the third power first.
    fn polynomial(&mut self, x: TensorId, factors: [f64; 4]) -> Result<TensorId, Fault> {
        let mut sum = self.float(factors[0] as f32)?;
        for factor in &factors[1..] {
            sum = self.both(K::Multiply, sum, x)?;
            if *factor != 0.0 {
                let factor = self.float(*factor as f32)?;
                sum = self.both(K::Add, sum, factor)?;
            }
        }
        Ok(sum)
    }
}
