//! The state of one sequence: tensors that a run leaves for the next one.

use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

use super::links::{LinkedPorts, open_state};
use super::ports::index_of;
use crate::error::{Result, SessionFault};
use crate::execute::dyn_view::{AsDynView, DynView};
use crate::execute::engine::Engine;
use crate::execute::state_buffer::StateBuffer;
use crate::graph::logical_tensor::LogicalTensor;
use crate::graph::model::ModelPort;
use crate::types::shape::Dims;

/// The part that all states of a session have in common.
#[derive(Debug)]
pub(super) struct StateSpec {
    pub(super) engine: Engine,
    /// The inputs that are tensors of the state, in the order of the links.
    pub(super) ports: Vec<ModelPort>,
    pub(super) links: Vec<LinkedPorts>,
}

/// The state of one sequence of runs, such as the keys and values of the tokens so far. It belongs to the
/// [`Session`](crate::Session) that made it with [`new_state`](crate::Session::new_state); any number of
/// states of one session may be used at once, on any threads.
///
/// ```
/// use sterna::{DataType, Engine, GraphBuilder, Session, StateLink, TensorView};
/// let g = GraphBuilder::new();
/// let past = g.input("past", DataType::F32, &[None, Some(2)])?;
/// let x = g.input("x", DataType::F32, &[None, Some(2)])?;
/// let all = g.concat(&[past, x], 0)?;
/// g.output("present", all)?;
/// g.output("sum", g.reduce_sum(all, &[0])?)?;
/// let link = StateLink::new("past", "present");
/// let session = Session::builder(g.build()?).state(link).build(&Engine::new())?;
/// let mut state = session.new_state(&[])?;
/// session.run_with_state(&mut state, &[("x", &[[1.0f32, 2.0], [3.0, 4.0]])])?;
/// let mut other = state.fork()?;
/// let outputs = session.run_with_state(&mut state, &[("x", &[[5.0f32, 6.0]])])?;
/// assert_eq!(outputs["sum"].as_slice::<f32>()?, [9.0, 12.0]);
/// other.trim(1);
/// let outputs = session.run_with_state(&mut other, &[("x", &[[0.0f32, 1.0]])])?;
/// assert_eq!(outputs["sum"].as_slice::<f32>()?, [1.0, 3.0]);
/// assert_eq!((state.len(), other.len()), (3, 2));
/// # Ok::<(), sterna::Error>(())
/// ```
pub struct SessionState {
    spec: Arc<StateSpec>,
    /// The dims as far as they are known, but for those along the axes.
    dims: Vec<Vec<Option<i64>>>,
    /// The rows for which there is memory at first.
    rooms: Vec<usize>,
    /// One for each tensor of the state; empty until all dims are known.
    buffers: Vec<StateBuffer>,
}

// A run that panics leaves lengths as they were.
impl UnwindSafe for SessionState {}
impl RefUnwindSafe for SessionState {}

impl SessionState {
    /// A state with dims by name, as far as somebody says them.
    pub(super) fn new(spec: &Arc<StateSpec>, said: &[(&str, &[i64])]) -> Result<Self> {
        let ports = spec.ports.iter().map(|port| port.tensor.partial_dims().unwrap_or_default());
        let mut dims: Vec<Vec<Option<i64>>> = ports.collect();
        let mut rooms = vec![0; dims.len()];
        for &(name, given) in said {
            let index = index_of("state", &spec.ports, 0, name)?;
            check_dims(&spec.ports[index], &dims[index], given, spec.links[index].axis)?;
            if let Some(axis) = spec.links[index].axis {
                rooms[index] = given[axis] as usize;
            }
            dims[index] = given.iter().map(|&dim| Some(dim)).collect();
        }
        let mut state = Self { spec: spec.clone(), dims, rooms, buffers: Vec::new() };
        let are_known = state.first_open().is_none();
        if are_known {
            state.make()?;
        }
        Ok(state)
    }

