//! The description of a tensor: everything but its memory.

use crate::error::{Error, Result, TensorFault};
use crate::types::dtype::DataType;
use crate::types::id::TensorId;
use crate::types::kind::Property;
use crate::types::shape::{self, Braced, Dims, MAX_RANK, UNKNOWN_DIM};

/// The arrangement of a tensor's elements in memory.
///
/// ```
/// use sterna::{DataType, Layout, LogicalTensor};
/// let tensor = LogicalTensor::strided(0, DataType::F32, &[2, 3])?;
/// assert_eq!(tensor.layout(), &Layout::Strided([3, 1].into()));
/// assert_eq!(LogicalTensor::any(0, DataType::F32, &[2, 3])?.layout().name(), "any");
/// # Ok::<(), sterna::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Layout {
    /// Nothing is said.
    Undef,
    /// Any layout: an output gets a concrete one when its partition is compiled.
    Any,
    /// One stride for each dim. Empty if the rank is unknown.
    Strided(PartialStrides),
    /// A layout that is known only to the library that made it; Sterna makes none.
    Opaque(usize),
}

impl Layout {
    /// The code of `dnnl_graph_layout_type_t`.
    #[must_use]
    pub const fn code(&self) -> u32 {
        match self {
            Self::Undef => 0,
            Self::Any => 1,
            Self::Strided(_) => 2,
            Self::Opaque(_) => 3,
        }
    }

    /// The name that JSON uses.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Undef => "undef",
            Self::Any => "any",
            Self::Strided(_) => "strided",
            Self::Opaque(_) => "opaque",
        }
    }
}

/// The strides of a layout, in elements, each of which is known or not.
///
/// ```
/// use sterna::{DataType, Layout, LogicalTensor, PartialStrides};
/// let strides: PartialStrides = [None, Some(1)].into_iter().collect();
/// assert_eq!((strides.known(), strides.iter().len()), (None, 2));
/// let layout = Layout::Strided(strides);
/// let rows = LogicalTensor::with_layout(0, DataType::F32, Some(&[None, Some(64)]), layout)?;
/// assert_eq!((rows.rank(), rows.strides()), (Some(2), None));
/// # Ok::<(), sterna::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PartialStrides(Dims);

impl PartialStrides {
    /// The strides, `None` for one that is unknown.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Option<i64>> {
        self.0.iter().map(|&stride| shape::known(stride))
    }

    /// The strides; `None` unless all are known.
    #[must_use]
    pub fn known(&self) -> Option<&[i64]> {
        shape::is_known(&self.0).then_some(&self.0)
    }

    /// The strides, [`UNKNOWN_DIM`] for one that is unknown.
    pub(crate) fn raw(&self) -> &[i64] {
        &self.0
    }

    /// As [`raw`](Self::raw) gives them.
    pub(crate) fn from_raw(strides: Dims) -> Self {
        Self(strides)
    }
}

/// Known strides.
impl From<&[i64]> for PartialStrides {
    fn from(strides: &[i64]) -> Self {
        strides.iter().map(|&stride| Some(stride)).collect()
    }
}

/// Known strides.
impl<const N: usize> From<[i64; N]> for PartialStrides {
    fn from(strides: [i64; N]) -> Self {
        strides[..].into()
    }
}

impl FromIterator<Option<i64>> for PartialStrides {
    fn from_iter<I: IntoIterator<Item = Option<i64>>>(strides: I) -> Self {
        Self(strides.into_iter().map(shape::or_unknown).collect())
    }
}

/// Id, type, dims, strides and property of a tensor; no memory.
///
/// Tensors of one id link ops. A tensor of rank 0 is a scalar. Known dims and strides have been checked: they
/// are not negative, and the memory that they span can be addressed.
///
/// ```
/// use sterna::{DataType, LogicalTensor};
/// let t = LogicalTensor::strided(0, DataType::F16, &[2, 3, 4])?;
/// assert_eq!(t.strides(), Some(&[12, 4, 1][..]));
/// assert_eq!(t.memory_size(), 48);
/// # Ok::<(), sterna::Error>(())
/// ```
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct LogicalTensor {
    id: TensorId,
    data_type: DataType,
    /// Empty if the rank is unknown. Not an `Option`, because optimised code may read the dims of a `None`
    /// before it tests for `None`, which memory checkers report.
    dims: Dims,
    has_rank: bool,
    layout: Layout,
    property: Property,
}

