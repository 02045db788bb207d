//! The memory policy: from the traffic of a plan to stores, prefetch and tiles.
//!
//! Every threshold of the compile stage is a row of one table. [`decide`] reads the table once for each plan;
//! all later stages read the [`MemoryPolicy`]; none compares a size with that of a cache.

use crate::kernels::caches::caches;
use crate::kernels::{Extent, LINE, StorePolicy, Width};
use crate::plan::{Cost, PART, Threading};

/// The whole that a threshold is a share of.
#[derive(Debug, Clone, Copy)]
enum Whole {
    /// The bytes that a plan moves.
    Traffic,
    LastLevel,
    /// The second-level cache of one core.
    SecondLevel,
    /// The first-level data cache of one core.
    FirstLevel,
}

#[derive(Debug, Clone, Copy)]
enum Rule {
    Fixed(usize),
    /// Numerator, denominator, and the whole.
    Share(usize, usize, Whole),
}

/// A row of the table.
#[derive(Debug, Clone, Copy)]
struct Threshold {
    #[cfg(test)]
    name: &'static str,
    rule: Rule,
    #[cfg(test)]
    unit: &'static str,
    /// The row of `benches/record/decisions.md` that shows the figures behind the threshold.
    #[cfg(test)]
    decision: &'static str,
    #[cfg(test)]
    reason: &'static str,
}

impl Threshold {
    /// The value on this machine, for a plan that moves a number of bytes.
    fn of(&self, traffic: usize) -> usize {
        let (numerator, denominator, whole) = match self.rule {
            Rule::Fixed(value) => return value,
            Rule::Share(numerator, denominator, whole) => (numerator, denominator, whole),
        };
        let whole = match whole {
            Whole::Traffic => traffic,
            Whole::LastLevel => caches().last_level,
            Whole::SecondLevel => caches().second_level,
            Whole::FirstLevel => caches().first_level,
        };
        (whole / denominator).saturating_mul(numerator)
    }

    /// The value on this machine, if it does not depend on the traffic.
    fn get(&self) -> usize {
        self.of(0)
    }
}

/// Makes a constant of each row, and the table of all rows.
macro_rules! thresholds {
    ($($name:ident = $rule:expr, $unit:literal, decision: $decision:literal, $reason:literal;)*) => {
        $(
            #[doc = $reason]
            const $name: Threshold = Threshold {
                #[cfg(test)]
                name: stringify!($name),
                rule: $rule,
                #[cfg(test)]
                unit: $unit,
                #[cfg(test)]
                decision: $decision,
                #[cfg(test)]
                reason: $reason,
            };
        )*

        #[cfg(test)]
        const THRESHOLDS: &[Threshold] = &[$($name),*];
    };
}

