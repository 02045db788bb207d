//! The index space of a nest: loops, and how accesses and results go along them.

use smallvec::SmallVec;

use super::driver_space::DriverSpace;
use super::expr::{Axes, AxisAccess, ExprGraph};
use super::loops::{SpaceLoop, normalise};
use crate::compile::memory::MemoryPolicy;
use crate::kernels::InnerStride;
use crate::plan::{AccessId, Base, Operand, StepSpace, Strides};
use crate::types::shape;

/// The loops of a nest, and the strides along each.
pub(super) struct IterationSpace {
    /// All loops but the two innermost.
    pub(super) outer: SmallVec<[SpaceLoop; 4]>,
    pub(super) rows: SpaceLoop,
    pub(super) columns: SpaceLoop,
    /// The axes along which results vary, in the order of their stand-ins for strides.
    masks: SmallVec<[Axes; 4]>,
}

/// Elements of a tile below which its rows are worth a loop that goes farther from one to the next
/// (decision: few-rows).
const SHORT_TILE: usize = 1024;

impl IterationSpace {
    /// The loops of a nest: those that the driver of the phase gives, or as few as accesses and steps allow,
    /// whose innermost runs along the memory of one access.
    pub(super) fn new(expr: &ExprGraph<'_>, along: AccessId) -> Self {
        match expr.driver {
            Some(driver) => Self::given(expr, driver),
            None => Self::merged(expr, along),
        }
    }

    /// The loops that a driver gives.
    fn given(expr: &ExprGraph<'_>, driver: &DriverSpace) -> Self {
        let (axes, masks) = axis_loops(expr, &(0..expr.dims.len()).collect::<SmallVec<[usize; 6]>>());
        let single = |columns: bool| {
            let stride = |access: &AxisAccess| if columns { access.width.bytes() as isize } else { 0 };
            let strides = expr.accesses.iter().map(stride).collect();
            SpaceLoop { extent: 1, strides, results: Strides::from_elem(0, masks.len()) }
        };
        let outer = driver.outer().map(|axis| axes[axis].clone()).collect();
        let rows = driver.rows.map_or_else(|| single(false), |axis| axes[axis].clone());
        let columns = driver.columns.map_or_else(|| single(true), |axis| axes[axis].clone());
        Self { outer, rows, columns, masks }
    }

    /// Merges loops as far as accesses and steps allow; the innermost loop runs along the memory of one
    /// access.
    fn merged(expr: &ExprGraph<'_>, along: AccessId) -> Self {
        let dims = &expr.dims[..];
        let result = &expr.accesses[along].strides;
        let order =
            shape::memory_order(dims, &result.iter().map(|&stride| stride as i64).collect::<Vec<_>>());
        let (axes, masks) = axis_loops(expr, &order);
        let mut outer = normalise(axes, along);
        let once =
            |strides: Strides| SpaceLoop { extent: 1, strides, results: Strides::from_elem(0, masks.len()) };
        let widths = || expr.accesses.iter().map(|access| access.width.bytes() as isize).collect();
        let columns = outer.pop().unwrap_or_else(|| once(widths()));
        if expr.nodes.is_empty() {
            transposes_in_tiles(&mut outer, &columns, &widths());
        } else {
            lengthen_rows(&mut outer, &columns);
        }
        let rows = outer.pop().unwrap_or_else(|| once(Strides::from_elem(0, expr.accesses.len())));
        Self { outer, rows, columns, masks }
    }

    /// The bit of the row loop, and of the column loop, after those of the outer loops.
    pub(super) fn row_bit(&self) -> u32 {
        1 << self.outer.len()
    }

    pub(super) fn column_bit(&self) -> u32 {
        2 << self.outer.len()
    }

    fn loops(&self) -> impl DoubleEndedIterator<Item = &SpaceLoop> {
        self.outer.iter().chain([&self.rows, &self.columns])
    }

    /// The loops along which an access moves, one bit each: outer loops, rows, columns.
    pub(super) fn varies(&self, access: AccessId) -> u32 {
        self.moving(|l| l.strides[access])
    }

    /// The loops along which a result varies that varies along some axes.
    pub(super) fn node_varies(&self, varies: Axes) -> u32 {
        let mask = self.masks.iter().position(|&mask| mask == varies);
        mask.map_or(0, |mask| self.moving(|l| l.results[mask]))
    }

    fn moving(&self, stride: impl Fn(&SpaceLoop) -> isize) -> u32 {
        let moving = self.loops().enumerate().filter(|(_, l)| l.extent > 1 && stride(l) != 0);
        moving.fold(0, |bits, (bit, _)| bits | 1 << bit)
    }

    /// All loops of more than one iteration.
    pub(super) fn all(&self) -> u32 {
        let iterating = self.loops().enumerate().filter(|(_, l)| l.extent > 1);
        iterating.fold(0, |bits, (bit, _)| bits | 1 << bit)
    }

