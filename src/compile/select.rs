//! Lowers a select to a nest of one select step, with what makes strided operands dense around it.

use smallvec::SmallVec;

use super::Operand;
use crate::graph::infer::SelectShapes;
use crate::kernels::caches::caches;
use crate::kernels::{Extent, Inner, Stores, Width, pack, select};
use crate::plan::loops::{Loop, Role, Steps, normalise};
use crate::plan::{Branch, Feed, Nest, Place, Plan, Select, Step, StepSpace, Walk, Work};
use crate::types::kind::Level;
use crate::types::shape::{self, Dims};

/// The operands of a select, in the order of its walks.
const COND: usize = 0;
const THEN: usize = 1;
const ELSE: usize = 2;
const DST: usize = 3;

/// Bytes of the result in one tile: enough that the work on a tile outweighs finding it, little enough that threads
/// find many to share.
const TILE_BYTES: usize = 64 * 1024;

/// Whether results go past the caches: always where the operands do not fit the last level; and where they do, but not
/// the second level by far, if the result is less than three sevenths of what is moved. The result then leaves the cache to
/// the inputs: on a Zen 4 with 32 MiB, a select of [1024, 1024] moved 1.15 times the bytes a second, and one of
/// scalars, whose result is most of what is moved, half.
fn stores(moved: usize, result: usize) -> Stores {
    let caches = caches();
    let fits = moved <= caches.last_level;
    let inputs_stay = moved > 3 * caches.second_level && result < moved / 7 * 3;
    if fits && !inputs_stay { Stores::Ordinary } else { Stores::Streaming }
}

/// Bytes of a row and of a column of a tile in which some operand is made dense: many cache lines each way, so that a
/// page is come back to seldom. Transposed operands of [4096, 4096] went 1.3 to 1.7 times as fast with 1 KiB as with
/// 256 bytes.
const PACKED_BYTES: usize = 1024;

/// The most rows and columns of such a tile, which then stays in the second-level cache.
const PACKED_MOST: usize = 256;

