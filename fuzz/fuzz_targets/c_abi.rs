//! Sequences of calls on the C interface: objects that fit together, and again and again a null, a number
//! that means nothing, a count that does not match, text that is no text, an allocator that fails.
//!
//! A panic ends the run wherever it is caught, since the fuzzer's hook aborts before anything is unwound; and
//! the status of a defect is a crash as well.
#![no_main]

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use libfuzzer_sys::fuzz_target;
use sterna::AttrValue;
use sterna_capi::allocator::*;
use sterna_capi::compiled_partition::*;
use sterna_capi::constant_tensor_cache::*;
use sterna_capi::cpu_isa::*;
use sterna_capi::data_type::*;
use sterna_capi::dump::sterna_dump_mode_set;
use sterna_capi::engine::*;
use sterna_capi::fpmath_mode::*;
use sterna_capi::graph::*;
use sterna_capi::last_error::*;
use sterna_capi::level::*;
use sterna_capi::logical_tensor::*;
use sterna_capi::op::*;
use sterna_capi::partition::*;
use sterna_capi::status::*;
use sterna_capi::stream::*;
use sterna_capi::string::*;
use sterna_capi::tensor::*;
use sterna_capi::verbose::sterna_verbose_set;
use sterna_capi::version::*;
use sterna_fuzz::common::{GAP, Random};
use sterna_fuzz::{MOST_BYTES, PLAIN_OPS, some_kind, trace};

const SUCCESS: Status = 0;
const RUNTIME_ERROR: Status = 5;
const CPU: c_int = 1;
const F32: c_int = 3;
const BOOLEAN: c_int = 8;
const STRIDED: c_int = 2;
const HOST_SCALAR: c_int = 3;

const MOST_HELD: usize = 6;
const MOST_CALLS: usize = 150;
const IDS: usize = 12;

/// Calls a function of the interface.
macro_rules! call {
    ($function:ident($($argument:expr),* $(,)?)) => {{
        trace(stringify!($function));
        #[allow(unused_unsafe, reason = "some functions are safe")]
        // SAFETY: pointers are null, or of objects that are alive and not lent elsewhere; arrays are as long
        // as is said, or refused before they are looked at; text ends with a zero.
        let answer = unsafe { $function($($argument),*) };
        answer
    }};
}

/// Groups of calls, the frequent ones more than once.
const CALLS: &[fn(&mut World)] = &[
    World::describe,
    World::engine,
    World::op,
    World::op,
    World::attribute,
    World::graph,
    World::graph,
    World::partitions,
    World::partitions,
    World::partition,
    World::compile,
    World::compile,
    World::compile,
    World::execute,
    World::execute,
    World::execute,
    World::tensor,
    World::json,
    World::settings,
    World::numbers,
    World::destroy,
];

fuzz_target!(|bytes: &[u8]| {
    let mut world = World::new(Random::from_bytes(bytes));
    for _ in 0..MOST_CALLS {
        if world.random.is_spent() {
            break;
        }
        let call = world.random.pick(CALLS);
        call(&mut world);
    }
    world.end();
});

/// What the calls so far have made.
#[allow(clippy::vec_box, reason = "handles are boxes")]
struct World {
    random: Random,
    dims: Vec<i64>,
    /// The first mention of each tensor.
    mentions: BTreeMap<usize, LogicalTensor>,
    descs: Vec<LogicalTensor>,
    engines: Vec<*mut Engine>,
    streams: Vec<Box<Stream>>,
    ops: Vec<Box<Op>>,
    graphs: Vec<Box<Graph>>,
    partitions: Vec<Box<Partition>>,
    compiled: Vec<Compiled>,
    tensors: Vec<Box<Tensor>>,
    /// What tensors are on; it outlives them.
    memory: Vec<Box<[u8]>>,
}

/// A compiled partition, the engine for which it was compiled, which may be gone, and the ids of its ports.
struct Compiled {
    handle: Box<CompiledPartition>,
    engine: *mut Engine,
    ports: [Vec<usize>; 2],
}

/// How many more blocks the allocator gives; then none for once.
static BLOCKS_LEFT: AtomicUsize = AtomicUsize::new(usize::MAX);

/// How many bytes blocks are off the alignment that they are asked for.
static BLOCKS_OFF: AtomicUsize = AtomicUsize::new(0);

/// The blocks that are out: the address that was given out, and that of the memory behind it.
static BLOCKS_OUT: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());

unsafe extern "C" {
    fn posix_memalign(block: *mut *mut c_void, alignment: usize, size: usize) -> c_int;
    fn free(block: *mut c_void);
}

unsafe extern "C-unwind" fn take_block(size: usize, alignment: usize) -> *mut c_void {
    let left = BLOCKS_LEFT.fetch_sub(1, Ordering::Relaxed);
    if left == 0 || size > MOST_BYTES {
        return ptr::null_mut();
    }
    let (mut block, off) = (ptr::null_mut(), BLOCKS_OFF.load(Ordering::Relaxed));
    // SAFETY: the alignment is a power of two, as the library promises.
    let status = unsafe { posix_memalign(&raw mut block, alignment, size + off) };
    if status != 0 {
        return ptr::null_mut();
    }
    let given = block.wrapping_byte_add(off);
    let before = BLOCKS_OUT.lock().unwrap().insert(given.expose_provenance(), block.expose_provenance());
    assert_eq!(before, None, "a block is given out once");
    given
}

unsafe extern "C-unwind" fn give_block(block: *mut c_void) {
    let block = BLOCKS_OUT.lock().unwrap().remove(&block.addr()).expect("what comes back was given out");
    // SAFETY: the block came from `take_block`, and comes back once.
    unsafe { free(ptr::with_exposed_provenance_mut(block)) };
}