thresholds! {
    PARALLEL_BYTES = Rule::Fixed(8 << 20), "bytes, or work of the same time", decision: "parallel-bytes",
        "Waking workers costs more than it saves below this.";
    PRODUCT_BLOCK = Rule::Share(1, 2, Whole::SecondLevel), "bytes", decision: "product-block",
        "A block of both operands of a product stays in the second level beside the result.";
    AWAKE_BYTES = Rule::Fixed(256 << 10), "bytes, or work of the same time", decision: "awake-workers",
        "A second thread gains from this on if it is awake.";

    OWN_ALONE = Rule::Share(1, 2, Whole::LastLevel), "bytes", decision: "non-temporal-alone",
        "One thread counts on half of the last level: results of less traffic are stored temporally.";
    OUTPUT_DOMINATES = Rule::Share(1, 2, Whole::Traffic), "bytes", decision: "non-temporal-mostly-result",
        "A larger output is most of the traffic.";
    OWN_ALONE_OF_OUTPUT = Rule::Share(3, 4, Whole::LastLevel), "bytes",
        decision: "non-temporal-mostly-result",
        "One thread counts on three quarters of the last level if the output dominates.";
    OWN_OF_MORE = Rule::Share(7, 8, Whole::LastLevel), "bytes", decision: "non-temporal-two-threads",
        "More threads count on seven eighths of the last level.";
    SMALL_OUTPUT = Rule::Share(3, 7, Whole::Traffic), "bytes", decision: "inputs-stay-cached",
        "A smaller output is stored non-temporally to leave the caches to the inputs.";
    INPUTS_STAY_ALONE = Rule::Share(3, 1, Whole::SecondLevel), "bytes", decision: "inputs-stay-cached",
        "From this traffic on, one thread leaves the caches to the inputs.";
    INPUTS_STAY_OF_MORE = Rule::Share(3, 4, Whole::LastLevel), "bytes", decision: "inputs-stay-cached",
        "From this traffic on, more threads leave the caches to the inputs.";

    CACHED_BYTES = Rule::Share(3, 4, Whole::LastLevel), "bytes", decision: "packed-side",
        "Up to this traffic, packed operands are taken to be in the caches.";
    UNFUSED_PAIR_BYTES = Rule::Share(5, 4, Whole::SecondLevel), "bytes", decision: "pairs-unfused",
        "A fused kernel of two steps must save more than a pass through the caches.";
    PREFETCH_FUSED_BYTES = Rule::Share(1, 2, Whole::LastLevel), "bytes",
        decision: "prefetch-near-last-level",
        "Fused kernels prefetch beyond half of the last level, because others use the cache as well.";

    PREFETCH_BYTES = Rule::Fixed(8192), "bytes", decision: "prefetch-distance",
        "Prefetch distance of operands: less comes too late, more gains nothing.";
    KEPT_BYTES = Rule::Share(1, 2, Whole::SecondLevel), "bytes", decision: "prefetch-selects",
        "The second level keeps an operand of this reuse distance, so prefetching it is a loss.";
    PREFETCH_COLUMNS_OF_BYTES = Rule::Fixed(32), "columns", decision: "prefetch-columns",
        "Prefetch distance of a transposed operand of bytes.";
    PREFETCH_COLUMNS = Rule::Fixed(16), "columns", decision: "prefetch-columns",
        "Prefetch distance of a transposed operand of wider elements.";
    LOOKAHEAD_BYTES = Rule::Share(1, 4, Whole::LastLevel), "bytes", decision: "lookahead-prefetch",
        "Skipped inputs come from beyond the caches, much of which other processes may hold.";
    LOOKAHEAD_TILES = Rule::Fixed(16), "tiles", decision: "lookahead-tiles",
        "Tiles to look through for the next one that computes a branch.";

    TILE_BYTES = Rule::Fixed(64 << 10), "bytes", decision: "tile-bytes",
        "A tile outweighs the cost of going to it, and leaves many tiles for threads to share.";
    TILE_SHARED_BYTES = Rule::Share(1, 3, Whole::FirstLevel), "bytes", decision: "third-of-first-level",
        "Room of an operand that two steps read; results and passing operands get the rest.";
    TILE_SCRATCH_BYTES = Rule::Share(1, 3, Whole::FirstLevel), "bytes", decision: "third-of-first-level",
        "Room of values between steps.";
    MIN_TILE_ELEMENTS = Rule::Fixed(1024), "elements", decision: "min-tile-elements",
        "The work of a step outweighs the cost of starting it.";
    MAX_SKIP_ELEMENTS = Rule::Fixed(1024), "elements", decision: "skip-tile-elements",
        "Most elements of a tile in which a mask test may skip steps: many small tiles are uniform.";
    MIN_SKIP_COST = Rule::Fixed(8), "cost of an element", decision: "skip-branch-cost",
        "A cheaper branch is not worth smaller tiles, because each tile has a fixed cost.";
    TRANSPOSED_ROWS = Rule::Fixed(1024), "rows", decision: "transposed-tile",
        "Rows of a transposed result in a tile: pages of the operand are read to their ends.";
    TRANSPOSED_BYTES = Rule::Fixed(512), "bytes of a row", decision: "transposed-tile",
        "A row of such a tile is some whole cache lines.";
    PACKED_SIDE_OF_NARROW = Rule::Fixed(512), "rows and columns", decision: "packed-side",
        "Beyond the caches, elements of up to two bytes: many lines each way, so pages are seldom revisited.";
    PACKED_SIDE = Rule::Fixed(256), "rows and columns", decision: "packed-side",
        "The same for wider elements.";
    PACKED_ROOM = Rule::Share(1, 2, Whole::SecondLevel), "bytes", decision: "packed-side",
        "Scratch of a tile that packs from beyond the caches.";
    PACKED_CACHED_COLUMNS = Rule::Fixed(256), "columns", decision: "packed-columns",
        "Within the caches a tile has one line of each column.";
    PACKED_CACHED_ROOM = Rule::Share(1, 2, Whole::FirstLevel), "bytes", decision: "packed-columns",
        "Packed elements are still in the first level when they are read.";
    MIN_PACKED_SIDE = Rule::Fixed(32), "rows or columns", decision: "packed-side",
        "A tile that packs is not halved below this, however much scratch an element needs.";

    PRODUCT_TILE_ROWS = Rule::Fixed(144), "rows", decision: "epilogue-tiles",
        "The rows of both operands of a tile stay in the second level with a block of the depth.";
    PRODUCT_TILE_COLUMNS = Rule::Fixed(256), "columns", decision: "epilogue-tiles",
        "A few panels share the rows of the left operand.";
    AMX_TILE_ROWS = Rule::Fixed(256), "rows", decision: "amx-blocks",
        "A block of the right operand comes from beyond the second level once for so many rows.";
    AMX_TILE_COLUMNS = Rule::Fixed(128), "columns", decision: "amx-blocks",
        "The sums of a tile, and what is computed of them, stay in the second level beside the left rows.";
    AMX_DEPTH = Rule::Fixed(512), "bytes", decision: "amx-blocks",
        "32 rows of the left operand stay in the first level while the columns of a tile pass by.";
    MIN_PRODUCT_TILES = Rule::Fixed(16), "tiles", decision: "product-tiles",
        "With fewer tiles, threads would wait for the last one, so tiles are halved.";
    MIN_PRODUCT_TILE_FLOPS = Rule::Fixed(8 << 20), "FLOPs", decision: "product-tiles",
        "A smaller tile is not halved, because going to a tile and packing for it cost a fixed time.";

    ROW_TASKS = Rule::Fixed(32), "tasks", decision: "row-parts",
        "Few long rows are split until there are tasks for the threads; parts depend on shapes alone.";
    LONG_ROW = Rule::Fixed(32 << 10), "elements", decision: "row-parts",
        "Shorter rows are not split, because merging parts costs two more phases.";
    MAX_SPLIT_ROWS = Rule::Fixed(8), "rows", decision: "row-parts",
        "More rows are tasks enough.";
    LONGEST_ROW = Rule::Fixed(512 << 10), "elements", decision: "row-parts",
        "The start of a longer row leaves the second level before it is read again, so each row is split.";
    MIN_ROW_PART = Rule::Fixed(4 << 10), "elements", decision: "row-parts",
        "The work of a part outweighs the cost of a task.";
    ROW_TILE_ELEMENTS = Rule::Fixed(8 << 10), "elements", decision: "row-tiles",
        "The rows of a tile stay in the first level beside their results.";
    PACKED_ROWS = Rule::Fixed(16), "rows", decision: "row-tiles",
        "Packed rows that share cache lines are packed together, so each line is read once.";
    PACKED_ROW_BYTES = Rule::Fixed(1 << 20), "bytes", decision: "row-tiles",
        "Packed rows stay in the second level, unless one row is longer.";
    KEPT_EXPONENTIALS = Rule::Fixed(64 << 10), "elements", decision: "row-tiles",
        "Keeps the scratch of a thread small, so that the row stays in the second level beside it.";
    KEPT_LOGITS = Rule::Fixed(1 << 20), "bytes", decision: "kept-logits",
        "Reading the logits of a block of queries again costs less than computing them again.";
    KEPT_VALUES = Rule::Fixed(4 << 20), "bytes", decision: "kept-values",
        "Blocks of queries share the packed values of all keys, which are read instead of the values.";
}

