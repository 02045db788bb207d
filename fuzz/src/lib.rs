//! Helpers of all targets: the helpers of the tests, engines, and memory that ends where its tensor does.

#[path = "../../tests/common/attention.rs"]
pub mod attention;
#[path = "../../tests/common/mod.rs"]
pub mod common;
pub mod import;
pub mod run;
pub mod session;

use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::{Arc, LazyLock};

use sterna::{
    Allocator, Engine, Error, Graph, GraphFault, Level, LogicalTensor, Op, OpKind, Partition,
    SystemAllocator, Tensor, TensorMut,
};

use self::common::Random;

/// The largest block that engines get, so that no run takes gigabytes.
pub const MOST_BYTES: usize = 1 << 20;

/// The system's memory, in blocks up to [`MOST_BYTES`].
struct Capped;

// SAFETY: the blocks are those of `SystemAllocator`.
unsafe impl Allocator for Capped {
    fn allocate(&self, size: usize, align: usize) -> Option<NonNull<u8>> {
        if size > MOST_BYTES { None } else { SystemAllocator.allocate(size, align) }
    }

    unsafe fn deallocate(&self, block: NonNull<u8>, size: usize, align: usize) {
        // SAFETY: as the caller promises, the block came from there with these numbers.
        unsafe { SystemAllocator.deallocate(block, size, align) };
    }
}

/// An engine of one thread for each level that the machine runs.
pub static ENGINES: LazyLock<Vec<Engine>> = LazyLock::new(|| {
    let engine = |level| Engine::builder().max_level(level).threads(1).allocator(Arc::new(Capped)).build();
    Level::all_available().map(engine).collect()
});

/// An engine of any level.
pub fn one_of_the_engines(random: &mut Random) -> &'static Engine {
    &ENGINES[random.below(ENGINES.len())]
}

/// Memory of a tensor, from its first to its last element and no byte further, aligned to nothing: whoever
/// reads or writes behind it is seen by AddressSanitizer.
pub struct Tight {
    bytes: Box<[u8]>,
    start: usize,
}

impl Tight {
    /// Memory for a tensor of known dims and strides, `misaligned` bytes off the alignment of the allocator.
    pub fn new(desc: &LogicalTensor, misaligned: usize) -> Self {
        let size = desc.span().unwrap_or(0) * desc.data_type().size().unwrap_or(0);
        Self { bytes: vec![0; misaligned + size].into(), start: misaligned }
    }

    pub fn bytes(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..]
    }

    /// The tensor, to be read. `desc` is the one that the memory was made for.
    pub fn tensor<'a>(&'a self, desc: &'a LogicalTensor, engine: &'a Engine) -> Tensor<'a> {
        // SAFETY: the memory has the size of the tensor, is initialised and borrowed.
        unsafe { Tensor::from_raw_parts(desc, engine, self.bytes[self.start..].as_ptr()) }
    }

    /// The tensor, to be written. `desc` is the one that the memory was made for.
    pub fn tensor_mut<'a>(&'a mut self, desc: &'a LogicalTensor, engine: &'a Engine) -> TensorMut<'a> {
        // SAFETY: the memory has the size of the tensor and is uniquely borrowed.
        unsafe { TensorMut::from_raw_parts(desc, engine, self.bytes().as_mut_ptr()) }
    }
}

/// An op of each kind that a graph takes.
pub static PLAIN_OPS: LazyLock<HashMap<OpKind, Op>> =
    LazyLock::new(|| OpKind::ALL.iter().map(|&kind| (kind, common::plain_op(kind))).collect());

/// The kinds that partitions run on the tensors of their plain op.
static RUNNING: LazyLock<Vec<OpKind>> = LazyLock::new(|| {
    let runs = |op: &Op| Partition::from_op(op.clone()).is_ok_and(|partition| partition.is_supported());
    OpKind::ALL.iter().copied().filter(|kind| runs(&PLAIN_OPS[kind])).collect()
});

/// A kind of op, mostly one that runs.
pub fn some_kind(random: &mut Random) -> OpKind {
    if random.below(4) == 0 { random.pick(OpKind::ALL) } else { random.pick(&RUNNING) }
}

/// A graph that is written and read back is equal, save for what the format cannot say: that a tensor of
/// which no dim is known has rank 1. Where ops describe a tensor in different ways, what is read is another
/// graph, which is read back as it is.
pub fn check_json(graph: &Graph) {
    let written = graph.to_json();
    let (again, notes) =
        Graph::from_json_with_notes(&written).unwrap_or_else(|error| panic!("{error} in {written}"));
    if let Err(Error::Graph(GraphFault::MentionsDiffer { .. })) = graph.clone().finalize() {
        let settled = again.to_json();
        let (last, notes) = Graph::from_json_with_notes(&settled).expect("it was just written");
        assert!(notes.is_empty(), "{notes:?} in {settled}");
        return assert_eq!(last.to_json(), settled);
    }
    assert!(notes.is_empty(), "{notes:?} in {written}");
    assert_eq!(again.to_json(), written);
    let is_lost = |tensor: &LogicalTensor| tensor.partial_dims() == Some(vec![None]);
    let mut tensors = graph.ops().iter().flat_map(|op| op.inputs().iter().chain(op.outputs()));
    assert!(&again == graph || tensors.any(is_lost), "{written}");
}

/// Writes a line on each call of a sequence, for whoever reads a crash; off unless `STERNA_FUZZ_TRACE` is
/// set.
pub fn trace(call: &str) {
    static IS_ON: LazyLock<bool> = LazyLock::new(|| std::env::var_os("STERNA_FUZZ_TRACE").is_some());
    if *IS_ON {
        eprintln!("{call}");
    }
}
