//! The copies that compiled partitions keep of constant inputs, such as the weights of a product, packed
//! once.
//!
//! A phase that reads inputs of property constant alone writes the same in every execution. So the first
//! execution of a compiled partition lets these phases write to memory that the compiled partition keeps, and
//! later executions skip them. The plan has no part in that, because equal partitions share it. An execution
//! that finds nothing kept, because another one is at it, the capacity is used up, or there is no memory,
//! runs the phases for itself alone; the bits are the same.

use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::bindings::Bindings;
use super::constant_budget::Share;
use super::engine::{Allocation, Engine};
use crate::plan::{Phase, Plan};

/// The buffers that the phases wrote which read constant inputs alone.
pub(super) struct Prepared {
    /// The addresses of these inputs.
    inputs: SmallVec<[usize; 2]>,
    memory: Allocation,
    _share: Share,
}

impl Prepared {
    fn new(plan: &Plan, engine: &Engine, inputs: SmallVec<[usize; 2]>) -> Option<Self> {
        let bytes =
            plan.preparation_offsets().last().map_or(0, |(_, start, bytes)| start.saturating_add(bytes));
        let share = engine.constant_budget().share(bytes)?;
        Some(Self { inputs, memory: engine.allocate(bytes).ok()?, _share: share })
    }

    /// Puts its memory in the place of the buffers.
    pub(super) fn bind(&self, plan: &Plan, bindings: &mut Bindings) {
        for (buffer, start, _) in plan.preparation_offsets() {
            bindings.buffers[buffer] = self.memory.as_ptr().wrapping_add(start);
        }
    }
}

/// The copies of constant inputs of one compiled partition.
#[derive(Default)]
pub(super) struct PreparedConstants {
    state: Mutex<PreparedState>,
    shared: OnceLock<SharedPart>,
}

/// The part of a compiled partition in copies that several share.
struct SharedPart {
    of: Arc<SharedPreparations>,
    work: Arc<PreparationWork>,
}

/// The work that writes a copy: on equal addresses it writes equal copies.
#[derive(PartialEq, Eq, Hash)]
struct PreparationWork {
    /// The phases, and the bytes of each buffer, as text.
    phases: String,
    /// The constants of the plan, such as scales, which the phases may read.
    constants: Vec<[u8; 8]>,
}

/// The work that writes a copy, and the addresses of its inputs.
type PreparationKey = (Arc<PreparationWork>, SmallVec<[usize; 2]>);

/// Copies that compiled partitions of one graph share, which may be compiled for many shapes: each is found
/// by the work that writes it and by the addresses of its inputs, and lives as long as one of them needs it.
#[derive(Default)]
pub(crate) struct SharedPreparations {
    copies: Mutex<FxHashMap<PreparationKey, Weak<Prepared>>>,
}

// Nothing that can panic runs under the lock.
impl UnwindSafe for SharedPreparations {}
impl RefUnwindSafe for SharedPreparations {}

impl SharedPart {
    /// The copy of some inputs, if another compiled partition has made it.
    fn find(&self, inputs: impl Iterator<Item = usize>) -> Option<Arc<Prepared>> {
        self.of.copies.lock().get(&(self.work.clone(), inputs.collect()))?.upgrade()
    }

    /// Lets others find a copy that was written.
    fn tell(&self, prepared: &Arc<Prepared>) {
        let mut copies = self.of.copies.lock();
        copies.retain(|_, copy| copy.strong_count() > 0);
        copies.insert((self.work.clone(), prepared.inputs.clone()), Arc::downgrade(prepared));
    }
}

#[derive(Default)]
enum PreparedState {
    #[default]
    Nothing,
    /// An execution is about to write it.
    Making,
    Ready(Arc<Prepared>),
}

// Nothing that can panic runs under the lock; an execution that panics leaves nothing kept.
impl UnwindSafe for PreparedConstants {}
impl RefUnwindSafe for PreparedConstants {}