/// The bytes that a plan moves, and the threads that move them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Traffic {
    /// Bytes of the distinct elements that are read and written.
    pub(super) bytes: usize,
    /// Bytes that are written.
    pub(super) output: usize,
    /// True if each row of a result leaves one branch unread.
    pub(super) reads_one_branch: bool,
    /// True if the engine has one thread.
    pub(super) single_thread: bool,
}

/// Where operands are when an execution begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Residency {
    Caches,
    Memory,
}

/// How a plan uses memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct MemoryPolicy {
    /// Bytes of the distinct elements that are read and written.
    pub(super) bytes: usize,
    /// Store policy of results that nothing in the plan reads.
    pub(super) stores: StorePolicy,
    /// Where packed operands are.
    pub(super) residency: Residency,
    /// Prefetch distance of operands in bytes; 0 if the caches hold enough of the operands.
    pub(super) prefetch_distance: usize,
    /// True if fused kernels prefetch if memory binds.
    pub(super) prefetches_fused: bool,
    /// True if two steps become a fused kernel.
    pub(super) fuses_pairs: bool,
}

/// The threads for an execution of some cost.
pub(super) fn threading(cost: Cost) -> Threading {
    // A core that is fully used computes about as many FLOPs of a product as it moves bytes within caches.
    match cost.bytes.max(cost.estimated_work).max(cost.flops) {
        work if work >= PARALLEL_BYTES.get() => Threading::AllWorkers,
        work if work >= AWAKE_BYTES.get() => Threading::AwakeWorkers,
        _ => Threading::Caller,
    }
}

