//! The limit with which Sterna is compared: plain loops for the shape of a select, written by hand with the
//! widest instructions of the machine, once with each kind of store.
//!
//! They check nothing. If the condition varies along a row, they read and blend both sides and skip nothing;
//! if it does not, they copy or fill each row, unless they are told to read both sides.
#![allow(dead_code, unreachable_pub, reason = "each bench uses a part of this")]

use std::fmt;
use std::time::Instant;

use rayon::ThreadPool;

pub const COND: usize = 0;
pub const THEN: usize = 1;
pub const ELSE: usize = 2;
pub const DST: usize = 3;

/// How results are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Store {
    Ordinary,
    /// Non-temporal.
    NonTemporal,
    /// In place of one branch, only elements of the other branch.
    Changes(usize),
}

impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ordinary => "ordinary",
            Self::NonTemporal => "non-temporal",
            Self::Changes(_) => "changes",
        })
    }
}

/// Trip count of a loop, and the bytes by which it moves each operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Loop {
    extent: usize,
    steps: [isize; 4],
}

/// Four nested loops; the innermost uses vectors.
#[derive(Debug, Clone, Copy)]
struct Nest {
    loops: [Loop; 4],
    width: usize,
    reads_both: bool,
}

type Run = unsafe fn(&Nest, [*mut u8; 4]);

/// The plain loop of a select.
#[derive(Debug, Clone, Copy)]
pub struct BaselineLoop {
    nest: Nest,
    in_place_of: Option<usize>,
}

/// Addresses that another thread may use.
#[derive(Clone, Copy)]
struct Addresses([*mut u8; 4]);

// SAFETY: the halves of a nest write to disjoint elements of memory that outlives them.
unsafe impl Send for Addresses {}

impl Addresses {
    fn get(self) -> [*mut u8; 4] {
        self.0
    }
}

impl BaselineLoop {
    /// For elements of so many bytes, the dims of the result, those of the operands, and strides of all four
    /// in elements, row-major if there are none.
    pub fn new(
        width: usize,
        result: &[i64],
        operands: [&[i64]; 3],
        strides: [Option<&[i64]>; 4],
        in_place_of: Option<usize>,
    ) -> Self {
        let dims = |i: usize| if i == DST { result } else { operands[i] };
        let steps = |i: usize, axis: usize| -> isize {
            let own = dims(i);
            let Some(axis) = (axis + own.len()).checked_sub(result.len()) else { return 0 };
            if own[axis] == 1 {
                return 0;
            }
            let stride = strides[i].map_or_else(|| own[axis + 1..].iter().product(), |of| of[axis]);
            stride as isize * if i == COND { 1 } else { width as isize }
        };
        let mut loops: Vec<Loop> = Vec::new();
        for (axis, &dim) in result.iter().enumerate().filter(|&(_, &dim)| dim != 1) {
            let inner = Loop { extent: dim as usize, steps: std::array::from_fn(|i| steps(i, axis)) };
            match loops.last_mut() {
                Some(outer) if outer.steps == inner.steps.map(|step| step * dim as isize) => {
                    *outer = Loop { extent: outer.extent * inner.extent, ..inner };
                }
                _ => loops.push(inner),
            }
        }
        let once = Loop { extent: 1, steps: [0; 4] };
        let inner = loops
            .pop()
            .unwrap_or(Loop { extent: 1, steps: [1, width as isize, width as isize, width as isize] });
        let mut nest = Nest { loops: [once, once, once, inner], width, reads_both: false };
        assert!(loops.len() <= 3, "no select needs more than three outer loops");
        let first = 3 - loops.len();
        nest.loops[first..3].copy_from_slice(&loops);
        Self { nest, in_place_of }
    }

    /// The same, but reading both sides even if the condition is the same along a row.
    pub fn reading_both(mut self) -> Self {
        self.nest.reads_both = true;
        self
    }

    /// The kinds of stores that are worth trying.
    pub fn stores(&self) -> Vec<Store> {
        match self.in_place_of {
            Some(branch) => vec![Store::Ordinary, Store::Changes(branch)],
            None => vec![Store::Ordinary, Store::NonTemporal],
        }
    }