/// Copies dims and strides as a whole; cloning a `SmallVec` copies number by number.
impl Clone for LogicalTensor {
    fn clone(&self) -> Self {
        let layout = match &self.layout {
            Layout::Strided(strides) => Layout::Strided(PartialStrides(Dims::from_slice(&strides.0))),
            other => other.clone(),
        };
        let dims = Dims::from_slice(&self.dims);
        Self { dims, layout, ..*self }
    }
}

impl LogicalTensor {
    /// A tensor of a known type; everything else is unknown, and its layout is `any`.
    #[must_use]
    pub fn unknown(id: impl Into<TensorId>, data_type: DataType) -> Self {
        let (layout, property) = (Layout::Any, Property::Undef);
        Self { id: id.into(), data_type, dims: Dims::new(), has_rank: false, layout, property }
    }

    /// A tensor of contiguous row-major layout.
    ///
    /// # Errors
    ///
    /// As [`with_layout`](Self::with_layout).
    pub fn strided(id: impl Into<TensorId>, data_type: DataType, dims: &[i64]) -> Result<Self> {
        let id = id.into();
        check_known(id, dims, &[])?;
        Self::dense(id, data_type, dims)
    }

    /// A tensor of contiguous row-major layout, some of whose dims are unknown until its partition is
    /// compiled, as then are its strides.
    ///
    /// ```
    /// use sterna::{DataType, LogicalTensor};
    /// let rows = LogicalTensor::partial(0, DataType::F32, &[None, Some(64)])?;
    /// assert_eq!((rows.rank(), rows.dims()), (Some(2), None));
    /// assert_eq!(rows.partial_dims(), Some(vec![None, Some(64)]));
    /// # Ok::<(), sterna::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`with_layout`](Self::with_layout).
    pub fn partial(id: impl Into<TensorId>, data_type: DataType, dims: &[Option<i64>]) -> Result<Self> {
        Self::dense(id.into(), data_type, &raw(dims))
    }

    /// A tensor of contiguous row-major layout. Dims may be [`UNKNOWN_DIM`]; the strides are then unknown
    /// too.
    pub(crate) fn dense(id: TensorId, data_type: DataType, dims: &[i64]) -> Result<Self> {
        Self::check_dims(id, dims)?;
        let strides = if shape::is_known(dims) {
            shape::row_major_strides(dims).ok_or_else(|| {
                Self::fault(id, TensorFault::TooLarge { dims: dims.into(), strides: Dims::new() })
            })?
        } else {
            Dims::from_elem(UNKNOWN_DIM, dims.len())
        };
        Self::checked(id, data_type, dims, Layout::Strided(PartialStrides(strides)))
    }

    /// A tensor with strides, in elements. With a stride of 0, all elements along the dim are one element.
    ///
    /// ```
    /// use sterna::{DataType, LogicalTensor};
    /// // A [4, 3] matrix that lies in memory column by column.
    /// let t = LogicalTensor::with_strides(0, DataType::F32, &[4, 3], &[1, 4])?;
    /// assert_eq!(t.memory_size(), 48);
    /// # Ok::<(), sterna::Error>(())
    /// ```
    pub fn with_strides(
        id: impl Into<TensorId>,
        data_type: DataType,
        dims: &[i64],
        strides: &[i64],
    ) -> Result<Self> {
        let id = id.into();
        check_known(id, dims, strides)?;
        Self::laid_out(id, data_type, Some(dims), Layout::Strided(PartialStrides(strides.into())))
    }

    /// A tensor of layout `any`: as an output, it gets a layout when its partition is compiled.
    pub fn any(id: impl Into<TensorId>, data_type: DataType, dims: &[i64]) -> Result<Self> {
        let id = id.into();
        check_known(id, dims, &[])?;
        Self::laid_out(id, data_type, Some(dims), Layout::Any)
    }