/// Bytes of a part of the places of a lookup.
pub(super) fn lookup_part() -> usize {
    TILE_BYTES.get()
}

/// Elements of the depth of a product in a block, if a block of `rows` rows of both operands is to stay in
/// half of the second-level cache.
pub(super) fn product_depth(rows: usize) -> usize {
    (PRODUCT_BLOCK.get() / (4 * rows.max(1))).max(64) & !1
}

/// The largest tile of a product that packs.
pub(super) fn product_tile() -> Extent {
    Extent { rows: PRODUCT_TILE_ROWS.get(), columns: PRODUCT_TILE_COLUMNS.get() }
}

/// The same in the tile registers of AMX.
pub(super) fn amx_tile() -> Extent {
    Extent { rows: AMX_TILE_ROWS.get(), columns: AMX_TILE_COLUMNS.get() }
}

/// Bytes of the depth of such a product in a block.
pub(super) fn amx_depth() -> usize {
    AMX_DEPTH.get()
}

/// True if tiles of a product stay as they are: one thread computes all, there are enough tiles, or each is
/// small.
pub(super) fn keeps_product_tiles(tiles: usize, flops: usize, single_thread: bool) -> bool {
    single_thread || tiles >= MIN_PRODUCT_TILES.get() || flops <= MIN_PRODUCT_TILE_FLOPS.get()
}

/// True if rows whose results depend on the whole row are split into parts.
pub(super) fn splits_rows(length: usize, rows: usize) -> bool {
    length >= LONGEST_ROW.get() || length >= LONG_ROW.get() && rows <= MAX_SPLIT_ROWS.get()
}

/// Elements of a part of a row of `length` elements, if there are `tasks` tasks for each part of a row. The
/// parts depend on shapes alone, so that sums have the same bits on every machine.
pub(super) fn row_part(length: usize, tasks: usize) -> usize {
    let (parts, least) = (ROW_TASKS.get().div_ceil(tasks.max(1)), MIN_ROW_PART.get());
    length.div_ceil(parts).next_multiple_of(least).clamp(least, PART)
}

/// Rows of a tile of rows of `length` elements.
pub(super) fn rows_of_tile(length: usize) -> usize {
    (ROW_TILE_ELEMENTS.get() / length.max(1)).max(1)
}

/// Rows of a tile of rows that are packed as f32.
pub(super) fn packed_rows_of_tile(length: usize) -> usize {
    let fitting = PACKED_ROW_BYTES.get() / 4 / length.max(1);
    rows_of_tile(length).max(PACKED_ROWS.get().min(fitting))
}

/// True if the exponentials of a row are kept instead of computed twice.
pub(super) fn keeps_exponentials(length: usize) -> bool {
    length <= KEPT_EXPONENTIALS.get()
}