    /// The loop with one kind of store, ready to run.
    pub fn with_stores(&self, store: Store) -> ReadyLoop {
        ReadyLoop { nest: self.nest, store, body: self.nest.body(store) }
    }

    /// The loop with the kind of store that is fastest on these operands.
    ///
    /// # Safety
    ///
    /// As [`ReadyLoop::run`].
    pub unsafe fn fastest(&self, addresses: [*mut u8; 4]) -> ReadyLoop {
        // SAFETY: as the caller promises.
        self.fastest_by(|ready| unsafe { ready.run(addresses) })
    }

    /// The loop with the kind of store that a function runs fastest.
    pub fn fastest_by(&self, run: impl Fn(&ReadyLoop)) -> ReadyLoop {
        let time = |ready: &ReadyLoop| {
            let start = Instant::now();
            let mut runs = 0;
            while runs == 0 || start.elapsed().as_secs_f64() < 0.005 {
                run(ready);
                runs += 1;
            }
            start.elapsed().as_secs_f64() / f64::from(runs)
        };
        let mut timed: Vec<(f64, ReadyLoop)> =
            self.stores().into_iter().map(|store| (f64::INFINITY, self.with_stores(store))).collect();
        // By turns, so that what else the machine does slows all of them.
        for _ in 0..5 {
            timed.iter_mut().for_each(|(least, ready)| *least = least.min(time(ready)));
        }
        timed.into_iter().min_by(|a, b| a.0.total_cmp(&b.0)).expect("there are stores").1
    }
}

/// A loop whose body is chosen.
#[derive(Debug, Clone, Copy)]
pub struct ReadyLoop {
    nest: Nest,
    pub store: Store,
    body: Run,
}

impl ReadyLoop {
    /// Runs the loop.
    ///
    /// # Safety
    ///
    /// The addresses are those of the select's operands and result.
    pub unsafe fn run(&self, addresses: [*mut u8; 4]) {
        // SAFETY: as the caller promises.
        unsafe { (self.body)(&self.nest, addresses) };
    }

    /// Runs equal parts, one on this thread and the others on those of a pool.
    ///
    /// # Safety
    ///
    /// As [`run`](Self::run).
    pub unsafe fn run_on(&self, addresses: [*mut u8; 4], pool: &ThreadPool, threads: usize) {
        // SAFETY: as the caller promises.
        let part = |index| unsafe { self.part(addresses, index, threads) };
        pool.in_place_scope(|scope| {
            for there in (1..threads).map(part) {
                scope.spawn(move |_| there());
            }
            part(0)();
        });
    }

    /// The halves as closures, for two threads.
    ///
    /// # Safety
    ///
    /// As [`run`](Self::run), for as long as the halves are used.
    pub unsafe fn halves(&self, addresses: [*mut u8; 4]) -> [impl Fn() + Send + use<>; 2] {
        // SAFETY: as the caller promises.
        [0, 1].map(|index| unsafe { self.part(addresses, index, 2) })
    }

    /// # Safety
    ///
    /// As [`run`](Self::run), for as long as the part is used.
    unsafe fn part(&self, addresses: [*mut u8; 4], index: usize, count: usize) -> impl Fn() + Send + use<> {
        let (nest, at) = self.nest.part(addresses, index, count);
        let (body, addresses) = (self.body, Addresses(at));
        // SAFETY: as the caller promises; each part covers elements of its own.
        move || unsafe { body(&nest, addresses.get()) }
    }
}

impl Nest {
    /// One of so many parts, and the addresses at which it starts.
    fn part(&self, addresses: [*mut u8; 4], index: usize, count: usize) -> (Self, [*mut u8; 4]) {
        let axis = self.loops.iter().position(|l| l.extent > 1).unwrap_or(3);
        let Loop { extent, steps } = self.loops[axis];
        let unit = if extent >= 64 * count { 64 } else { 1 };
        let start = |part: usize| if part == count { extent } else { extent * part / (unit * count) * unit };
        let mut nest = *self;
        nest.loops[axis].extent = start(index + 1) - start(index);
        (nest, std::array::from_fn(|i| addresses[i].wrapping_offset(steps[i] * start(index) as isize)))
    }