    /// A scalar whose value the host passes with each execution. Its type is s32, s64 or f32.
    pub fn host_scalar(id: impl Into<TensorId>, data_type: DataType) -> Result<Self> {
        Self::strided(id, data_type, &[])?.with_property(Property::HostScalar)
    }

    /// A tensor of any layout; no dims for an unknown rank, and `None` for a dim that is unknown.
    ///
    /// # Errors
    ///
    /// [`Error::Tensor`] for a rank above [`MAX_RANK`], negative dims or strides, a number of strides other
    /// than that of dims, and sizes beyond the address space.
    pub fn with_layout(
        id: impl Into<TensorId>,
        data_type: DataType,
        dims: Option<&[Option<i64>]>,
        layout: Layout,
    ) -> Result<Self> {
        Self::laid_out(id.into(), data_type, dims.map(raw).as_deref(), layout)
    }

    /// As [`with_layout`](Self::with_layout), with [`UNKNOWN_DIM`] for a dim that is unknown.
    pub(crate) fn laid_out(
        id: TensorId,
        data_type: DataType,
        dims: Option<&[i64]>,
        layout: Layout,
    ) -> Result<Self> {
        let Some(dims) = dims else {
            let layout = match layout {
                Layout::Strided(_) => Layout::Strided(PartialStrides(Dims::new())),
                other => other,
            };
            return Ok(Self { layout, ..Self::unknown(id, data_type) });
        };
        Self::check_dims(id, dims)?;
        if let Layout::Strided(PartialStrides(strides)) = &layout {
            if strides.len() != dims.len() {
                return Err(Self::fault(
                    id,
                    TensorFault::StrideCount { dims: dims.len(), strides: strides.len() },
                ));
            }
            if let Some(axis) = strides.iter().position(|&s| s < 0 && s != UNKNOWN_DIM) {
                return Err(Self::fault(id, TensorFault::NegativeStride { axis, stride: strides[axis] }));
            }
        }
        Self::checked(id, data_type, dims, layout)
    }

    /// The same tensor with another property.
    ///
    /// # Errors
    ///
    /// [`TensorFault::HostScalar`] if a host scalar is wanted and the tensor does not have rank 0 and type
    /// s32, s64 or f32.
    pub fn with_property(self, property: Property) -> Result<Self> {
        let scalar_type = matches!(self.data_type, DataType::S32 | DataType::S64 | DataType::F32);
        if property == Property::HostScalar && !(scalar_type && self.rank() == Some(0)) {
            let (rank, data_type) = (self.rank(), self.data_type);
            return Err(Self::fault(self.id, TensorFault::HostScalar { rank, data_type }));
        }
        Ok(Self { property, ..self })
    }

    /// The same description under another id.
    #[must_use]
    pub fn with_id(self, id: impl Into<TensorId>) -> Self {
        Self { id: id.into(), ..self }
    }

    /// The id that links ops.
    #[must_use]
    pub fn id(&self) -> TensorId {
        self.id
    }

    /// The type of the elements.
    #[must_use]
    pub fn data_type(&self) -> DataType {
        self.data_type
    }

    /// The number of dims; `None` if unknown.
    #[must_use]
    pub fn rank(&self) -> Option<usize> {
        self.has_rank.then_some(self.dims.len())
    }

    /// The dims; `None` unless all are known.
    #[must_use]
    pub fn dims(&self) -> Option<&[i64]> {
        self.raw_dims().filter(|dims| shape::is_known(dims))
    }

    /// The dims, `None` for one that is unknown; `None` as a whole if the rank is unknown.
    #[must_use]
    pub fn partial_dims(&self) -> Option<Vec<Option<i64>>> {
        Some(self.raw_dims()?.iter().map(|&dim| shape::known(dim)).collect())
    }

    /// The dims, each known or [`UNKNOWN_DIM`]; `None` if the rank is unknown.
    pub(crate) fn raw_dims(&self) -> Option<&[i64]> {
        self.has_rank.then_some(&self.dims)
    }