/// True if the logits of a block of queries are kept instead of computed twice. This depends on shapes alone,
/// so that results have the same bits on every machine.
pub(super) fn keeps_logits(bytes: usize) -> bool {
    bytes <= KEPT_LOGITS.get()
}

/// True if a thread keeps the packed values of all keys for its next block of queries.
pub(super) fn keeps_packed_values(bytes: usize) -> bool {
    bytes <= KEPT_VALUES.get()
}

/// Bytes up to the end of a cache line; sizes that no memory has are `usize::MAX`.
pub(super) fn whole_lines(bytes: usize) -> usize {
    bytes.checked_next_multiple_of(LINE).unwrap_or(usize::MAX)
}

/// The policy for some traffic.
pub(super) fn decide(traffic: Traffic) -> MemoryPolicy {
    let Traffic { bytes, output, reads_one_branch, single_thread } = traffic;
    let moved = if reads_one_branch { bytes.midpoint(output) } else { bytes };
    // A plan that is not worth waking workers for runs on one thread.
    let single_thread = single_thread || bytes < PARALLEL_BYTES.get();
    let (own, inputs_stay) = match single_thread {
        true if output > OUTPUT_DOMINATES.of(moved) => (OWN_ALONE_OF_OUTPUT, INPUTS_STAY_ALONE),
        true => (OWN_ALONE, INPUTS_STAY_ALONE),
        false => (OWN_OF_MORE, INPUTS_STAY_OF_MORE),
    };
    let leaves_caches = moved > inputs_stay.get() && output < SMALL_OUTPUT.of(moved);
    let (stores, prefetch_distance) = match moved > own.get() || leaves_caches {
        true => (StorePolicy::NonTemporal, PREFETCH_BYTES.get()),
        false => (StorePolicy::Temporal, 0),
    };
    MemoryPolicy {
        bytes,
        stores,
        // Not derived from the store policy: outputs may be stored non-temporally precisely to keep inputs
        // cached.
        residency: if bytes <= CACHED_BYTES.get() { Residency::Caches } else { Residency::Memory },
        prefetch_distance,
        prefetches_fused: bytes > PREFETCH_FUSED_BYTES.get(),
        fuses_pairs: bytes > UNFUSED_PAIR_BYTES.get(),
    }
}

impl MemoryPolicy {
    /// Number of tiles to look through for the next one that computes a skippable branch; `None` if the
    /// inputs of such a branch need no prefetch: if the caches hold them, or arithmetic leaves memory no idle
    /// time (decision: lookahead-left-out).
    pub(super) fn lookahead(&self, cost: usize) -> Option<usize> {
        (self.bytes > LOOKAHEAD_BYTES.get() && cost > self.bytes).then(|| LOOKAHEAD_TILES.get())
    }

    /// True if the second level keeps an operand until its next use, that many bytes later.
    pub(super) fn keeps(&self, reuse_distance: usize) -> bool {
        reuse_distance <= KEPT_BYTES.get()
    }

    /// Prefetch distance of a transposed operand, in columns.
    pub(super) fn prefetch_columns(&self, width: Width) -> isize {
        match (self.residency, width) {
            (Residency::Caches, _) => 0,
            (Residency::Memory, Width::W1) => PREFETCH_COLUMNS_OF_BYTES.get() as isize,
            (Residency::Memory, _) => PREFETCH_COLUMNS.get() as isize,
        }
    }

    /// The tile of a nest that packs: for the bytes of its narrowest packed element and of its widest
    /// element, and for the bytes of scratch that each element needs.
    pub(super) fn packed_tile(&self, narrowest: usize, widest: usize, scratch: usize) -> Extent {
        let side = if widest <= 2 { PACKED_SIDE_OF_NARROW } else { PACKED_SIDE }.get();
        let (mut rows, mut columns, room) = match self.residency {
            Residency::Caches => (LINE / narrowest, PACKED_CACHED_COLUMNS.get(), PACKED_CACHED_ROOM.get()),
            Residency::Memory => (side, side, PACKED_ROOM.get()),
        };
        while scratch * rows * columns > room && rows.max(columns) > MIN_PACKED_SIDE.get() {
            if rows > columns {
                rows /= 2;
            } else {
                columns /= 2;
            }
        }
        Extent { rows, columns }
    }