    /// Prefetch distance of an operand in bytes; 0 if it is a computed value, or the caches hold it until it
    /// is read.
    ///
    /// With transposed and channels-last operands, memory at that distance in a row belongs to a tile that
    /// comes much later, so nests that pack prefetch the next row (decision: prefetch-next-row).
    pub(super) fn distance(
        &self,
        expr: &ExprGraph<'_>,
        policy: &MemoryPolicy,
        packs: bool,
        operand: Operand,
    ) -> isize {
        let (Operand::Access(access), distance) = (operand, policy.prefetch_distance) else { return 0 };
        if distance == 0 || matches!(expr.accesses[access].base, Base::Driver(_)) {
            return 0;
        }
        let is_repeated = |l: &SpaceLoop| l.extent > 1 && l.strides[access] == 0;
        let between = self.loops().rev().take_while(|l| !is_repeated(l)).map(|l| l.extent);
        let width = expr.accesses[access].width.bytes();
        let bytes = between.fold(width, usize::saturating_mul);
        if self.loops().any(is_repeated) && policy.keeps(bytes) {
            return 0;
        }
        // Rows are short and may lie apart, so a later row is prefetched.
        let rows = match distance.div_ceil(self.columns.extent.saturating_mul(width).max(1)) {
            _ if packs => 1,
            1 => return distance as isize,
            rows => rows as isize,
        };
        self.rows.strides[access].saturating_mul(rows)
    }

    pub(super) fn space(&self, varies: u32) -> StepSpace {
        let columns = varies & self.column_bit() != 0 || self.columns.extent == 1;
        StepSpace {
            rows: varies & self.row_bit() != 0 || self.rows.extent == 1,
            columns: if columns { InnerStride::Contiguous } else { InnerStride::Broadcast },
        }
    }
}

/// A loop for each axis, and the axes along which results vary, in the order of their stand-ins for strides;
/// `order` is the order of the axes in the memory of the results.
fn axis_loops(expr: &ExprGraph<'_>, order: &[usize]) -> (Vec<SpaceLoop>, SmallVec<[Axes; 4]>) {
    let dims = &expr.dims[..];
    let mut masks: SmallVec<[Axes; 4]> = SmallVec::new();
    for node in &expr.nodes {
        if !masks.contains(&node.varies) {
            masks.push(node.varies);
        }
    }
    // Results of steps have no strides yet. With these stand-ins, no loop along which a result varies
    // merges with one along which it does not.
    let strides_of = |mask: Axes| {
        let varying: SmallVec<[i64; 6]> =
            (0..dims.len()).map(|axis| if mask & 1 << axis == 0 { 1 } else { dims[axis] }).collect();
        let strides = shape::dense_strides(&varying, order).unwrap_or_else(|| varying.as_slice().into());
        let of_axis = |(axis, stride): (usize, i64)| if mask & 1 << axis == 0 { 0 } else { stride as isize };
        strides.into_iter().enumerate().map(of_axis).collect::<SmallVec<[isize; 6]>>()
    };
    let of_masks: Vec<SmallVec<[isize; 6]>> = masks.iter().map(|&mask| strides_of(mask)).collect();
    let loops = (0..dims.len()).map(|axis| SpaceLoop {
        extent: dims[axis] as usize,
        strides: expr.accesses.iter().map(|access| access.strides[axis]).collect(),
        results: of_masks.iter().map(|strides| strides[axis]).collect(),
    });
    (loops.collect(), masks)
}

/// Makes the longest loop that of the rows where those of the innermost one are so few and short that going
/// to a tile takes longer than the work in it, such as the heads of a token.
fn lengthen_rows(outer: &mut SmallVec<[SpaceLoop; 4]>, columns: &SpaceLoop) {
    let Some(rows) = outer.last().map(|rows| rows.extent) else { return };
    let longest = (0..outer.len()).max_by_key(|&place| outer[place].extent).unwrap_or(0);
    if rows.saturating_mul(columns.extent) < SHORT_TILE && outer[longest].extent >= 2 * rows {
        let longest = outer.remove(longest);
        outer.push(longest);
    }
}

/// Makes the loop along the memory of a transposed operand the innermost of the outer ones, so that a tile
/// reads whole cache lines. Only nests that compute nothing have the choice without a loss.
fn transposes_in_tiles(outer: &mut [SpaceLoop], columns: &SpaceLoop, widths: &Strides) {
    let is_strided = |access: usize| ![0, widths[access]].contains(&columns.strides[access]);
    let runs_along = |l: &SpaceLoop| (0..widths.len()).any(|i| is_strided(i) && l.strides[i] == widths[i]);
    if let Some(place) = outer.iter().rposition(runs_along) {
        let last = outer.len() - 1;
        outer.swap(place, last);
    }
}