    /// True if `then` is dense along rows of the result's columns.
    fn is_transposed(&self) -> bool {
        ![0, self.width as isize].contains(&self.loops[3].steps[THEN])
    }

    fn body(&self, store: Store) -> Run {
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512vl")
            {
                return self.pick_avx512(store);
            }
            if is_x86_feature_detected!("avx2") {
                return self.pick_avx2(store);
            }
        }
        self.pick_portable(store)
    }
}

const ORDINARY: u8 = 0;
const NON_TEMPORAL: u8 = 1;
const CHANGES_THEN: u8 = 2;
const CHANGES_ELSE: u8 = 3;

/// Defines a method that picks a body, and the bodies: three loops around one row, for each width, each
/// combination of strides along a row, and each kind of store.
macro_rules! nest {
    ($isa:ident, $pick:ident) => {
        impl Nest {
            fn $pick(&self, store: Store) -> Run {
                let store = match store {
                    Store::Ordinary => ORDINARY,
                    Store::NonTemporal => NON_TEMPORAL,
                    Store::Changes(THEN) => CHANGES_THEN,
                    Store::Changes(_) => CHANGES_ELSE,
                };
                let (dense, both) = (|i: usize| self.loops[3].steps[i] != 0, self.reads_both);
                macro_rules! width {
                    ($W:literal) => {
                        match store {
                            ORDINARY => shape!($W, ORDINARY),
                            NON_TEMPORAL => shape!($W, NON_TEMPORAL),
                            CHANGES_THEN => shape!($W, CHANGES_THEN),
                            _ => shape!($W, CHANGES_ELSE),
                        }
                    };
                }
                macro_rules! shape {
                    ($W:literal, $STORE:expr) => {
                        match (dense(COND), dense(THEN), dense(ELSE)) {
                            _ if self.is_transposed() => $isa::transposed::<$W, $STORE>,
                            (false, true, true) if both => $isa::elements::<$W, false, true, true, $STORE>,
                            (false, true, false) if both => $isa::elements::<$W, false, true, false, $STORE>,
                            (false, false, true) if both => $isa::elements::<$W, false, false, true, $STORE>,
                            (false, false, false) if both => {
                                $isa::elements::<$W, false, false, false, $STORE>
                            }
                            (false, true, true) => $isa::rows::<$W, true, true, $STORE>,
                            (false, true, false) => $isa::rows::<$W, true, false, $STORE>,
                            (false, false, true) => $isa::rows::<$W, false, true, $STORE>,
                            (false, false, false) => $isa::rows::<$W, false, false, $STORE>,
                            (true, true, true) => $isa::elements::<$W, true, true, true, $STORE>,
                            (true, true, false) => $isa::elements::<$W, true, true, false, $STORE>,
                            (true, false, true) => $isa::elements::<$W, true, false, true, $STORE>,
                            (true, false, false) => $isa::elements::<$W, true, false, false, $STORE>,
                        }
                    };
                }
                match self.width {
                    1 => width!(1),
                    2 => width!(2),
                    4 => width!(4),
                    _ => width!(8),
                }
            }
        }
    };
    (@loops #[$($features:tt)*]) => {
        /// The condition varies along a row if `COND_`; both sides are read.
        $($features)*
        pub(super) unsafe fn elements<
            const W: usize,
            const COND_: bool,
            const THEN_: bool,
            const ELSE_: bool,
            const STORE: u8,
        >(
            nest: &Nest,
            addresses: [*mut u8; 4],
        ) {
            nest.each_row(addresses, |[cond, then, else_, dst]| {
                // SAFETY: as the caller promises.
                unsafe { row::<W, COND_, THEN_, ELSE_, STORE>(cond, then, else_, dst, nest.loops[3].extent) };
            });
            fence::<STORE>();
        }

        /// The condition is the same along a row.
        $($features)*
        pub(super) unsafe fn rows<const W: usize, const THEN_: bool, const ELSE_: bool, const STORE: u8>(
            nest: &Nest,
            addresses: [*mut u8; 4],
        ) {
            nest.each_row(addresses, |[cond, then, else_, dst]| {
                let extent = nest.loops[3].extent;
                // SAFETY: as the caller promises.
                unsafe {
                    match *cond != 0 {
                        true if STORE == CHANGES_THEN => {}
                        false if STORE == CHANGES_ELSE => {}
                        true => copy::<W, THEN_, STORE>(then, dst, extent),
                        false => copy::<W, ELSE_, STORE>(else_, dst, extent),
                    }
                }
            });
            fence::<STORE>();
        }
    };
}