/// Whether a call succeeded; if not, it was for a reason that it states.
fn ok(status: Status) -> bool {
    if status == SUCCESS {
        return true;
    }
    let message = text_at(sterna_last_error_message());
    assert_ne!(status, RUNTIME_ERROR, "{message}");
    assert!(!message.is_empty(), "status {status} comes without a sentence");
    assert_ne!(text_at(sterna_status_string(status)), "unknown status", "{status}");
    trace(&message);
    false
}

fn text_at(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: text that the library hands out ends with a zero.
    unsafe { CStr::from_ptr(text) }.to_str().expect("text of the library is UTF-8").to_owned()
}

fn take_text(text: *mut c_char) -> String {
    let copy = text_at(text);
    assert!(ok(call!(sterna_string_destroy(text))));
    copy
}

/// What a call makes; now and then it is given no place for it. A call that fails writes nothing there.
fn made<T>(random: &mut Random, make: impl FnOnce(Option<&mut MaybeUninit<T>>) -> Status) -> Option<T> {
    if errs(random, 48) {
        assert!(!ok(make(None)), "a call took no place for its result");
        return None;
    }
    let mut value = MaybeUninit::uninit();
    // SAFETY: any bytes may be written to what is not initialised.
    unsafe { ptr::write_bytes(&raw mut value, GAP, 1) };
    if ok(make(Some(&mut value))) {
        // SAFETY: the call succeeded, so the value was written.
        return Some(unsafe { value.assume_init() });
    }
    // SAFETY: all bytes have been written just now, and the call was to leave them alone.
    let bytes = unsafe { std::slice::from_raw_parts(value.as_ptr().cast::<u8>(), size_of::<T>()) };
    assert!(bytes.iter().all(|&byte| byte == GAP), "a call that failed has written");
    None
}

/// Whether something is to go wrong, once in so many times.
fn errs(random: &mut Random, times: usize) -> bool {
    random.below(times) == times - 1
}

/// One of some objects; null if there is none, and now and then.
fn lend<'a, T>(random: &mut Random, held: &'a [T]) -> Option<&'a T> {
    if held.is_empty() || errs(random, 48) { None } else { held.get(random.below(held.len())) }
}

fn lend_mut<'a, T>(random: &mut Random, held: &'a mut [T]) -> Option<&'a mut T> {
    if held.is_empty() || errs(random, 48) { None } else { held.get_mut(random.below(held.len())) }
}

fn engine_of(random: &mut Random, engines: &[*mut Engine]) -> *mut Engine {
    lend(random, engines).copied().unwrap_or(ptr::null_mut())
}

fn keep<T>(random: &mut Random, held: &mut Vec<T>, value: Option<T>) -> Option<T> {
    let value = value?;
    if held.len() < MOST_HELD {
        held.push(value);
        return None;
    }
    Some(std::mem::replace(&mut held[random.below(MOST_HELD)], value))
}

/// A number that stands for something, or now and then one that may stand for nothing.
fn code(random: &mut Random, good: c_int) -> c_int {
    let odd = [-1, 0, 1, 2, 3, 7, 13, 0x7f, 0xff, 0x101, 0x7fff, 0x1000, c_int::MIN, c_int::MAX];
    if errs(random, 32) { random.pick(&odd) } else { good }
}

/// An array: mostly as it is, or with a pointer or count that is refused before any element is looked at, or
/// shorter.
fn array<T>(random: &mut Random, values: &[T]) -> (*const T, usize) {
    let (at, len) = (values.as_ptr(), values.len());
    match random.below(256) {
        63 => (ptr::null(), len),
        62 if align_of::<T>() > 1 => (at.wrapping_byte_add(1), len),
        61 => (at, random.pick(&[usize::MAX, usize::MAX - 7, usize::MAX / 2 + 1])),
        60 => (at, len.saturating_sub(1)),
        _ => (at, len),
    }
}

/// Text that ends with a zero; now and then none, or none in UTF-8.
fn word(random: &mut Random, good: &str) -> Vec<u8> {
    let bytes: &[u8] = match random.below(32) {
        31 => b"\xff\xfe",
        30 => b"",
        29 => "ü \"quoted\" \\ \n".as_bytes(),
        _ => good.as_bytes(),
    };
    [bytes, &[0]].concat()
}

fn number(random: &mut Random) -> i64 {
    random.pick(&[0, 1, -1, 2, 13, 1 << 31, 1 << 62, i64::MAX, i64::MIN, i64::MIN + 1])
}

impl World {
    fn new(mut random: Random) -> Self {
        let dims = (0..random.below(4)).map(|_| random.pick(&[1, 2, 3, 5, 8, 17, 33])).collect();
        let mut world = Self {
            random,
            dims,
            mentions: BTreeMap::new(),
            descs: Vec::new(),
            engines: Vec::new(),
            streams: Vec::new(),
            ops: Vec::new(),
            graphs: Vec::new(),
            partitions: Vec::new(),
            compiled: Vec::new(),
            tensors: Vec::new(),
            memory: Vec::new(),
        };
        // From here on the level of the kernels is fixed.
        call!(sterna_cpu_isa_get_effective());
        world.engine();
        world
    }

