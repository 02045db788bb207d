//! The memory of a tensor that an execution leaves for the next one.
#![allow(unsafe_code, reason = "rows of a tensor are moved within memory that was checked before")]

use super::dyn_view::DynView;
use super::engine::{Allocation, Engine};
use crate::error::{Result, TensorFault};
use crate::graph::logical_tensor::LogicalTensor;
use crate::types::dtype::DataType;
use crate::types::id::TensorId;
use crate::types::shape::{self, Dims};

/// The least number of rows for which memory is allocated.
const MIN_ROWS: usize = 64;

/// A tensor in memory of its own, which has room behind its last row: its strides depend on the room, not on
/// the length. A row is all elements of one index along the axis; without an axis, the tensor is one row.
pub(crate) struct StateBuffer {
    engine: Engine,
    data_type: DataType,
    /// The dims; the one along the axis is the length.
    dims: Dims,
    axis: Option<usize>,
    memory: Allocation,
    /// The rows for which there is memory.
    capacity: usize,
    /// The first row; those before it were dropped.
    start: usize,
    /// Memory for a result that takes the place of the tensor.
    next: Option<Allocation>,
}

impl StateBuffer {
    /// An empty tensor with room for some rows, or, without an axis, one of zeros. Types have whole bytes.
    ///
    /// # Errors
    ///
    /// [`TensorFault::NoElements`] for other types; sizes beyond the address space;
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory).
    pub(crate) fn new(
        engine: &Engine,
        data_type: DataType,
        dims: &[i64],
        axis: Option<usize>,
        capacity: usize,
    ) -> Result<Self> {
        let id = TensorId::new(0);
        if data_type.size().is_none() {
            return Err(crate::error::Error::Tensor { id, fault: TensorFault::NoElements(data_type) });
        }
        let mut dims: Dims = dims.into();
        let whole = LogicalTensor::strided(id, data_type, &with_rows(&dims, axis, capacity))?;
        let memory = engine.allocate(whole.memory_size())?;
        match axis {
            Some(axis) => dims[axis] = 0,
            // SAFETY: the allocation has this many bytes.
            None => unsafe { memory.as_ptr().write_bytes(0, memory.size()) },
        }
        let (engine, start, next) = (engine.clone(), 0, None);
        Ok(Self { engine, data_type, dims, axis, memory, capacity, start, next })
    }

    /// The rows along the axis.
    pub(crate) fn length(&self) -> usize {
        self.axis.map_or(1, |axis| self.dims[axis] as usize)
    }

    /// The dims.
    pub(crate) fn dims(&self) -> &[i64] {
        &self.dims
    }

    /// The rows for which there is memory.
    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// The axis along which it grows.
    pub(crate) fn axis(&self) -> Option<usize> {
        self.axis
    }

    /// Bytes of its memory.
    pub(crate) fn bytes(&self) -> usize {
        self.memory.size().saturating_add(self.next.as_ref().map_or(0, Allocation::size))
    }

    /// The description of the tensor.
    ///
    /// # Errors
    ///
    /// None: the dims and strides were checked when the memory was made.
    pub(crate) fn desc(&self, id: TensorId) -> Result<LogicalTensor> {
        LogicalTensor::with_strides(id, self.data_type, &self.dims, &self.strides())
    }

    /// The strides of the tensor, of any length.
    pub(crate) fn strides(&self) -> Dims {
        let whole = with_rows(&self.dims, self.axis, self.capacity.max(1));
        shape::row_major_strides(&whole).unwrap_or_default()
    }

    /// The tensor.
    pub(crate) fn view(&self) -> Result<DynView<'_>> {
        let desc = self.desc(TensorId::new(0))?;
        // SAFETY: the rows were written, and the borrow keeps writers away.
        Ok(unsafe { DynView::of_desc(&desc, self.address()) })
    }

    /// The first element.
    pub(super) fn address(&self) -> *mut u8 {
        self.memory.as_ptr().wrapping_add(self.start * self.row_bytes())
    }

    /// Bytes of the elements behind the axis.
    fn row_bytes(&self) -> usize {
        let inner = self.axis.map_or(0, |axis| axis + 1);
        let count: i64 = self.dims[inner..].iter().product();
        count as usize * self.data_type.size().unwrap_or(0)
    }

    /// The number of blocks of rows: the elements before the axis.
    fn blocks(&self) -> usize {
        self.dims[..self.axis.unwrap_or(0)].iter().product::<i64>() as usize
    }

    /// Makes room for so many rows in all, of which those that are there are kept. Rows move to the front if
    /// that makes enough room; else memory grows, at least to the double.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new); the tensor is as it was.
    pub(crate) fn reserve(&mut self, rows: usize) -> Result<()> {
        if self.axis.is_none() || self.start.saturating_add(rows) <= self.capacity {
            return Ok(());
        }
        if rows <= self.capacity {
            self.move_to_front();
            return Ok(());
        }
        let least = rows.checked_next_power_of_two().unwrap_or(rows);
        let capacity = least.max(self.capacity.saturating_mul(2)).max(MIN_ROWS);
        let mut grown = Self::new(&self.engine, self.data_type, &self.dims, self.axis, capacity)?;
        grown.take_rows(self);
        *self = grown;
        Ok(())
    }

    fn move_to_front(&mut self) {
        let (row, length) = (self.row_bytes(), self.length());
        for block in 0..self.blocks() {
            let first = self.memory.as_ptr().wrapping_add(block * self.capacity * row);
            // SAFETY: both ranges lie within the block, which belongs to this tensor.
            unsafe { std::ptr::copy(first.wrapping_add(self.start * row), first, length * row) };
        }
        self.start = 0;
    }

    /// Copies the rows of another tensor, for which there is room.
    fn take_rows(&mut self, other: &Self) {
        let (row, length) = (self.row_bytes(), other.length());
        for block in 0..self.blocks() {
            let from = other.memory.as_ptr().wrapping_add((block * other.capacity + other.start) * row);
            let to = self.memory.as_ptr().wrapping_add(block * self.capacity * row);
            // SAFETY: the rows lie within memory of either tensor, which are two.
            unsafe { std::ptr::copy_nonoverlapping(from, to, length * row) };
        }
        self.dims.clone_from(&other.dims);
        self.start = 0;
    }

    /// A copy with memory of its own.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory).
    pub(crate) fn copied(&self) -> Result<Self> {
        let mut copy = Self::new(&self.engine, self.data_type, &self.dims, self.axis, self.capacity)?;
        copy.take_rows(self);
        Ok(copy)
    }

    /// Drops the newest rows behind a length.
    pub(crate) fn truncate(&mut self, length: usize) {
        if let Some(axis) = self.axis {
            self.dims[axis] = self.dims[axis].min(length as i64);
        }
    }

    /// Drops the oldest rows, so that at most so many are left.
    pub(crate) fn keep_newest(&mut self, length: usize) {
        let Some(axis) = self.axis else { return };
        let dropped = self.length().saturating_sub(length);
        self.start += dropped;
        self.dims[axis] -= dropped as i64;
    }

    /// Empties the tensor; without an axis, it becomes zeros.
    pub(crate) fn clear(&mut self) {
        match self.axis {
            Some(axis) => (self.dims[axis], self.start) = (0, 0),
            // SAFETY: the allocation has this many bytes.
            None => unsafe { self.memory.as_ptr().write_bytes(0, self.memory.size()) },
        }
    }

    /// Takes the elements of a view, whose dims but for the one along the axis are those of the tensor.
    ///
    /// # Errors
    ///
    /// As [`reserve`](Self::reserve), and for dims and strides that no tensor has.
    pub(crate) fn set(&mut self, view: &DynView<'_>) -> Result<()> {
        let desc = view.desc(0)?;
        let Some((dims, from)) = desc.dims().zip(desc.strides()) else { return Ok(()) };
        if let Some(axis) = self.axis {
            // Rows that are there need not be kept, but are if memory fails.
            self.reserve(dims[axis] as usize)?;
            (self.dims[axis], self.start) = (dims[axis], 0);
        }
        if dims.contains(&0) || view.raw.address.is_null() {
            return Ok(());
        }
        let size = self.data_type.size().unwrap_or(0) as i64;
        let bytes = |strides: &[i64]| strides.iter().map(|stride| stride * size).collect::<Dims>();
        let (from, to) = (bytes(from), bytes(&self.strides()));
        // SAFETY: the caller of the view has promised its elements; those of the tensor were just reserved.
        unsafe { copy_elements(dims, view.raw.address, &from, self.memory.as_ptr(), &to, size as usize) };
        Ok(())
    }

    /// Memory for a result that takes the place of the tensor, of at least so many bytes.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory).
    pub(super) fn reserve_next(&mut self, bytes: usize) -> Result<*mut u8> {
        let next = match self.next.take().filter(|next| next.size() >= bytes) {
            Some(next) => next,
            None => self.engine.allocate(bytes)?,
        };
        Ok(self.next.insert(next).as_ptr())
    }

    /// Counts rows that were written behind the last one.
    pub(super) fn set_length(&mut self, length: usize) {
        if let Some(axis) = self.axis {
            self.dims[axis] = length as i64;
        }
    }

    /// Lets the result that was written take the place of the tensor.
    pub(super) fn replace(&mut self, desc: &LogicalTensor) {
        let Some((next, dims)) = self.next.take().zip(desc.dims()) else { return };
        self.next = Some(std::mem::replace(&mut self.memory, next));
        self.dims = dims.into();
        (self.capacity, self.start) = (self.length(), 0);
    }

    /// True if there is room for as many rows as a tensor has.
    pub(super) fn has_room(&self, desc: &LogicalTensor) -> bool {
        let rows = self.axis.and_then(|axis| desc.dims()?.get(axis).copied());
        let end = rows.and_then(|rows| self.start.checked_add(usize::try_from(rows).ok()?));
        end.is_some_and(|end| end <= self.capacity) && desc.strides() == Some(&self.strides())
    }

    /// True if a result of some dims can take the place of the tensor.
    pub(crate) fn takes(&self, desc: &LogicalTensor) -> bool {
        let Some(dims) = desc.dims().filter(|dims| dims.len() == self.dims.len()) else { return false };
        let mut pairs = dims.iter().zip(&self.dims).enumerate();
        self.data_type == desc.data_type() && pairs.all(|(axis, (a, b))| a == b || self.axis == Some(axis))
    }
}