impl Nest {
    #[inline(always)]
    fn each_row(&self, addresses: [*mut u8; 4], mut row: impl FnMut([*mut u8; 4])) {
        let [a, b, c, _] = self.loops;
        for i in 0..a.extent as isize {
            for j in 0..b.extent as isize {
                for k in 0..c.extent as isize {
                    let step = |o: usize| i * a.steps[o] + j * b.steps[o] + k * c.steps[o];
                    row(std::array::from_fn(|o| addresses[o].wrapping_offset(step(o))));
                }
            }
        }
    }

    /// Blocks of rows and columns whose pages fit the TLB.
    #[inline(always)]
    fn each_tile(
        &self,
        addresses: [*mut u8; 4],
        (tile_rows, tile_columns): (usize, usize),
        mut tile: impl FnMut([*mut u8; 4]),
    ) {
        const BLOCK_ROWS: usize = 128;
        const BLOCK_COLUMNS: usize = 256;
        let [a, b, c, d] = self.loops;
        for (i, j) in (0..a.extent).flat_map(|i| (0..b.extent).map(move |j| (i, j))) {
            for (row_block, column_block) in (0..c.extent)
                .step_by(BLOCK_ROWS)
                .flat_map(|row| (0..d.extent).step_by(BLOCK_COLUMNS).map(move |column| (row, column)))
            {
                let columns = column_block..d.extent.min(column_block + BLOCK_COLUMNS);
                for column in columns.step_by(tile_columns) {
                    let rows = row_block..c.extent.min(row_block + BLOCK_ROWS);
                    for row in rows.step_by(tile_rows) {
                        let indices = [i, j, row, column].map(|index| index as isize);
                        tile(std::array::from_fn(|o| {
                            let offset = (0..4).map(|l| indices[l] * self.loops[l].steps[o]).sum();
                            addresses[o].wrapping_offset(offset)
                        }));
                    }
                }
            }
        }
    }
}

/// One element after the other; the compiler may vectorise it.
mod portable {
    use super::*;