    /// The number of rows along the axis: the tokens so far, or those of the window. That of the first link
    /// that grows; 0 if none does.
    #[must_use]
    pub fn len(&self) -> usize {
        self.buffers.iter().find(|buffer| buffer.axis().is_some()).map_or(0, StateBuffer::length)
    }

    /// True if there are no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of rows for which there is memory, of the first link that grows.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.buffers.iter().find(|buffer| buffer.axis().is_some()).map_or(0, StateBuffer::capacity)
    }

    /// Bytes of the memory of all tensors of the state.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.buffers.iter().map(StateBuffer::bytes).fold(0, usize::saturating_add)
    }

    /// Drops all rows, and makes tensors that do not grow zeros. Memory is kept.
    pub fn reset(&mut self) {
        self.buffers.iter_mut().for_each(StateBuffer::clear);
    }

    /// Drops the newest rows behind a length: a prefix that other sequences share, or tokens that were
    /// rejected. Tensors that do not grow stay as they are.
    pub fn trim(&mut self, len: usize) {
        self.buffers.iter_mut().for_each(|buffer| buffer.truncate(len));
    }

    /// A copy with memory of its own, for another sequence that starts alike.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory).
    pub fn fork(&self) -> Result<Self> {
        let buffers = self.buffers.iter().map(StateBuffer::copied).collect::<Result<_>>()?;
        Ok(Self { spec: self.spec.clone(), dims: self.dims.clone(), rooms: self.rooms.clone(), buffers })
    }

    /// The tensor of the state that is an input of the model, by the name of the input. It is a view with
    /// strides, since there is room behind its rows.
    ///
    /// # Errors
    ///
    /// [`SessionFault::UnknownName`]; [`SessionFault::OpenState`] before its dims are known.
    pub fn get(&self, name: &str) -> Result<DynView<'_>> {
        let index = index_of("state", &self.spec.ports, 0, name)?;
        match (self.buffers.get(index), self.first_open()) {
            (Some(buffer), _) => buffer.view(),
            (None, Some((index, axis))) => Err(open_state(&self.spec.ports[index], axis)),
            (None, None) => Err(open_state(&self.spec.ports[index], 0)),
        }
    }

    /// Sets a tensor of the state, by the name of the input: a prefix that was computed before. Of its dims,
    /// the one along the axis is free. All tensors of a state should get the same number of rows.
    ///
    /// ```
    /// # use sterna::{DataType, Engine, GraphBuilder, Session, StateLink, TensorView};
    /// # let g = GraphBuilder::new();
    /// # let past = g.input("past", DataType::F32, &[None, Some(2)])?;
    /// # let x = g.input("x", DataType::F32, &[None, Some(2)])?;
    /// # g.output("present", g.concat(&[past, x], 0)?)?;
    /// # let link = StateLink::new("past", "present");
    /// # let session = Session::builder(g.build()?).state(link).build(&Engine::new())?;
    /// let mut state = session.new_state(&[])?;
    /// state.set("past", &[[1.0f32, 2.0], [3.0, 4.0], [5.0, 6.0]])?;
    /// assert_eq!((state.len(), state.get("past")?.dims()), (3, &[3, 2][..]));
    /// # Ok::<(), sterna::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`SessionFault`] for a name, type or dims that are not those of the model, for more rows than the
    /// capacity, and for dims of other tensors of the state that nobody has said;
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory). The state is then as it was.
    pub fn set(&mut self, name: &str, value: &dyn AsDynView) -> Result<()> {
        let index = index_of("state", &self.spec.ports, 0, name)?;
        let spec = self.spec.clone();
        let (port, link, view) = (&spec.ports[index], &spec.links[index], value.as_dyn_view());
        let (expected, given) = (port.tensor.data_type(), view.data_type());
        if expected != given {
            return Err(SessionFault::Type { what: "state", name: name.to_owned(), expected, given }.into());
        }
        check_dims(port, &self.dims[index], view.dims(), link.axis)?;
        let desc = view.desc(0)?;
        let (needed, given) = (desc.span().unwrap_or(0), view.raw.length());
        if needed > given {
            return Err(SessionFault::TooShort { what: "state", name: name.to_owned(), needed, given }.into());
        }
        let rows = link.axis.map_or(1, |axis| view.dims()[axis] as usize);
        check_capacity(port, link, rows)?;
        self.know(&[(port, view.dims())])?;
        self.buffers[index].set(&view)?;
        if let Some(window) = link.window {
            self.buffers[index].keep_newest(window);
        }
        Ok(())
    }

    /// True if it is a state of what some sessions have in common.
    pub(super) fn is_of(&self, spec: &Arc<StateSpec>) -> bool {
        Arc::ptr_eq(&self.spec, spec)
    }

    /// The tensors.
    pub(super) fn tensors(&self) -> &[StateBuffer] {
        &self.buffers
    }

    /// The descriptions of the tensors before they are made; dims along the axes are open.
    pub(super) fn open_descs(&self) -> Result<Vec<LogicalTensor>> {
        let all = self.spec.ports.iter().zip(&self.spec.links).zip(&self.dims);
        let described = all.map(|((port, link), dims)| {
            let mut dims = dims.clone();
            link.axis.into_iter().for_each(|axis| dims[axis] = None);
            LogicalTensor::partial(port.tensor.id(), port.tensor.data_type(), &dims)
        });
        described.collect()
    }

    /// The descriptions of the tensors, by the ids of some ports.
    pub(super) fn descs(&self) -> Result<Vec<LogicalTensor>> {
        let pairs = self.buffers.iter().zip(&self.spec.ports);
        pairs.map(|(buffer, port)| buffer.desc(port.tensor.id())).collect()
    }

    /// Learns open dims from tensors whose dims have the same names, and makes the tensors of the state.
    ///
    /// # Errors
    ///
    /// [`SessionFault::OpenState`]; [`Error::OutOfMemory`](crate::Error::OutOfMemory).
    pub(super) fn know(&mut self, given: &[(&ModelPort, &[i64])]) -> Result<()> {
        if self.buffers.len() == self.spec.ports.len() {
            return Ok(());
        }
        let before = self.dims.clone();
        for (index, own) in self.spec.ports.iter().enumerate() {
            for axis in 0..self.dims[index].len() {
                let known = || given.iter().find_map(|(port, dims)| same_dim(own, axis, port, dims));
                self.dims[index][axis] = self.dims[index][axis].or_else(known);
            }
        }
        let made = match self.first_open() {
            Some((index, axis)) => Err(open_state(&self.spec.ports[index], axis)),
            None => self.make(),
        };
        if made.is_err() {
            self.dims = before;
        }
        made
    }

    /// Learns the dims of a tensor of the state.
    pub(super) fn learn(&mut self, index: usize, dims: &[Option<i64>]) {
        let own = self.dims[index].iter_mut().zip(dims);
        own.for_each(|(own, dim)| *own = own.or(*dim));
    }

    /// True if all tensors are made.
    pub(super) fn is_made(&self) -> bool {
        self.buffers.len() == self.spec.ports.len()
    }

    /// A dim that nobody has said: the place of the tensor and the axis.
    fn first_open(&self) -> Option<(usize, usize)> {
        let mut all = self.dims.iter().zip(&self.spec.links).enumerate();
        all.find_map(|(index, (dims, link))| {
            let mut open = dims.iter().enumerate().filter(|(axis, _)| link.axis != Some(*axis));
            open.find(|(_, dim)| dim.is_none()).map(|(axis, _)| (index, axis))
        })
    }

    fn make(&mut self) -> Result<()> {
        let all = self.spec.ports.iter().zip(&self.spec.links).zip(self.dims.iter().zip(&self.rooms));
        let made = all.map(|((port, link), (dims, &room))| {
            let dims: Dims = dims.iter().map(|dim| dim.unwrap_or(0)).collect();
            let capacity = link.first_capacity(room);
            StateBuffer::new(&self.spec.engine, port.tensor.data_type(), &dims, link.axis, capacity)
        });
        self.buffers = made.collect::<Result<_>>()?;
        Ok(())
    }

    /// Makes room for the tensors behind a run, each with whether rows are added to it; true if strides have
    /// changed with that.
    ///
    /// # Errors
    ///
    /// [`SessionFault::Dims`]; [`SessionFault::Capacity`];
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory). The rows are what they were.
    pub(super) fn reserve<'a>(
        &mut self,
        presents: impl Iterator<Item = (&'a LogicalTensor, bool)> + Clone,
    ) -> Result<bool> {
        let rows = |link: &LinkedPorts, present: &LogicalTensor| {
            link.axis.and_then(|axis| usize::try_from(*present.dims()?.get(axis)?).ok())
        };
        let all = self.spec.ports.iter().zip(&self.spec.links).zip(&self.buffers);
        for (((port, link), buffer), (present, _)) in all.zip(presents.clone()) {
            if !buffer.takes(present) {
                let expected = port.tensor.partial_dims().unwrap_or_default();
                let (name, given) = (port.name().to_owned(), present.dims().unwrap_or_default().to_vec());
                return Err(SessionFault::Dims { what: "state", name, expected, given }.into());
            }
            check_capacity(port, link, rows(link, present).unwrap_or(0))?;
        }
        let mut has_grown = false;
        let all = self.spec.links.iter().zip(&mut self.buffers).zip(presents);
        for ((link, buffer), (present, _)) in all.filter(|(_, (_, is_added))| *is_added) {
            let before = buffer.capacity();
            buffer.reserve(rows(link, present).unwrap_or(0))?;
            has_grown |= buffer.capacity() != before;
        }
        Ok(has_grown)
    }

    /// Runs on the tensors, and drops the rows that have left the windows.
    pub(super) fn run<T>(&mut self, run: impl FnOnce(&mut [StateBuffer]) -> Result<T>) -> Result<T> {
        let result = run(&mut self.buffers)?;
        for (buffer, link) in self.buffers.iter_mut().zip(&self.spec.links) {
            if let Some(window) = link.window {
                buffer.keep_newest(window);
            }
        }
        Ok(result)
    }

    /// Lets a state whose first run fails be one whose dims nobody has said.
    pub(super) fn attempt<T>(&mut self, run: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let before = (!self.is_made()).then(|| self.dims.clone());
        let result = run(self);
        if let (Err(_), Some(before)) = (&result, before) {
            self.dims = before;
            self.buffers.clear();
        }
        result
    }
}