    /// The tile of a nest that transposes an operand and does nothing else, for a number of rows in all.
    pub(super) fn transposed_tile(&self, width: Width, rows: usize) -> Extent {
        let rows = rows.clamp(1, TRANSPOSED_ROWS.get());
        // Few rows are longer, so that a tile outweighs the cost of going to it.
        let bytes = TRANSPOSED_BYTES.get().max(TILE_BYTES.get() / rows / LINE * LINE);
        Extent { rows, columns: bytes / width.bytes() }
    }

    /// Most elements of a tile of a nest that packs nothing: for the bytes of its widest element and of the
    /// scratch of an element; `is_read_again` if two steps read one operand, `may_skip` the cost of an
    /// element of each branch that a mask test may skip.
    pub(super) fn tile_elements(
        &self,
        widest: usize,
        scratch: usize,
        is_read_again: bool,
        mut may_skip: impl Iterator<Item = usize>,
    ) -> usize {
        let most = if is_read_again { TILE_SHARED_BYTES } else { TILE_BYTES }.get() / widest;
        let elements = match scratch {
            0 => most,
            _ => (TILE_SCRATCH_BYTES.get() / scratch).min(most).max(MIN_TILE_ELEMENTS.get()),
        };
        match may_skip.any(|cost| cost >= MIN_SKIP_COST.get()) {
            true => elements.min(MAX_SKIP_ELEMENTS.get()),
            false => elements,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_threshold_has_a_name_a_reason_and_a_record() {
        let benches = concat!(env!("CARGO_MANIFEST_DIR"), "/benches");
        // Packages have no records: those are of the whole clone.
        let record = std::path::Path::new(benches).exists().then(|| {
            let record = std::fs::read_to_string(format!("{benches}/record/decisions.md"));
            record.expect("the record of decisions is text")
        });
        let (mut names, mut faults) = (BTreeSet::new(), Vec::new());
        for threshold in THRESHOLDS {
            let Threshold { name, rule, unit, decision, reason } = threshold;
            println!("{name:<26} {:>10} {unit:<31} {rule:?}\n    {reason} ({decision})", threshold.get());
            if !names.insert(name) || unit.is_empty() || !reason.ends_with('.') {
                faults.push(format!("{name}: its name, unit or reason is none"));
            }
            if record.as_ref().is_some_and(|record| !record.contains(&format!("| `{decision}` |"))) {
                faults.push(format!("{name}: the record has no `{decision}`"));
            }
        }
        assert!(faults.is_empty(), "{faults:#?}");
    }

    #[test]
    fn results_are_stored_by_their_share_of_the_last_level() {
        let last_level = caches().last_level;
        let big = last_level.max(PARALLEL_BYTES.get());
        let rows = [
            ("nothing", 0, 0, false, true, StorePolicy::Temporal),
            (
                "most of it result, alone",
                last_level / 3 * 2,
                last_level / 2,
                false,
                true,
                StorePolicy::Temporal,
            ),
            ("two thirds, alone", last_level / 3 * 2, last_level / 3, false, true, StorePolicy::NonTemporal),
            ("beyond, alone", big + 1, big / 2, false, true, StorePolicy::NonTemporal),
            ("beyond, more threads", big + 1, big / 2, false, false, StorePolicy::NonTemporal),
            ("one branch unread", last_level / 8 * 7, last_level / 2, true, true, StorePolicy::Temporal),
            ("as much, all read", last_level / 8 * 7, last_level / 2, false, true, StorePolicy::NonTemporal),
        ];
        let mut faults = Vec::new();
        for (what, bytes, output, reads_one_branch, single_thread, expected) in rows {
            let policy = decide(Traffic { bytes, output, reads_one_branch, single_thread });
            let prefetches = policy.prefetch_distance > 0;
            if policy.stores != expected || prefetches != (expected == StorePolicy::NonTemporal) {
                faults.push((what, policy));
            }
        }
        assert!(faults.is_empty(), "{faults:#?}");
    }
}