/// How an execution comes by what phases make of constant inputs.
pub(super) enum PreparationRole<'a> {
    /// It runs the phases for itself alone.
    Own,
    /// It reads what an earlier execution has written.
    Ready(Arc<Prepared>),
    /// It writes what later executions read.
    Making(Making<'a>),
}

/// The right to write what later executions read. If it is dropped before its execution has ended, nothing is
/// kept.
pub(super) struct Making<'a> {
    of: &'a PreparedConstants,
    prepared: Option<Arc<Prepared>>,
    is_written: bool,
}

impl Making<'_> {
    pub(super) fn bind(&self, plan: &Plan, bindings: &mut Bindings) {
        self.prepared.iter().for_each(|prepared| prepared.bind(plan, bindings));
    }

    /// Lets later executions read what was written.
    pub(super) fn finish(mut self) {
        self.is_written = true;
    }
}

impl Drop for Making<'_> {
    fn drop(&mut self) {
        let prepared = self.prepared.take().filter(|_| self.is_written);
        if let (Some(prepared), Some(shared)) = (&prepared, self.of.shared.get()) {
            shared.tell(prepared);
        }
        let next = prepared.map_or(PreparedState::Nothing, PreparedState::Ready);
        *self.of.state.lock() = next;
    }
}

impl PreparedConstants {
    /// Shares copies with other compiled partitions, from the first one on.
    pub(super) fn share(&self, plan: &Plan, of: &Arc<SharedPreparations>) {
        let phases: Vec<&Phase> = plan.preparation.phases.iter().map(|&phase| &plan.phases[phase]).collect();
        let bytes: Vec<usize> = plan.preparation_offsets().map(|(_, _, bytes)| bytes).collect();
        let mut phases = format!("{phases:?} {bytes:?}");
        // Other plans may have other buffers before these.
        for (index, buffer) in plan.preparation.buffers.iter().enumerate() {
            phases = phases.replace(&format!("Buffer({buffer})"), &format!("Prepared({index})"));
        }
        let work = Arc::new(PreparationWork { phases, constants: plan.constants.clone() });
        // A second call has nothing to say.
        let _ = self.shared.set(SharedPart { of: of.clone(), work });
    }

    /// For an execution of a plan with some inputs.
    pub(super) fn take(&self, plan: &Plan, engine: &Engine, bindings: &Bindings) -> PreparationRole<'_> {
        let inputs = plan.preparation.inputs.iter().map(|&port| bindings.ports[port].addr());
        let is_within = engine.constant_budget().is_kept_within();
        let mut state = self.state.lock();
        match &*state {
            PreparedState::Making => return PreparationRole::Own,
            PreparedState::Ready(prepared)
                if is_within && inputs.clone().eq(prepared.inputs.iter().copied()) =>
            {
                return PreparationRole::Ready(prepared.clone());
            }
            PreparedState::Nothing | PreparedState::Ready(_) => {}
        }
        let found = self.shared.get().filter(|_| is_within).and_then(|shared| shared.find(inputs.clone()));
        if let Some(prepared) = found {
            *state = PreparedState::Ready(prepared.clone());
            return PreparationRole::Ready(prepared);
        }
        let before = std::mem::replace(&mut *state, PreparedState::Making);
        // The lock is released before the allocator runs, which is the caller's code.
        drop(state);
        let mut making = Making { of: self, prepared: None, is_written: false };
        // Memory that no other execution reads is written anew.
        let reused = match before {
            PreparedState::Ready(prepared) if is_within => Arc::into_inner(prepared),
            _ => None,
        };
        let prepared = match reused {
            Some(prepared) => Some(Prepared { inputs: inputs.collect(), ..prepared }),
            None => Prepared::new(plan, engine, inputs.collect()),
        };
        making.prepared = prepared.map(Arc::new);
        if making.prepared.is_some() { PreparationRole::Making(making) } else { PreparationRole::Own }
    }
}

impl std::fmt::Debug for PreparedConstants {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PreparedConstants").finish_non_exhaustive()
    }
}
