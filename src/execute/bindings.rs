//! The addresses with which one execution runs a plan.

use std::ptr::NonNull;

use smallvec::SmallVec;

use crate::plan::{Base, InPlacePorts};

/// Addresses of a plan's ports. Every port has been checked to be memory that fits the plan, and no output
/// overlaps an input that it is not in place of.
#[derive(Default)]
pub(super) struct Bindings {
    /// The address of each port, inputs first. Inputs are never written: steps write to destinations, which
    /// are outputs, internal buffers or scratch.
    pub(super) ports: SmallVec<[*mut u8; 8]>,
    /// The ports that do share one buffer.
    pub(super) in_place: SmallVec<[InPlacePorts; 2]>,
    /// The address of each internal buffer, aligned; all threads share them.
    pub(super) buffers: SmallVec<[*mut u8; 4]>,
    /// The plan's scratch, aligned, for as many threads as may run the plan.
    pub(super) scratch: Option<NonNull<u8>>,
}

impl Bindings {
    /// The address of a base, given the plan's constants; null for what only a driver knows.
    pub(super) fn address(&self, base: Base, constants: &[[u8; 8]]) -> *const u8 {
        match base {
            Base::Port(port) => self.ports[port].cast_const(),
            Base::Buffer(buffer) => self.buffers[buffer].cast_const(),
            Base::Constant(constant) => constants[constant..].as_ptr().cast(),
            Base::Index | Base::Driver(_) => std::ptr::null(),
        }
    }

    /// The scratch of a thread of a plan that needs `bytes` of it a thread.
    pub(super) fn scratch_of(&self, thread: usize, bytes: usize) -> *mut u8 {
        self.scratch.map_or(std::ptr::null_mut(), |scratch| scratch.as_ptr().wrapping_add(bytes * thread))
    }
}

// SAFETY: the addresses are those of tensors, which are `Sync`, and of memory that belongs to the execution;
// threads write to disjoint tiles of them, and each to its own part of the scratch.
unsafe impl Sync for Bindings {}