impl fmt::Debug for SessionState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("SessionState");
        shown.field("len", &self.len()).field("capacity", &self.capacity()).finish_non_exhaustive()
    }
}

/// The dim of a tensor whose name is that of a dim of a port.
fn same_dim(own: &ModelPort, axis: usize, port: &ModelPort, dims: &[i64]) -> Option<i64> {
    let name = own.dim_names.get(axis)?.as_ref()?;
    let place = port.dim_names.iter().position(|other| other.as_ref() == Some(name))?;
    dims.get(place).copied()
}

/// Checks that dims but for the one along an axis are those that are known.
fn check_dims(port: &ModelPort, known: &[Option<i64>], given: &[i64], axis: Option<usize>) -> Result<()> {
    let fits = |(index, (known, given)): (usize, (&Option<i64>, &i64))| {
        *given >= 0 && (axis == Some(index) || known.is_none_or(|known| known == *given))
    };
    match known.len() == given.len() && known.iter().zip(given).enumerate().all(fits) {
        true => Ok(()),
        false => {
            let mut expected = known.to_vec();
            axis.into_iter().for_each(|axis| expected[axis] = None);
            let (name, given) = (port.name().to_owned(), given.to_vec());
            Err(SessionFault::Dims { what: "state", name, expected, given }.into())
        }
    }
}

/// Checks that rows are no more than the capacity of a link.
fn check_capacity(port: &ModelPort, link: &LinkedPorts, needed: usize) -> Result<()> {
    match link.capacity {
        Some(capacity) if needed > capacity => {
            Err(SessionFault::Capacity { name: port.name().to_owned(), capacity, needed }.into())
        }
        _ => Ok(()),
    }
}