    /// Destroys everything that is left.
    fn end(mut self) {
        self.streams.drain(..).for_each(|one| assert!(ok(call!(sterna_stream_destroy(Some(one))))));
        self.tensors.drain(..).for_each(|one| assert!(ok(call!(sterna_tensor_destroy(Some(one))))));
        self.engines.drain(..).for_each(|one| assert!(ok(call!(sterna_engine_destroy(one)))));
        self.ops.drain(..).for_each(|one| assert!(ok(call!(sterna_op_destroy(Some(one))))));
        self.graphs.drain(..).for_each(|one| assert!(ok(call!(sterna_graph_destroy(Some(one))))));
        self.partitions.drain(..).for_each(|one| assert!(ok(call!(sterna_partition_destroy(Some(one))))));
        let destroy = |one: Compiled| ok(call!(sterna_compiled_partition_destroy(Some(one.handle))));
        self.compiled.drain(..).for_each(|one| assert!(destroy(one)));
        BLOCKS_LEFT.store(usize::MAX, Ordering::Relaxed);
        BLOCKS_OFF.store(0, Ordering::Relaxed);
        call!(sterna_compiled_partition_cache_set_capacity(1024));
    }

    fn some_dims(&mut self) -> Vec<i64> {
        if errs(&mut self.random, 32) {
            return (0..12).map(|_| number(&mut self.random)).collect();
        }
        let lacking = if self.random.below(4) == 0 { self.random.below(self.dims.len() + 1) } else { 0 };
        let dims = self.dims[lacking..].to_vec();
        dims.into_iter().map(|dim| if errs(&mut self.random, 6) { 1 } else { dim }).collect()
    }

    /// A description by any of the functions, or written by hand.
    fn desc(&mut self, id: usize, data_type: c_int) -> Option<LogicalTensor> {
        let data_type = code(&mut self.random, data_type);
        let dims = self.some_dims();
        let rank = code(&mut self.random, dims.len() as c_int);
        // The functions read as many dims as the rank says, which is 12 at most where it is one.
        let mut padded = dims.clone();
        padded.resize(12, 1);
        let mut strides = vec![1i64; 12];
        (0..dims.len().saturating_sub(1)).rev().for_each(|axis| {
            strides[axis] = strides[axis + 1].saturating_mul(dims[axis + 1]);
        });
        if errs(&mut self.random, 6) {
            let axis = self.random.below(12);
            strides[axis] = number(&mut self.random);
        }
        let good_property =
            if errs(&mut self.random, 16) { HOST_SCALAR } else { self.random.below(3) as c_int };
        let property = code(&mut self.random, good_property);
        let good_layout = self.random.pick(&[STRIDED, STRIDED, STRIDED, 1, 0, 3]);
        let layout_type = code(&mut self.random, good_layout);
        let dims_at = if errs(&mut self.random, 64) { ptr::null() } else { padded.as_ptr() };
        let strides_at = if errs(&mut self.random, 64) { ptr::null() } else { strides.as_ptr() };
        let mut to = MaybeUninit::<LogicalTensor>::uninit();
        let at = if errs(&mut self.random, 64) { ptr::null_mut() } else { to.as_mut_ptr() };
        let status = match self.random.below(4) {
            0 => call!(sterna_logical_tensor_init_with_strides(
                at, id, data_type, rank, dims_at, strides_at, property
            )),
            1 => {
                let rank = if errs(&mut self.random, 4) { -1 } else { rank };
                call!(sterna_logical_tensor_init(at, id, data_type, rank, layout_type, property))
            }
            _ => call!(sterna_logical_tensor_init_with_dims(
                at,
                id,
                data_type,
                rank,
                dims_at,
                layout_type,
                property
            )),
        };
        if ok(status) {
            // SAFETY: the call succeeded, so the description was written.
            let desc = unsafe { to.assume_init() };
            assert!(self.is_taken(&desc));
            return Some(desc);
        }
        let mut by_hand = LogicalTensor {
            id,
            ndims: rank,
            dims: [0; 12],
            data_type,
            property,
            layout_type,
            layout: sterna_capi::logical_tensor::Layout { strides: [0; 12] },
        };
        by_hand.dims.copy_from_slice(&padded);
        by_hand.layout.strides = strides.try_into().expect("there are 12");
        errs(&mut self.random, 4).then_some(by_hand)
    }

    fn is_taken(&mut self, desc: &LogicalTensor) -> bool {
        let (mut size, mut equal) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        let status = call!(sterna_logical_tensor_is_equal(Some(desc), Some(desc), Some(&mut equal)));
        ok(status) && ok(call!(sterna_logical_tensor_get_mem_size(Some(desc), Some(&mut size))))
    }

    fn describe(&mut self) {
        let (id, data_type) = (self.random.below(IDS), self.random.below(17) as c_int);
        let desc = self.desc(id, data_type);
        keep(&mut self.random, &mut self.descs, desc);
        let left = lend(&mut self.random, &self.descs).copied();
        let right = lend(&mut self.random, &self.descs).copied();
        made(&mut self.random, |to| call!(sterna_logical_tensor_is_equal(left.as_ref(), right.as_ref(), to)));
        made(&mut self.random, |to| call!(sterna_logical_tensor_get_mem_size(left.as_ref(), to)));
    }