    /// The strides in elements; `None` unless the layout is strided and all are known.
    #[must_use]
    pub fn strides(&self) -> Option<&[i64]> {
        match &self.layout {
            Layout::Strided(strides) if self.has_rank => strides.known(),
            _ => None,
        }
    }

    /// The layout.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The property.
    #[must_use]
    pub fn property(&self) -> Property {
        self.property
    }

    /// True if the value comes from the host with each execution.
    #[must_use]
    pub fn is_host_scalar(&self) -> bool {
        self.property == Property::HostScalar
    }

    /// The bytes to allocate, as oneDNN counts them: the largest dim · stride (a dim of 1 counts stride 1),
    /// at least one element, and 0 if any dim is 0. 4-bit types divide by two, rounding up.
    ///
    /// `usize::MAX` if the layout is not strided, or if a dim or stride of a tensor of known rank is unknown;
    /// 0 for a strided tensor of unknown rank.
    #[must_use]
    pub fn memory_size(&self) -> usize {
        if !matches!(self.layout, Layout::Strided(_)) {
            return usize::MAX;
        }
        if !self.has_rank {
            return 0;
        }
        let (Some(dims), Some(strides)) = (self.dims(), self.strides()) else { return usize::MAX };
        let elements = Self::allocated_elements(dims, strides).expect("checked when the tensor was made");
        Self::bytes_of(elements, self.data_type).expect("checked when the tensor was made")
    }

    /// Number of elements from the first to the last, both included: the length of the slice that an
    /// execution needs. `None` unless all dims and strides are known.
    #[must_use]
    pub fn span(&self) -> Option<usize> {
        let span = shape::span(self.dims()?, self.strides()?).expect("checked when the tensor was made");
        Some(span as usize)
    }

    /// Number of elements; `None` if a dim is unknown.
    #[must_use]
    pub fn element_count(&self) -> Option<usize> {
        let count = shape::element_count(self.dims()?).expect("checked when the tensor was made");
        Some(count as usize)
    }

    /// The same tensor with the resolved dims and strides, which compilation has checked.
    pub(crate) fn resolved(&self, dims: &Dims, strides: &Dims) -> Self {
        let (dims, strides) = (Dims::from_slice(dims), PartialStrides(Dims::from_slice(strides)));
        let layout = Layout::Strided(strides);
        Self { dims, has_rank: true, layout, ..*self }
    }

    /// True if two strided tensors of known strides describe the same memory, whatever their ids.
    #[inline]
    pub(crate) fn is_same_memory(&self, other: &Self) -> bool {
        // The lists are so short that a call to compare memory takes longer than comparing one by one.
        let same = |a: &Dims, b: &Dims| a.len() == b.len() && a.iter().zip(b).all(|(x, y)| x == y);
        match (&self.layout, &other.layout) {
            (Layout::Strided(PartialStrides(strides)), Layout::Strided(PartialStrides(other_strides))) => {
                self.has_rank
                    && other.has_rank
                    && self.data_type == other.data_type
                    && self.is_host_scalar() == other.is_host_scalar()
                    && same(&self.dims, &other.dims)
                    && same(strides, other_strides)
            }
            _ => false,
        }
    }

    /// The same tensor of other dims, of which strides that are known and fit stay as they are.
    pub(crate) fn with_dims(&self, dims: &[i64]) -> Result<Self> {
        let layout = match &self.layout {
            Layout::Strided(PartialStrides(strides))
                if strides.len() == dims.len() && shape::is_known(strides) =>
            {
                self.layout.clone()
            }
            Layout::Strided(_) => {
                return Self::dense(self.id, self.data_type, dims)?.with_property(self.property);
            }
            layout => layout.clone(),
        };
        Self::laid_out(self.id, self.data_type, Some(dims), layout)?.with_property(self.property)
    }