    nest!(@loops #[]);

    fn fence<const STORE: u8>() {}

    #[inline(always)]
    pub(super) unsafe fn row<
        const W: usize,
        const COND_: bool,
        const THEN_: bool,
        const ELSE_: bool,
        const STORE: u8,
    >(
        cond: *const u8,
        then: *const u8,
        else_: *const u8,
        dst: *mut u8,
        extent: usize,
    ) {
        macro_rules! lanes {
            ($U:ty) => {
                for i in 0..extent {
                    // SAFETY: as the caller promises.
                    unsafe {
                        let mask = (0 as $U).wrapping_sub((*cond.add(if COND_ { i } else { 0 }) != 0) as $U);
                        let then = then.cast::<$U>().add(if THEN_ { i } else { 0 }).read_unaligned();
                        let else_ = else_.cast::<$U>().add(if ELSE_ { i } else { 0 }).read_unaligned();
                        dst.cast::<$U>().add(i).write_unaligned((then & mask) | (else_ & !mask));
                    }
                }
            };
        }
        match W {
            1 => lanes!(u8),
            2 => lanes!(u16),
            4 => lanes!(u32),
            _ => lanes!(u64),
        }
    }

    #[inline(always)]
    pub(super) unsafe fn copy<const W: usize, const DENSE: bool, const STORE: u8>(
        from: *const u8,
        dst: *mut u8,
        extent: usize,
    ) {
        // SAFETY: as the caller promises.
        unsafe {
            if DENSE {
                from.copy_to(dst, extent * W);
            } else {
                (0..extent).for_each(|i| from.copy_to(dst.add(i * W), W));
            }
        }
    }

    pub(super) unsafe fn transposed<const W: usize, const STORE: u8>(nest: &Nest, addresses: [*mut u8; 4]) {
        const SIDE: usize = 16;
        let [_, _, rows, columns] = nest.loops;
        assert!(rows.extent % SIDE == 0 && columns.extent % SIDE == 0);
        nest.each_tile(addresses, (SIDE, SIDE), |at| {
            for (i, j) in (0..SIDE).flat_map(|i| (0..SIDE).map(move |j| (i as isize, j as isize))) {
                let element = |o: usize| at[o].wrapping_offset(i * rows.steps[o] + j * columns.steps[o]);
                // SAFETY: as the caller promises.
                unsafe {
                    row::<W, true, true, true, STORE>(
                        element(COND),
                        element(THEN),
                        element(ELSE),
                        element(DST),
                        1,
                    );
                }
            }
        });
    }
}

nest!(portable, pick_portable);

/// Orders non-temporal stores before all that follows.
#[cfg(target_arch = "x86_64")]
fn fence_x86<const STORE: u8>() {
    if STORE == NON_TEMPORAL {
        // SAFETY: every x86-64 processor has SSE.
        unsafe { std::arch::x86_64::_mm_sfence() };
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::*;

    use super::fence_x86 as fence;
    use super::*;

    nest!(@loops #[#[target_feature(enable = "avx2")]]);

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn broadcast<const W: usize>(from: *const u8) -> __m256i {
        // SAFETY: as the caller promises.
        unsafe {
            match W {
                1 => _mm256_set1_epi8(from.cast::<i8>().read()),
                2 => _mm256_set1_epi16(from.cast::<i16>().read_unaligned()),
                4 => _mm256_set1_epi32(from.cast::<i32>().read_unaligned()),
                _ => _mm256_set1_epi64x(from.cast::<i64>().read_unaligned()),
            }
        }
    }

    /// All ones in the lanes of a vector whose conditions are zero.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn zeros<const W: usize>(cond: *const u8) -> __m256i {
        let zero = _mm_setzero_si128();
        // SAFETY: as the caller promises.
        unsafe {
            match W {
                1 => _mm256_cmpeq_epi8(_mm256_loadu_si256(cond.cast()), _mm256_setzero_si256()),
                2 => _mm256_cvtepi8_epi16(_mm_cmpeq_epi8(_mm_loadu_si128(cond.cast()), zero)),
                4 => _mm256_cvtepi8_epi32(_mm_cmpeq_epi8(_mm_loadl_epi64(cond.cast()), zero)),
                _ => _mm256_cvtepi8_epi64(_mm_cmpeq_epi8(_mm_loadu_si32(cond), zero)),
            }
        }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn store<const STORE: u8>(dst: *mut u8, value: __m256i) {
        // SAFETY: as the caller promises.
        unsafe {
            match STORE {
                NON_TEMPORAL => _mm256_stream_si256(dst.cast(), value),
                _ => _mm256_storeu_si256(dst.cast(), value),
            }
        }
    }

    /// Elements before the first aligned vector of the result, and elements in whole vectors from there.
    fn peeled<const W: usize, const STORE: u8>(dst: *const u8, extent: usize) -> (usize, usize) {
        let head = if STORE == NON_TEMPORAL { (dst.align_offset(32) / W).min(extent) } else { 0 };
        (head, (extent - head) / (32 / W) * (32 / W))
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn row<
        const W: usize,
        const COND_: bool,
        const THEN_: bool,
        const ELSE_: bool,
        const STORE: u8,
    >(
        cond: *const u8,
        then: *const u8,
        else_: *const u8,
        dst: *mut u8,
        extent: usize,
    ) {
        // SAFETY: as the caller promises.
        unsafe {
            let single = |first: usize, count: usize| {
                let (then, else_) = (
                    then.add(if THEN_ { first * W } else { 0 }),
                    else_.add(if ELSE_ { first * W } else { 0 }),
                );
                portable::row::<W, COND_, THEN_, ELSE_, STORE>(
                    cond.add(if COND_ { first } else { 0 }),
                    then,
                    else_,
                    dst.add(first * W),
                    count,
                );
            };
            let (head, body) = peeled::<W, STORE>(dst, extent);
            let (then_all, else_all) = (broadcast::<W>(then), broadcast::<W>(else_));
            let all_zero = _mm256_set1_epi8(-i8::from(*cond == 0));
            single(0, head);
            let mut i = head;
            while i < head + body {
                let t = if THEN_ { _mm256_loadu_si256(then.add(i * W).cast()) } else { then_all };
                let e = if ELSE_ { _mm256_loadu_si256(else_.add(i * W).cast()) } else { else_all };
                store::<STORE>(
                    dst.add(i * W),
                    _mm256_blendv_epi8(t, e, if COND_ { zeros::<W>(cond.add(i)) } else { all_zero }),
                );
                i += 32 / W;
            }
            single(i, extent - i);
        }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn copy<const W: usize, const DENSE: bool, const STORE: u8>(
        from: *const u8,
        dst: *mut u8,
        extent: usize,
    ) {
        // SAFETY: as the caller promises.
        unsafe {
            if DENSE && STORE != NON_TEMPORAL {
                return from.copy_to(dst, extent * W);
            }
            let single = |first: usize, count: usize| {
                let from = from.add(if DENSE { first * W } else { 0 });
                portable::copy::<W, DENSE, STORE>(from, dst.add(first * W), count);
            };
            let (head, body) = peeled::<W, STORE>(dst, extent);
            let all = broadcast::<W>(from);
            single(0, head);
            let mut i = head;
            while i < head + body {
                let value = if DENSE { _mm256_loadu_si256(from.add(i * W).cast()) } else { all };
                store::<STORE>(dst.add(i * W), value);
                i += 32 / W;
            }
            single(i, extent - i);
        }
    }

    pub(super) use portable::transposed;
}

#[cfg(target_arch = "x86_64")]
nest!(avx2, pick_avx2);

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use std::arch::x86_64::*;

    use super::fence_x86 as fence;
    use super::*;

    nest!(@loops #[#[target_feature(enable = "avx512f,avx512bw,avx512vl")]]);

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    unsafe fn broadcast<const W: usize>(from: *const u8) -> __m512i {
        // SAFETY: as the caller promises.
        unsafe {
            match W {
                1 => _mm512_set1_epi8(from.cast::<i8>().read()),
                2 => _mm512_set1_epi16(from.cast::<i16>().read_unaligned()),
                4 => _mm512_set1_epi32(from.cast::<i32>().read_unaligned()),
                _ => _mm512_set1_epi64(from.cast::<i64>().read_unaligned()),
            }
        }
    }

    /// `then` in lanes whose bit is set, else `else_`.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    fn blend<const W: usize>(bits: u64, then: __m512i, else_: __m512i) -> __m512i {
        match W {
            1 => _mm512_mask_blend_epi8(bits, else_, then),
            2 => _mm512_mask_blend_epi16(bits as u32, else_, then),
            4 => _mm512_mask_blend_epi32(bits as u16, else_, then),
            _ => _mm512_mask_blend_epi64(bits as u8, else_, then),
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    unsafe fn load_lanes<const W: usize>(lanes: u64, from: *const u8) -> __m512i {
        // SAFETY: as the caller promises for the lanes whose bits are set.
        unsafe {
            match W {
                1 => _mm512_maskz_loadu_epi8(lanes, from.cast()),
                2 => _mm512_maskz_loadu_epi16(lanes as u32, from.cast()),
                4 => _mm512_maskz_loadu_epi32(lanes as u16, from.cast()),
                _ => _mm512_maskz_loadu_epi64(lanes as u8, from.cast()),
            }
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    unsafe fn store_lanes<const W: usize>(dst: *mut u8, lanes: u64, value: __m512i) {
        // SAFETY: as the caller promises for the lanes whose bits are set.
        unsafe {
            match W {
                1 => _mm512_mask_storeu_epi8(dst.cast(), lanes, value),
                2 => _mm512_mask_storeu_epi16(dst.cast(), lanes as u32, value),
                4 => _mm512_mask_storeu_epi32(dst.cast(), lanes as u16, value),
                _ => _mm512_mask_storeu_epi64(dst.cast(), lanes as u8, value),
            }
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    unsafe fn store<const STORE: u8>(dst: *mut u8, value: __m512i) {
        // SAFETY: as the caller promises.
        unsafe {
            match STORE {
                NON_TEMPORAL => _mm512_stream_si512(dst.cast(), value),
                _ => _mm512_storeu_si512(dst.cast(), value),
            }
        }
    }

    /// Elements before the first aligned vector of the result.
    fn head<const W: usize, const STORE: u8>(dst: *const u8, extent: usize) -> usize {
        if STORE == NON_TEMPORAL { (dst.align_offset(64) / W).min(extent) } else { 0 }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    unsafe fn row<
        const W: usize,
        const COND_: bool,
        const THEN_: bool,
        const ELSE_: bool,
        const STORE: u8,
    >(
        cond: *const u8,
        then: *const u8,
        else_: *const u8,
        dst: *mut u8,
        extent: usize,
    ) {
        // SAFETY: as the caller promises.
        unsafe {
            let (then_all, else_all) = (broadcast::<W>(then), broadcast::<W>(else_));
            let all = _mm512_set1_epi8(i8::from(*cond != 0));
            let all = _mm512_test_epi8_mask(all, all);
            // Masks for up to 64 elements.
            let part = |first: usize, count: usize| {
                if count == 0 {
                    return;
                }
                let lanes = u64::MAX >> (64 - count);
                let bits = match COND_ {
                    true => {
                        let conds = _mm512_maskz_loadu_epi8(lanes, cond.add(first).cast());
                        _mm512_test_epi8_mask(conds, conds)
                    }
                    false => all,
                };
                for j in 0..W {
                    let (lanes, bits) = (lanes >> (j * (64 / W)), bits >> (j * (64 / W)));
                    let at = first * W + j * 64;
                    let t = if THEN_ { load_lanes::<W>(lanes, then.wrapping_add(at)) } else { then_all };
                    let e = if ELSE_ { load_lanes::<W>(lanes, else_.wrapping_add(at)) } else { else_all };
                    store_lanes::<W>(dst.wrapping_add(at), lanes, blend::<W>(bits, t, e));
                }
            };
            let head = head::<W, STORE>(dst, extent);
            part(0, head);
            let mut i = head;
            while i + 64 <= extent {
                let bits = match COND_ {
                    true => {
                        let conds = _mm512_loadu_si512(cond.add(i).cast());
                        _mm512_test_epi8_mask(conds, conds)
                    }
                    false => all,
                };
                for j in 0..W {
                    let bits = bits >> (j * (64 / W));
                    let at = i * W + j * 64;
                    let t = || if THEN_ { _mm512_loadu_si512(then.add(at).cast()) } else { then_all };
                    let e = || if ELSE_ { _mm512_loadu_si512(else_.add(at).cast()) } else { else_all };
                    match STORE {
                        CHANGES_THEN => store_lanes::<W>(dst.add(at), !bits, e()),
                        CHANGES_ELSE => store_lanes::<W>(dst.add(at), bits, t()),
                        _ => store::<STORE>(dst.add(at), blend::<W>(bits, t(), e())),
                    }
                }
                i += 64;
            }
            part(i, extent - i);
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    unsafe fn copy<const W: usize, const DENSE: bool, const STORE: u8>(
        from: *const u8,
        dst: *mut u8,
        extent: usize,
    ) {
        // SAFETY: as the caller promises.
        unsafe {
            let all = broadcast::<W>(from);
            let part = |first: usize, count: usize| {
                let lanes = if count == 0 { 0 } else { u64::MAX >> (64 - count) };
                let at = first * W;
                let value = if DENSE { load_lanes::<W>(lanes, from.wrapping_add(at)) } else { all };
                store_lanes::<W>(dst.wrapping_add(at), lanes, value);
            };
            let head = head::<W, STORE>(dst, extent);
            part(0, head);
            let mut i = head;
            while i + 64 <= extent {
                for j in 0..W {
                    let at = i * W + j * 64;
                    let value = if DENSE { _mm512_loadu_si512(from.add(at).cast()) } else { all };
                    store::<STORE>(dst.add(at), value);
                }
                i += 64;
            }
            while i < extent {
                let count = (extent - i).min(64 / W);
                part(i, count);
                i += count;
            }
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    fn interleave<const W: usize>(a: __m512i, b: __m512i) -> [__m512i; 2] {
        match W {
            1 => [_mm512_unpacklo_epi8(a, b), _mm512_unpackhi_epi8(a, b)],
            2 => [_mm512_unpacklo_epi16(a, b), _mm512_unpackhi_epi16(a, b)],
            4 => [_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b)],
            _ => [_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b)],
        }
    }

    /// `then` is column-major: 64 columns of one cache line each are loaded into the first-level cache,
    /// transposed in registers and blended as rows of whole lines.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    pub(super) unsafe fn transposed<const W: usize, const STORE: u8>(nest: &Nest, addresses: [*mut u8; 4]) {
        #[repr(align(64))]
        struct Lines([[u8; 64]; 64]);
        let mut lines = Lines([[0; 64]; 64]);
        let [_, _, rows, columns] = nest.loops;
        assert!(rows.extent % (64 / W) == 0 && columns.extent % 64 == 0);
        // Rows to which one 16-byte lane of a line belongs.
        let lane_rows = 16 / W;
        nest.each_tile(addresses, (64 / W, 64), |[cond, then, else_, dst]| {
            // SAFETY: as the caller promises; the tile has 64 columns and as many rows as a line has
            // elements.
            unsafe {
                for (i, line) in lines.0.iter_mut().enumerate() {
                    let from = then.offset(columns.steps[THEN] * i as isize);
                    _mm512_store_si512(line.as_mut_ptr().cast(), _mm512_loadu_si512(from.cast()));
                }
                for lane in 0..4 {
                    // Columns of one row in a vector.
                    for group in 0..W {
                        let first = group * (64 / W);
                        let mut x = [_mm512_setzero_si512(); 16];
                        for (i, x) in x[..lane_rows].iter_mut().enumerate() {
                            let part = |k: usize| {
                                let line = &lines.0[first + k * lane_rows + i];
                                _mm_load_si128(line.as_ptr().add(16 * lane).cast())
                            };
                            let low = _mm512_castsi128_si512(part(0));
                            let low = _mm512_inserti32x4::<1>(low, part(1));
                            *x = _mm512_inserti32x4::<3>(_mm512_inserti32x4::<2>(low, part(2)), part(3));
                        }
                        let mut stage = 1;
                        while stage < lane_rows {
                            let y = x;
                            for i in 0..lane_rows / 2 {
                                [x[2 * i], x[2 * i + 1]] = interleave::<W>(y[i], y[i + lane_rows / 2]);
                            }
                            stage *= 2;
                        }
                        for (i, &then) in x[..lane_rows].iter().enumerate() {
                            let row = (lane * lane_rows + i) as isize;
                            let cond = cond.offset(row * rows.steps[COND]).add(first);
                            let bits = match W {
                                1 => {
                                    let conds = _mm512_loadu_si512(cond.cast());
                                    _mm512_test_epi8_mask(conds, conds)
                                }
                                2 => {
                                    let conds = _mm256_loadu_si256(cond.cast());
                                    u64::from(_mm256_test_epi8_mask(conds, conds))
                                }
                                4 => {
                                    let conds = _mm_loadu_si128(cond.cast());
                                    u64::from(_mm_test_epi8_mask(conds, conds))
                                }
                                _ => {
                                    let conds = _mm_loadl_epi64(cond.cast());
                                    u64::from(_mm_test_epi8_mask(conds, conds))
                                }
                            };
                            let else_ = else_.offset(row * rows.steps[ELSE]).add(first * W);
                            let value = blend::<W>(bits, then, _mm512_loadu_si512(else_.cast()));
                            store::<STORE>(dst.offset(row * rows.steps[DST]).add(first * W), value);
                        }
                    }
                }
            }
        });
        fence::<STORE>();
    }
}

#[cfg(target_arch = "x86_64")]
nest!(avx512, pick_avx512);