    fn engine(&mut self) {
        let functions: (AllocatorMalloc, AllocatorFree) = match self.random.below(16) {
            15 => (None, Some(give_block)),
            14 => (Some(take_block), None),
            13 => (None, None),
            _ => (Some(take_block), Some(give_block)),
        };
        let allocator =
            made(&mut self.random, |to| call!(sterna_allocator_create(to, functions.0, functions.1)));
        let (kind, index) = (code(&mut self.random, CPU), usize::from(errs(&mut self.random, 32)));
        let threads = self.random.pick(&[0, 1, 2, 64, usize::MAX]);
        let given = allocator.as_deref();
        let engine = match self.random.below(8) {
            // The memory of the system has no cap: what is asked of it is looked at in `tensor`.
            0 => made(&mut self.random, |to| call!(sterna_engine_create(to, kind, index))),
            with_threads => {
                let mut options = EngineOptions {
                    struct_size: size_of::<EngineOptions>(),
                    allocator: given.map_or(ptr::null(), ptr::from_ref),
                    profiler: ptr::null(),
                    threads: if with_threads == 1 { threads } else { 0 },
                    sleep_at_once: self.random.below(2) as c_int,
                };
                if errs(&mut self.random, 32) {
                    options.struct_size = self.random.below(8);
                }
                made(&mut self.random, |to| call!(sterna_engine_create_with_options(to, &raw const options)))
            }
        };
        assert!(ok(call!(sterna_allocator_destroy(allocator))));
        call!(sterna_engine_get_count(kind));
        if let Some(old) = keep(&mut self.random, &mut self.engines, engine) {
            assert!(ok(call!(sterna_engine_destroy(old))));
        }
        let engine = engine_of(&mut self.random, &self.engines);
        // SAFETY: the engine is null, or alive.
        let lent = unsafe { engine.as_ref() };
        made(&mut self.random, |to| call!(sterna_engine_get_kind(lent, to)));
        made(&mut self.random, |to| call!(sterna_engine_get_threads(lent, to)));
        made(&mut self.random, |to| call!(sterna_engine_get_level(lent, to)));
        let flags = self.random.pick(&[1, 1, 1, 1, 1, 2, 3, 0, 4, 8, u32::MAX]);
        let stream = made(&mut self.random, |to| call!(sterna_stream_create(to, engine, flags)));
        if let Some(old) = keep(&mut self.random, &mut self.streams, stream) {
            assert!(ok(call!(sterna_stream_destroy(Some(old)))));
        }
        let stream = lend(&mut self.random, &self.streams).map(|stream| &**stream);
        ok(call!(sterna_stream_wait(stream)));
        made(&mut self.random, |to| call!(sterna_stream_get_engine(stream, to)));
    }

    /// A mention of a tensor of a type: mostly one that other ops mention as well.
    fn mention(&mut self, data_type: c_int) -> Option<LogicalTensor> {
        if !self.descs.is_empty() && errs(&mut self.random, 16) {
            return Some(self.random.pick(&self.descs));
        }
        let id = self.random.below(IDS);
        let id = match self.mentions.get(&id) {
            Some(known) if known.data_type == data_type => return Some(*known),
            Some(_) if !errs(&mut self.random, 16) => IDS + self.mentions.len(),
            _ => id,
        };
        let desc = match errs(&mut self.random, 4) {
            true => self.desc(id, data_type)?,
            false => self.dense(id, data_type, 0)?,
        };
        Some(*self.mentions.entry(id).or_insert(desc))
    }

    /// A tensor that nobody has mentioned yet, and of which only the type is known.
    fn open(&mut self, data_type: c_int) -> Option<LogicalTensor> {
        let id = IDS + self.mentions.len();
        let desc = self.unknown(id, data_type)?;
        self.mentions.insert(id, desc);
        Some(desc)
    }

    fn unknown(&mut self, id: usize, data_type: c_int) -> Option<LogicalTensor> {
        made(&mut self.random, |to: Option<&mut MaybeUninit<LogicalTensor>>| {
            let at = to.map_or(ptr::null_mut(), MaybeUninit::as_mut_ptr);
            call!(sterna_logical_tensor_init(at, id, data_type, -1, 1, 0))
        })
    }

    /// A dense tensor of a shape that mostly fits the others.
    fn dense(&mut self, id: usize, data_type: c_int, property: c_int) -> Option<LogicalTensor> {
        let mut dims = self.some_dims();
        dims.truncate(if property == HOST_SCALAR { 0 } else { 12 });
        let (rank, dims) = (dims.len() as i32, dims.as_ptr());
        made(&mut self.random, |to: Option<&mut MaybeUninit<LogicalTensor>>| {
            let at = to.map_or(ptr::null_mut(), MaybeUninit::as_mut_ptr);
            call!(sterna_logical_tensor_init_with_dims(at, id, data_type, rank, dims, STRIDED, property))
        })
    }

    fn op(&mut self) {
        let kind = some_kind(&mut self.random);
        let plain = &PLAIN_OPS[&kind];
        let (id, name) = (self.random.below(IDS), word(&mut self.random, "op"));
        let name = if errs(&mut self.random, 48) { ptr::null() } else { name.as_ptr().cast() };
        let number = code(&mut self.random, kind.code() as c_int);
        let Some(mut op) = made(&mut self.random, |to| call!(sterna_op_create(to, id, number, name))) else {
            return;
        };
        for port in plain.inputs() {
            let desc = self.mention(port.data_type().code() as c_int);
            ok(call!(sterna_op_add_input(Some(&mut op), desc.as_ref())));
        }
        for port in plain.outputs() {
            let data_type = port.data_type().code() as c_int;
            let desc = if errs(&mut self.random, 8) { self.mention(data_type) } else { self.open(data_type) };
            ok(call!(sterna_op_add_output(Some(&mut op), desc.as_ref())));
        }
        for (attr, value) in plain.attrs() {
            self.set(&mut op, attr.code() as OpAttr, value);
        }
        made(&mut self.random, |to| call!(sterna_op_get_id(Some(&op), to)));
        made(&mut self.random, |to| call!(sterna_op_get_kind(Some(&op), to)));
        let open = lend_mut(&mut self.random, &mut self.graphs).map(|graph| &mut **graph);
        ok(call!(sterna_graph_add_op(open, Some(&op))));
        if let Some(old) = keep(&mut self.random, &mut self.ops, Some(op)) {
            assert!(ok(call!(sterna_op_destroy(Some(old)))));
        }
    }