/// Dims with a number of rows along the axis.
fn with_rows(dims: &[i64], axis: Option<usize>, rows: usize) -> Dims {
    let mut dims: Dims = dims.into();
    if let Some(axis) = axis {
        dims[axis] = i64::try_from(rows).unwrap_or(i64::MAX);
    }
    dims
}

/// Copies elements from one layout to another; strides are in bytes.
///
/// # Safety
///
/// Both addresses are memory of all elements that dims and strides name, and do not overlap.
unsafe fn copy_elements(
    dims: &[i64],
    from: *const u8,
    from_strides: &[i64],
    to: *mut u8,
    to_strides: &[i64],
    size: usize,
) {
    let ([dim, dims @ ..], [from_stride, from_strides @ ..], [to_stride, to_strides @ ..]) =
        (dims, from_strides, to_strides)
    else {
        // SAFETY: as the caller promises.
        return unsafe { std::ptr::copy_nonoverlapping(from, to, size) };
    };
    if dims.is_empty() && (*from_stride, *to_stride) == (size as i64, size as i64) {
        // SAFETY: as the caller promises, for a dense row.
        return unsafe { std::ptr::copy_nonoverlapping(from, to, *dim as usize * size) };
    }
    for index in 0..*dim {
        let (from, to) = (
            from.wrapping_offset((index * from_stride) as isize),
            to.wrapping_offset((index * to_stride) as isize),
        );
        // SAFETY: as the caller promises.
        unsafe { copy_elements(dims, from, from_strides, to, to_strides, size) };
    }
}

impl std::fmt::Debug for StateBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { dims, capacity, .. } = self;
        f.debug_struct("StateBuffer").field("dims", dims).field("capacity", capacity).finish_non_exhaustive()
    }
}