/// The plan of a select of concrete operands `cond`, `then`, `else`, which are the inputs at the given positions.
/// `sizes` are the bytes that each input spans.
pub(super) fn lower(
    operands: &[Operand<'_>],
    positions: &[usize],
    shapes: &SelectShapes,
    strides: Dims,
    mut sizes: Vec<usize>,
    level: Level,
) -> Plan {
    let dims = &shapes.result;
    let bytes = operands[THEN].data_type.size().unwrap_or(1);
    let width = Width::of(bytes).expect("select takes types of whole bytes");
    let widths = [1, bytes, bytes, bytes];

    let same_as_dst = |operand: &Operand<'_>| operand.dims == &dims[..] && operand.strides == &strides[..];
    let in_place_of = [THEN, ELSE].map(|branch| same_as_dst(&operands[branch]).then_some(positions[branch]));
    let mut in_place: Vec<(usize, usize)> = in_place_of.iter().flatten().map(|&input| (input, 0)).collect();
    in_place.dedup();

    let walked = |i: usize| {
        let operand = &operands[i];
        shape::walk_strides(operand.dims, operand.strides, dims, shapes.starts[i])
    };
    let walked_dst = shape::walk_strides(dims, &strides, dims, 0);
    let element_strides: [Dims; 4] = [walked(COND), walked(THEN), walked(ELSE), walked_dst];
    let bytes_moved = bytes_moved(dims, &element_strides, &widths);

    let input_count = sizes.len();
    sizes.push(shape::span(dims, &strides).unwrap_or(0) as usize * bytes);
    let result = shape::element_count(dims).unwrap_or(0) as usize * bytes;
    // A condition that does not vary along the innermost dim leaves one branch of each row unread.
    let innermost = (0..dims.len()).filter(|&axis| dims[axis] > 1).min_by_key(|&axis| strides[axis]);
    let reads_one_branch = innermost.is_some_and(|axis| element_strides[COND][axis] == 0);
    let moved = if reads_one_branch { (bytes_moved + result) / 2 } else { bytes_moved };
    let stores = stores(moved, result);

    let outputs = vec![(dims.clone(), strides)];
    let mut plan = Plan { outputs, sizes, in_place, nests: Vec::new(), scratch: 0, bytes_moved, stores };
    if !dims.contains(&0) {
        let loops = (0..dims.len()).map(|axis| Loop {
            extent: dims[axis] as usize,
            steps: (0..4).map(|i| element_strides[i][axis] as isize * widths[i] as isize).collect(),
            role: Role::Spatial,
            pinned: false,
        });
        let ports = [positions[COND], positions[THEN], positions[ELSE], input_count];
        let builder = Builder { level, width, widths, in_place_of, stores };
        let nest = builder.nest(normalise(loops, DST), ports, &mut plan.scratch);
        plan.nests.push(nest);
    }
    plan
}

/// Bytes of the distinct elements of all operands.
fn bytes_moved(dims: &[i64], strides: &[Dims; 4], widths: &[usize; 4]) -> usize {
    let distinct = |strides: &Dims| {
        let walked = dims.iter().zip(strides).filter(|&(&dim, &stride)| stride != 0 || dim == 0);
        walked.map(|(&dim, _)| dim as usize).product::<usize>()
    };
    strides.iter().zip(widths).map(|(strides, width)| distinct(strides) * width).sum()
}

struct Builder {
    level: Level,
    width: Width,
    widths: [usize; 4],
    /// The inputs of which `then` and `else` are the whole, where the result may be in place of them.
    in_place_of: [Option<usize>; 2],
    stores: Stores,
}

impl Builder {
    fn nest(&self, mut loops: SmallVec<[Loop; 4]>, ports: [usize; 4], scratch: &mut usize) -> Nest {
        let once = |steps: Steps| Loop { extent: 1, steps, role: Role::Spatial, pinned: false };
        let columns =
            loops.pop().unwrap_or_else(|| once(self.widths.map(|width| width as isize).as_slice().into()));
        let rows = loops.pop().unwrap_or_else(|| once(Steps::from_elem(0, 4)));
        let space = Extent { rows: rows.extent, columns: columns.extent };
        let inner: [Option<Inner>; 4] = std::array::from_fn(|i| match columns.steps[i] {
            0 => Some(Inner::Repeated),
            step if step == self.widths[i] as isize => Some(Inner::Dense),
            _ => None,
        });
        let tile = self.tile(space, inner.contains(&None));

        let blocks = |l: &Loop, size: usize| Loop {
            extent: l.extent.div_ceil(size),
            steps: l.steps.iter().map(|step| step * size as isize).collect(),
            ..l.clone()
        };
        let mut all: SmallVec<[Loop; 6]> = loops.into_iter().collect();
        all.extend([blocks(&rows, tile.rows), blocks(&columns, tile.columns)]);

        let walks: SmallVec<[Walk; 4]> =
            (0..4).map(|i| Walk { port: ports[i], pitch: rows.steps[i], step: columns.steps[i] }).collect();
        Nest { loops: all, space, tile, steps: self.steps(&walks, &inner, tile, scratch), walks }
    }

    fn tile(&self, space: Extent, packed: bool) -> Extent {
        let (most_rows, most_columns) = match packed {
            true => {
                let side = (PACKED_BYTES / self.width.bytes()).min(PACKED_MOST);
                (side, side)
            }
            false => {
                let elements = TILE_BYTES / self.width.bytes();
                (elements / space.columns.min(elements), elements)
            }
        };
        Extent { rows: space.rows.min(most_rows.max(1)), columns: space.columns.min(most_columns) }
    }

    /// Makes operands dense where they are not, selects, and spreads the result where it is not dense.
    fn steps(
        &self,
        walks: &[Walk],
        inner: &[Option<Inner>; 4],
        tile: Extent,
        scratch: &mut usize,
    ) -> Vec<Step> {
        let mut steps = Vec::new();
        let mut room = |width: Width| {
            let (offset, pitch) = (*scratch, tile.columns * width.bytes());
            *scratch += (tile.rows * pitch).next_multiple_of(64);
            Place::Scratch(offset, pitch)
        };
        let mut feed = |i: usize| {
            if inner[i].is_some() {
                return Feed::Port(i);
            }
            let width = if i == COND { Width::W1 } else { self.width };
            let work = Work::Gather { from: i, kernel: pack::gather(self.level, width) };
            let space = StepSpace { rows: walks[i].pitch != 0, columns: Inner::Dense };
            steps.push(Step { work, to: room(width), space });
            Feed::Step(steps.len() - 1)
        };
        let feeds = [feed(COND), feed(THEN), feed(ELSE)];
        let runs = |i: usize| inner[i].unwrap_or(Inner::Dense);
        // What is spread over a strided port goes through scratch, which is read again at once.
        let stores = if inner[DST].is_some() { self.stores } else { Stores::Ordinary };
        let branch = |i: usize, other: usize, in_place_of: Option<usize>| Branch {
            feed: feeds[i],
            copy: select::copy(self.level, self.width, runs(i), stores),
            copy_in_place: select::copy(self.level, self.width, runs(i), Stores::Ordinary),
            // In place of `then`, what the condition says is false is replaced; in place of `else`, what is true.
            take_in_other: select::merge(self.level, self.width, i == ELSE, runs(other)),
            in_place_of,
        };
        let is_dense_port = |i: usize| feeds[i] == Feed::Port(i) && runs(i) == Inner::Dense;
        let chooses_rows = runs(COND) == Inner::Repeated && is_dense_port(THEN) && is_dense_port(ELSE);
        let work = Work::Select(Select {
            cond: feeds[COND],
            cond_inner: runs(COND),
            then: branch(THEN, ELSE, self.in_place_of[0]),
            else_: branch(ELSE, THEN, self.in_place_of[1]),
            judge: feeds[THEN..]
                .iter()
                .any(|feed| matches!(feed, Feed::Step(_)))
                .then(|| select::judge(self.level)),
            blend: select::blend(self.level, self.width, runs(THEN), runs(ELSE), stores),
            blend_rows: chooses_rows.then(|| select::blend_rows(self.level, self.width, stores)),
        });
        let space = StepSpace { rows: true, columns: Inner::Dense };
        if inner[DST].is_some() {
            steps.push(Step { work, to: Place::Port(DST), space });
        } else {
            steps.push(Step { work, to: room(self.width), space });
            let from = steps.len() - 1;
            let work = Work::Scatter { from, kernel: pack::scatter(self.level, self.width) };
            steps.push(Step { work, to: Place::Port(DST), space });
        }
        steps
    }
}