    fn set(&mut self, op: &mut Op, attr: OpAttr, value: &AttrValue) {
        let attr = code(&mut self.random, attr);
        let set_s64 = |world: &mut Self, op: &mut Op, values: &[i64]| {
            let (at, len) = array(&mut world.random, values);
            call!(sterna_op_set_attr_s64(Some(op), attr, at, len))
        };
        let set_f32 = |world: &mut Self, op: &mut Op, values: &[f32]| {
            let (at, len) = array(&mut world.random, values);
            call!(sterna_op_set_attr_f32(Some(op), attr, at, len))
        };
        ok(match value {
            AttrValue::Bool(value) => {
                let len = if errs(&mut self.random, 32) { self.random.pick(&[0, 2, usize::MAX]) } else { 1 };
                call!(sterna_op_set_attr_bool(Some(op), attr, ptr::from_ref(value).cast(), len))
            }
            AttrValue::S64(value) => set_s64(self, op, &[*value]),
            AttrValue::S64s(values) => set_s64(self, op, values),
            AttrValue::F32(value) => set_f32(self, op, &[*value]),
            AttrValue::F32s(values) => set_f32(self, op, values),
            AttrValue::String(value) => {
                let word = word(&mut self.random, value);
                let at = if errs(&mut self.random, 48) { ptr::null() } else { word.as_ptr().cast() };
                let len =
                    if errs(&mut self.random, 16) { self.random.pick(&[0, usize::MAX]) } else { word.len() };
                call!(sterna_op_set_attr_str(Some(op), attr, at, len))
            }
            other => panic!("{other:?} has no function"),
        });
    }

    /// Gives an op that there is an attribute, of its kind or not.
    fn attribute(&mut self) {
        if self.ops.is_empty() {
            return;
        }
        let index = self.random.below(self.ops.len());
        let mut op = self.ops.swap_remove(index);
        let attr = self.random.pick(sterna::Attr::ALL).code() as OpAttr;
        let odd = number(&mut self.random);
        let value = match self.random.below(6) {
            0 => AttrValue::Bool(odd & 1 == 1),
            1 => AttrValue::S64(odd),
            2 => AttrValue::F32(odd as f32),
            3 => self.random.pick(&["none", "pdpd", "multidirectional", "NXC", "gelu_tanh"]).into(),
            4 => self.some_dims().into(),
            _ => vec![0.5f32; self.random.below(5)].into(),
        };
        self.set(&mut op, attr, &value);
        self.ops.push(op);
    }

    fn graph(&mut self) {
        if self.graphs.is_empty() || errs(&mut self.random, 4) {
            let (kind, mode) = (code(&mut self.random, CPU), code(&mut self.random, 0));
            let graph = match self.random.below(2) {
                0 => made(&mut self.random, |to| call!(sterna_graph_create(to, kind))),
                _ => made(&mut self.random, |to| call!(sterna_graph_create_with_fpmath_mode(to, kind, mode))),
            };
            if let Some(old) = keep(&mut self.random, &mut self.graphs, graph) {
                assert!(ok(call!(sterna_graph_destroy(Some(old)))));
            }
        }
        let op = lend(&mut self.random, &self.ops).map(|op| &**op);
        let graph = lend_mut(&mut self.random, &mut self.graphs).map(|graph| &mut **graph);
        ok(call!(sterna_graph_add_op(graph, op)));
        if errs(&mut self.random, 8) {
            let (mode, flag) = (code(&mut self.random, 1), code(&mut self.random, 1));
            let graph = lend_mut(&mut self.random, &mut self.graphs).map(|graph| &mut **graph);
            ok(call!(sterna_graph_set_fpmath_mode(graph, mode, flag)));
            let graph = lend(&mut self.random, &self.graphs).map(|graph| &**graph);
            let mut flag = MaybeUninit::uninit();
            made(&mut self.random, |to| call!(sterna_graph_get_fpmath_mode(graph, to, Some(&mut flag))));
        }
    }

    fn partitions(&mut self) {
        let Some(graph) = lend_mut(&mut self.random, &mut self.graphs).map(|graph| &mut **graph) else {
            return;
        };
        if !errs(&mut self.random, 8) {
            ok(call!(sterna_graph_finalize(Some(graph))));
        }
        made(&mut self.random, |to| call!(sterna_graph_is_finalized(Some(&*graph), to)));
        let good = if self.random.below(2) == 0 { 1 } else { 2 };
        let policy = code(&mut self.random, good);
        ok(call!(sterna_graph_filter(Some(graph), policy)));
        let op_id = self.random.below(IDS);
        if let Some(text) = made(&mut self.random, |to| call!(sterna_graph_explain(Some(&*graph), op_id, to)))
        {
            take_text(text);
        }
        let Some(num) = made(&mut self.random, |to| call!(sterna_graph_get_partition_num(Some(&*graph), to)))
        else {
            return;
        };
        let mut room: Vec<MaybeUninit<Box<Partition>>> = (0..=num).map(|_| MaybeUninit::uninit()).collect();
        let asked = if errs(&mut self.random, 32) { num + 1 } else { num };
        let at = if errs(&mut self.random, 48) { ptr::null_mut() } else { room.as_mut_ptr().cast() };
        if !ok(call!(sterna_graph_get_partitions(Some(&*graph), asked, at))) {
            return;
        }
        // An array of none may be anywhere.
        for partition in room.into_iter().take(if at.is_null() { 0 } else { num }) {
            // SAFETY: the call succeeded, so as many were written.
            let partition = Some(unsafe { partition.assume_init() });
            if let Some(old) = keep(&mut self.random, &mut self.partitions, partition) {
                assert!(ok(call!(sterna_partition_destroy(Some(old)))));
            }
        }
    }