    /// Names the first part in which two descriptions differ, their ids apart.
    pub(crate) fn difference(&self, other: &Self) -> Option<&'static str> {
        if self.data_type != other.data_type {
            Some("types")
        } else if self.rank() != other.rank() {
            Some("ranks")
        } else if self.dims != other.dims {
            Some("dims")
        } else if self.layout.code() != other.layout.code() {
            Some("layouts")
        } else if self.layout != other.layout {
            Some(if matches!(self.layout, Layout::Opaque(_)) { "layouts" } else { "strides" })
        } else {
            (self.property != other.property).then_some("properties")
        }
    }

    /// A part of the description, of those that [`difference`](Self::difference) names, in words.
    pub(crate) fn part(&self, what: &'static str) -> String {
        match (what, &self.layout) {
            ("types", _) => self.data_type.to_string(),
            ("ranks" | "dims", _) if !self.has_rank => "unknown".into(),
            ("ranks" | "dims", _) => Braced(&self.dims).to_string(),
            ("strides", Layout::Strided(PartialStrides(strides))) => Braced(strides).to_string(),
            ("properties", _) => self.property.name().into(),
            (_, Layout::Opaque(id)) => format!("opaque {id}"),
            (_, layout) => layout.name().into(),
        }
    }

    fn checked(id: TensorId, data_type: DataType, dims: &[i64], layout: Layout) -> Result<Self> {
        let too_large = |strides: &[i64]| {
            Self::fault(id, TensorFault::TooLarge { dims: dims.into(), strides: strides.into() })
        };
        if shape::is_known(dims) {
            let count = shape::element_count(dims).ok_or_else(|| too_large(&[]))?;
            Self::bytes_of(count, data_type).ok_or_else(|| too_large(&[]))?;
            if let Layout::Strided(PartialStrides(strides)) = &layout
                && shape::is_known(strides)
            {
                let span = shape::span(dims, strides).ok_or_else(|| too_large(strides))?;
                let allocated = Self::allocated_elements(dims, strides).ok_or_else(|| too_large(strides))?;
                Self::bytes_of(span.max(allocated), data_type).ok_or_else(|| too_large(strides))?;
            }
        }
        Ok(Self { id, data_type, dims: dims.into(), has_rank: true, layout, property: Property::Undef })
    }

    fn check_dims(id: TensorId, dims: &[i64]) -> Result<()> {
        if dims.len() > MAX_RANK {
            return Err(Self::fault(id, TensorFault::Rank { rank: dims.len() }));
        }
        match dims.iter().position(|&dim| dim < 0 && dim != UNKNOWN_DIM) {
            Some(axis) => Err(Self::fault(id, TensorFault::NegativeDim { axis, dim: dims[axis] })),
            None => Ok(()),
        }
    }

    fn allocated_elements(dims: &[i64], strides: &[i64]) -> Option<i64> {
        if dims.contains(&0) {
            return Some(0);
        }
        dims.iter().zip(strides).try_fold(1i64, |largest, (&dim, &stride)| {
            let extent = if dim == 1 { 1 } else { dim.checked_mul(stride)? };
            Some(largest.max(extent))
        })
    }

    /// Bytes of a number of elements; `None` if they exceed `isize`, the limit of what can be addressed.
    fn bytes_of(elements: i64, data_type: DataType) -> Option<usize> {
        let bits = i128::from(elements) * data_type.bits() as i128;
        isize::try_from((bits + 7) / 8).ok().map(|bytes| bytes as usize)
    }

    fn fault(id: TensorId, fault: TensorFault) -> Error {
        Error::Tensor { id, fault }
    }
}

/// Dims as [`LogicalTensor::raw_dims`] gives them.
fn raw(dims: &[Option<i64>]) -> Dims {
    dims.iter().map(|&dim| shape::or_unknown(dim)).collect()
}

/// Refuses the number that stands for an unknown dim or stride where all are known.
fn check_known(id: TensorId, dims: &[i64], strides: &[i64]) -> Result<()> {
    let unknown = |list: &[i64]| list.iter().position(|&number| number == UNKNOWN_DIM);
    if let Some(axis) = unknown(dims) {
        return Err(LogicalTensor::fault(id, TensorFault::NegativeDim { axis, dim: UNKNOWN_DIM }));
    }
    match unknown(strides) {
        Some(axis) => {
            Err(LogicalTensor::fault(id, TensorFault::NegativeStride { axis, stride: UNKNOWN_DIM }))
        }
        None => Ok(()),
    }
}