    /// Asks a partition for all that it says of itself, or makes one of an op.
    fn partition(&mut self) {
        if errs(&mut self.random, 3) {
            let (op, kind) = (lend(&mut self.random, &self.ops).map(|op| &**op), code(&mut self.random, CPU));
            let made = made(&mut self.random, |to| call!(sterna_partition_create_with_op(to, op, kind)));
            if let Some(old) = keep(&mut self.random, &mut self.partitions, made) {
                assert!(ok(call!(sterna_partition_destroy(Some(old)))));
            }
        }
        let partition = lend(&mut self.random, &self.partitions).map(|partition| &**partition);
        made(&mut self.random, |to| call!(sterna_partition_get_id(partition, to)));
        made(&mut self.random, |to| call!(sterna_partition_get_engine_kind(partition, to)));
        made(&mut self.random, |to| call!(sterna_partition_is_supported(partition, to)));
        if let Some(text) =
            made(&mut self.random, |to| call!(sterna_partition_get_unsupported_reason(partition, to)))
        {
            take_text(text);
        }
        let Some(num) = made(&mut self.random, |to| call!(sterna_partition_get_op_num(partition, to))) else {
            return;
        };
        let mut ids = vec![0usize; num + 1];
        let asked = if errs(&mut self.random, 32) { num + 1 } else { num };
        let at = if errs(&mut self.random, 48) { ptr::null_mut() } else { ids.as_mut_ptr() };
        ok(call!(sterna_partition_get_ops(partition, asked, at)));
    }

    /// The ports of a partition: what it takes, or what it gives.
    fn ports(partition: &Partition, gives: bool) -> Vec<LogicalTensor> {
        let mut num = MaybeUninit::uninit();
        let (partition, to) = (Some(partition), Some(&mut num));
        assert!(ok(match gives {
            false => call!(sterna_partition_get_input_ports_num(partition, to)),
            true => call!(sterna_partition_get_output_ports_num(partition, to)),
        }));
        // SAFETY: the call succeeded, so the number was written.
        let num = unsafe { num.assume_init() };
        let mut ports = Vec::with_capacity(num);
        assert!(ok(match gives {
            false => call!(sterna_partition_get_input_ports(partition, num, ports.as_mut_ptr())),
            true => call!(sterna_partition_get_output_ports(partition, num, ports.as_mut_ptr())),
        }));
        // SAFETY: the call succeeded, so as many were written.
        unsafe { ports.set_len(num) };
        ports
    }

    fn compile(&mut self) {
        if self.partitions.is_empty() {
            return;
        }
        let index = self.random.below(self.partitions.len());
        let ports = [false, true].map(|gives| Self::ports(&self.partitions[index], gives));
        let concrete = [false, true].map(|gives| {
            let ports = &ports[usize::from(gives)];
            let settle = |port: &LogicalTensor| {
                let other = match self.random.below(16) {
                    0 => self.desc(port.id, port.data_type),
                    1..5 => self.dense(port.id, port.data_type, port.property),
                    _ if port.layout_type == STRIDED && port.ndims >= 0 => None,
                    _ if gives => self.unknown(port.id, port.data_type),
                    _ => self.dense(port.id, port.data_type, port.property),
                };
                other.unwrap_or(*port)
            };
            ports.iter().map(settle).collect::<Vec<LogicalTensor>>()
        });
        let lists = concrete.each_ref().map(|descs| {
            let mut list: Vec<_> = descs.iter().map(Some).collect();
            match self.random.below(64) {
                63 => list.push(None),
                62 => drop(list.pop()),
                61 => list.reverse(),
                60 => list.extend(descs.first().map(Some)),
                _ => {}
            }
            list
        });
        let [(ins, in_num), (outs, out_num)] = lists.each_ref().map(|list| array(&mut self.random, list));
        let engine = engine_of(&mut self.random, &self.engines);
        let partition = Some(&*self.partitions[index]);
        let fresh = made(&mut self.random, |to| call!(sterna_compiled_partition_create(to, partition)));
        let Some(mut handle) = fresh else { return };
        let to = if errs(&mut self.random, 48) { None } else { Some(&mut *handle) };
        let compiles = ok(call!(sterna_partition_compile(partition, to, in_num, ins, out_num, outs, engine)));
        if !compiles && !errs(&mut self.random, 4) {
            assert!(ok(call!(sterna_compiled_partition_destroy(Some(handle)))));
            return;
        }
        let ids = ports.map(|ports| ports.iter().map(|port| port.id).collect());
        let compiled = Compiled { handle, engine, ports: ids };
        let (mut num, mut pairs) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        let compiled_handle = Some(&*compiled.handle);
        let (to_num, to_pairs) = (Some(&mut num), Some(&mut pairs));
        ok(call!(sterna_compiled_partition_get_inplace_ports(compiled_handle, to_num, to_pairs)));
        let id = self.random.pick(&[0, IDS, usize::MAX]);
        made(&mut self.random, |to| {
            call!(sterna_compiled_partition_query_logical_tensor(compiled_handle, id, to))
        });
        if let Some(old) = keep(&mut self.random, &mut self.compiled, Some(compiled)) {
            assert!(ok(call!(sterna_compiled_partition_destroy(Some(old.handle)))));
        }
    }

    /// Memory for a tensor, without a byte to spare; null where it would take too much. Now and then that of
    /// another.
    fn memory_for(&mut self, desc: &LogicalTensor) -> *mut c_void {
        let size_of =
            |core: sterna::LogicalTensor| core.span()?.checked_mul(core.data_type().size().unwrap_or(8));
        let Some(size) = desc.to_core().ok().and_then(size_of).filter(|&size| size <= MOST_BYTES / 16) else {
            return ptr::null_mut();
        };
        if errs(&mut self.random, 16)
            && let Some(other) = self.memory.iter_mut().find(|other| other.len() >= size)
        {
            return other.as_mut_ptr().cast();
        }
        let fill = self.random.below(256) as u8;
        self.memory.push(vec![fill; size].into());
        self.memory.last_mut().map_or(ptr::null_mut(), |memory| memory.as_mut_ptr().cast())
    }

    /// A tensor for a description, on memory of one kind or another.
    fn make_tensor(&mut self, desc: &LogicalTensor, engine: *mut Engine) -> Option<Box<Tensor>> {
        if desc.property == HOST_SCALAR && !errs(&mut self.random, 16) {
            let value = [0u8; 8];
            return made(&mut self.random, |to| {
                call!(sterna_tensor_create_scalar(to, Some(desc), value.as_ptr().cast()))
            });
        }
        let handle = match self.random.below(8) {
            7 => ptr::without_provenance_mut(usize::MAX),
            _ => self.memory_for(desc),
        };
        // The memory of the system has no cap, so large tensors are not asked of it.
        let is_large = desc.to_core().is_ok_and(|core| {
            core.memory_size() > MOST_BYTES || core.span().is_some_and(|span| span > MOST_BYTES)
        });
        let handle = if is_large { ptr::null_mut() } else { handle };
        made(&mut self.random, |to| call!(sterna_tensor_create(to, Some(desc), engine, handle)))
    }

    fn execute(&mut self) {
        if self.compiled.is_empty() {
            return;
        }
        let compiled = self.random.below(self.compiled.len());
        if errs(&mut self.random, 16) {
            BLOCKS_LEFT.store(self.random.below(3), Ordering::Relaxed);
        }
        if errs(&mut self.random, 8) {
            BLOCKS_OFF.store(self.random.pick(&[0, 1, 2, 4, 8, 16, 32]), Ordering::Relaxed);
        }
        let own = self.compiled[compiled].engine;
        let engine = match self.engines.contains(&own) && !errs(&mut self.random, 16) {
            true => own,
            false => engine_of(&mut self.random, &self.engines),
        };
        let ids = self.compiled[compiled].ports.clone();
        let tensors = ids.map(|ids| {
            let make = |id: usize| {
                let handle = Some(&*self.compiled[compiled].handle);
                let desc = made(&mut self.random, |to| {
                    call!(sterna_compiled_partition_query_logical_tensor(handle, id, to))
                })?;
                let desc = if errs(&mut self.random, 32) { self.mention(F32)? } else { desc };
                self.make_tensor(&desc, engine)
            };
            ids.into_iter().map(make).collect::<Vec<Option<Box<Tensor>>>>()
        });
        let handle = Some(&*self.compiled[compiled].handle);
        let scratch_desc = made(&mut self.random, |to| {
            call!(sterna_compiled_partition_get_scratchpad_logical_tensor(handle, to))
        });
        let scratchpad = scratch_desc.and_then(|desc| self.make_tensor(&desc, engine));
        let stream = self.stream_of(engine);
        let lists = tensors.each_ref().map(|tensors| {
            let mut list: Vec<Option<&Tensor>> = tensors.iter().map(Option::as_deref).collect();
            match self.random.below(64) {
                63 => drop(list.pop()),
                62 => list.reverse(),
                61 => list.extend(lend(&mut self.random, &self.tensors).map(|tensor| Some(&**tensor))),
                60 => list.extend(tensors.first().map(Option::as_deref)),
                _ => {}
            }
            list
        });
        let [(ins, in_num), (outs, out_num)] = lists.each_ref().map(|list| array(&mut self.random, list));
        let handle = Some(&*self.compiled[compiled].handle);
        let status = match self.random.below(3) {
            0 => {
                let scratchpad = scratchpad.as_deref();
                call!(sterna_compiled_partition_execute_with_scratchpad(
                    handle,
                    stream.as_deref(),
                    in_num,
                    ins,
                    out_num,
                    outs,
                    scratchpad
                ))
            }
            _ => call!(sterna_compiled_partition_execute(
                handle,
                stream.as_deref(),
                in_num,
                ins,
                out_num,
                outs
            )),
        };
        ok(status);
        BLOCKS_LEFT.store(usize::MAX, Ordering::Relaxed);
        assert!(ok(call!(sterna_stream_destroy(stream))));
        for tensor in tensors.into_iter().flatten().flatten().chain(scratchpad) {
            assert!(ok(call!(sterna_tensor_destroy(Some(tensor)))));
        }
    }

    /// A stream of an engine, or of any.
    fn stream_of(&mut self, engine: *mut Engine) -> Option<Box<Stream>> {
        let engine =
            if errs(&mut self.random, 32) { engine_of(&mut self.random, &self.engines) } else { engine };
        made(&mut self.random, |to| call!(sterna_stream_create(to, engine, 1)))
    }

    fn tensor(&mut self) {
        let good = self.random.pick(&[F32, BOOLEAN]);
        let desc = if errs(&mut self.random, 2) {
            lend(&mut self.random, &self.descs).copied()
        } else {
            self.mention(good)
        };
        let engine = engine_of(&mut self.random, &self.engines);
        let made_here = desc.and_then(|desc| self.make_tensor(&desc, engine));
        if let Some(old) = keep(&mut self.random, &mut self.tensors, made_here) {
            assert!(ok(call!(sterna_tensor_destroy(Some(old)))));
        }
        let null = (ptr::null_mut(), None);
        ok(call!(sterna_tensor_create(null.1, desc.as_ref(), engine, null.0)));
        let tensor = lend(&mut self.random, &self.tensors).map(|tensor| &**tensor);
        made(&mut self.random, |to| call!(sterna_tensor_get_data_handle(tensor, to)));
        made(&mut self.random, |to| call!(sterna_tensor_get_engine(tensor, to)));
        let described = made(&mut self.random, |to| call!(sterna_tensor_get_logical_tensor(tensor, to)));
        if let Some(desc) = described {
            // Other memory for a tensor of this description, and now and then its own.
            let is_small = desc.to_core().is_ok_and(|core| core.memory_size() <= MOST_BYTES / 16);
            let memory = match is_small && errs(&mut self.random, 4) {
                true => ptr::without_provenance_mut(usize::MAX),
                false => self.memory_for(&desc),
            };
            let of_it = |tensor: &&mut Box<Tensor>| {
                sterna_capi::logical_tensor::LogicalTensor::from_core(tensor.desc()).to_core().ok()
                    == desc.to_core().ok()
            };
            let tensor = self.tensors.iter_mut().find(of_it).map(|tensor| &mut **tensor);
            ok(call!(sterna_tensor_set_data_handle(tensor, memory)));
        }
    }

    fn json(&mut self) {
        let graph = lend(&mut self.random, &self.graphs).map(|graph| &**graph);
        let mut length = MaybeUninit::uninit();
        let to_length = if errs(&mut self.random, 4) { None } else { Some(&mut length) };
        let Some(text) = made(&mut self.random, |to| call!(sterna_graph_to_json(graph, to, to_length)))
        else {
            return;
        };
        let mut json = take_text(text).into_bytes();
        if errs(&mut self.random, 4) && !json.is_empty() {
            let at = self.random.below(json.len());
            json[at] = self.random.below(256) as u8;
        }
        let (at, len) = array(&mut self.random, &json);
        let read = made(&mut self.random, |to| call!(sterna_graph_from_json(to, at.cast(), len)));
        let notes = made(&mut self.random, |to| call!(sterna_graph_get_json_notes(read.as_deref(), to)));
        if let Some(notes) = notes {
            take_text(notes);
        }
        if let Some(old) = keep(&mut self.random, &mut self.graphs, read) {
            assert!(ok(call!(sterna_graph_destroy(Some(old)))));
        }
    }

    fn settings(&mut self) {
        let (flag, size) = (code(&mut self.random, 1), self.random.pick(&[0, 1, usize::MAX]));
        let kind = code(&mut self.random, CPU);
        ok(call!(sterna_constant_tensor_cache_set(flag)));
        made(&mut self.random, |to| call!(sterna_constant_tensor_cache_get(to)));
        ok(call!(sterna_constant_tensor_cache_set_capacity(kind, size)));
        made(&mut self.random, |to| call!(sterna_constant_tensor_cache_get_capacity(kind, to)));
        let capacity = code(&mut self.random, 2);
        ok(call!(sterna_compiled_partition_cache_set_capacity(capacity)));
        made(&mut self.random, |to| call!(sterna_compiled_partition_cache_get_capacity(to)));
        ok(call!(sterna_fpmath_mode_set_default(code(&mut self.random, 0))));
        made(&mut self.random, |to| call!(sterna_fpmath_mode_get_default(to)));
        ok(call!(sterna_cpu_isa_set_max(code(&mut self.random, 0x7))));
        // What is on writes files, or lines, on each call.
        let off = code(&mut self.random, 0);
        if !(1..=3).contains(&off) {
            ok(call!(sterna_verbose_set(off)));
            ok(call!(sterna_dump_mode_set(off)));
        }
    }

    /// Names and sizes of numbers.
    fn numbers(&mut self) {
        let code = code(&mut self.random, F32);
        let names = [
            call!(sterna_data_type_string(code)),
            call!(sterna_op_kind_string(code)),
            call!(sterna_level_string(code)),
            call!(sterna_status_string(code)),
            call!(sterna_version_string()),
        ];
        names.into_iter().for_each(|name| drop(text_at(name)));
        made(&mut self.random, |to| call!(sterna_data_type_get_size(code, to)));
        assert!(!call!(sterna_version()).is_null());
        call!(sterna_cpu_isa_get_effective());
        ok(call!(sterna_string_destroy(ptr::null_mut())));
    }

    /// Destroys an object while others that were made of it live on.
    fn destroy(&mut self) {
        fn taken<T>(random: &mut Random, held: &mut Vec<T>) -> Option<T> {
            let is_none = held.is_empty() || errs(random, 8);
            (!is_none).then(|| held.swap_remove(random.below(held.len())))
        }
        let random = &mut self.random;
        let status = match random.below(7) {
            0 => {
                let engine = taken(random, &mut self.engines).unwrap_or(ptr::null_mut());
                call!(sterna_engine_destroy(engine))
            }
            1 => call!(sterna_stream_destroy(taken(random, &mut self.streams))),
            2 => call!(sterna_op_destroy(taken(random, &mut self.ops))),
            3 => call!(sterna_graph_destroy(taken(random, &mut self.graphs))),
            4 => call!(sterna_partition_destroy(taken(random, &mut self.partitions))),
            5 => {
                let compiled = taken(random, &mut self.compiled).map(|compiled| compiled.handle);
                call!(sterna_compiled_partition_destroy(compiled))
            }
            _ => call!(sterna_tensor_destroy(taken(random, &mut self.tensors))),
        };
        assert!(ok(status));
    }
}
