//! Memory descriptors: type, dims and strides of what memory objects hold.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;

use sterna_capi::data_type;
use sterna_capi::ffi::{Fault, array, ffi_guard, require, value_of};
use sterna_capi::logical_tensor::known;
use sterna_capi::status::Status;

use crate::format_tag::{self, FormatTag};

pub(crate) const MAX_NDIMS: usize = 12;

/// `dnnl_dims_t`
pub(crate) type Dims = [i64; MAX_NDIMS];

/// A dim, stride or offset that is given with the data.
pub(crate) const RUNTIME: i64 = i64::MIN;

/// The numbers of `dnnl_format_kind_t` that are here.
type FormatKind = c_int;
const UNDEF: FormatKind = 0;
const ANY: FormatKind = 1;
const STRIDED: FormatKind = 2;
const HOST_SCALAR: FormatKind = 5;

/// The description of a memory object. Behind `ndims`, dims and strides are 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MemoryDesc {
    ndims: c_int,
    data_type: c_int,
    format_kind: FormatKind,
    dims: Dims,
    strides: Dims,
    /// The element of the memory at which the first element of the tensor lies.
    offset: i64,
}

/// The description of nothing.
pub(crate) static EMPTY: MemoryDesc = MemoryDesc {
    ndims: 0,
    data_type: 0,
    format_kind: UNDEF,
    dims: [0; MAX_NDIMS],
    strides: [0; MAX_NDIMS],
    offset: 0,
};

/// The answer to queries about blocks, which no layout here has.
static NO_DIMS: Dims = [0; MAX_NDIMS];

impl MemoryDesc {
    /// A description without a layout.
    fn of(dims: &[i64], data_type: c_int, format_kind: FormatKind) -> Result<Self, Fault> {
        if dims.is_empty() || dims.len() > MAX_NDIMS {
            let given = dims.len();
            return Err(Fault::invalid_arguments(format!("{given} dims, of 1 to {MAX_NDIMS}")));
        }
        if let Some(dim) = dims.iter().find(|&&dim| dim < 0 && dim != RUNTIME) {
            return Err(Fault::invalid_arguments(format!("{dim} is no dim")));
        }
        if data_type::from_code(data_type)? == sterna::DataType::Undef {
            return Err(Fault::invalid_arguments("the data type is undef"));
        }
        let mut desc = Self { ndims: dims.len() as c_int, data_type, format_kind, ..EMPTY };
        desc.dims[..dims.len()].copy_from_slice(dims);
        Ok(desc)
    }

    /// A description with strides, in which no two elements overlap, but for those along a stride of 0.
    fn strided(dims: &[i64], data_type: c_int, strides: &[i64]) -> Result<Self, Fault> {
        let mut desc = Self::of(dims, data_type, STRIDED)?;
        desc.strides[..dims.len()].copy_from_slice(&strides[..dims.len()]);
        if let Some(stride) = desc.strides().iter().find(|&&stride| stride < 0 && stride != RUNTIME) {
            return Err(Fault::invalid_arguments(format!("{stride} is no stride")));
        }
        desc.logical(0)?;
        if !desc.is_runtime() && desc.overlaps_itself() {
            let (dims, strides) = (desc.dims(), desc.strides());
            return Err(Fault::invalid_arguments(format!(
                "dims {dims:?} overlap themselves with strides {strides:?}"
            )));
        }
        Ok(desc)
    }

    fn overlaps_itself(&self) -> bool {
        if self.dims().contains(&0) {
            return false;
        }
        let mut axes: Vec<(i64, i64)> =
            self.strides().iter().zip(self.dims()).map(|(&stride, &dim)| (stride, dim)).collect();
        axes.sort_unstable();
        let mut least = 1;
        axes.into_iter().filter(|&(stride, _)| stride != 0).any(|(stride, dim)| {
            let overlaps = stride < least;
            least = stride.saturating_mul(dim);
            overlaps
        })
    }

    pub(crate) fn dims(&self) -> &[i64] {
        &self.dims[..self.ndims as usize]
    }

    fn strides(&self) -> &[i64] {
        &self.strides[..self.ndims as usize]
    }

    pub(crate) fn data_type(&self) -> c_int {
        self.data_type
    }

    pub(crate) fn is_strided(&self) -> bool {
        self.format_kind == STRIDED
    }

    pub(crate) fn is_host_scalar(&self) -> bool {
        self.format_kind == HOST_SCALAR
    }

    pub(crate) fn is_any(&self) -> bool {
        self.format_kind == ANY
    }

    /// True if a dim, a stride or the offset comes with the data.
    pub(crate) fn is_runtime(&self) -> bool {
        self.dims.contains(&RUNTIME) || self.strides.contains(&RUNTIME) || self.offset == RUNTIME
    }

    /// The description of a strided tensor for the library. The offset is not part of it.
    pub(crate) fn logical(&self, id: usize) -> Result<sterna::LogicalTensor, Fault> {
        let data_type = data_type::from_code(self.data_type)?;
        let dims: Vec<Option<i64>> = self.dims().iter().map(known).collect();
        let layout = sterna::Layout::Strided(self.strides().iter().map(known).collect());
        Ok(sterna::LogicalTensor::with_layout(id, data_type, Some(&dims), layout)?)
    }

    /// The bytes from the start of a memory to the first element.
    pub(crate) fn offset_bytes(&self) -> Option<usize> {
        let bits = data_type::from_code(self.data_type).ok()?.bits();
        Some(usize::try_from(self.offset).ok()?.checked_mul(bits)? / 8)
    }

    /// True if the first element lies at the beginning of a byte.
    pub(crate) fn starts_with_a_byte(&self) -> bool {
        let bits = data_type::from_code(self.data_type).map_or(8, |data_type| data_type.bits());
        bits.is_multiple_of(8) || self.offset % 2 == 0
    }

    /// The bytes that a memory of this description takes, as oneDNN counts them: without the offset.
    fn size(&self) -> usize {
        match self.format_kind {
            HOST_SCALAR => element_size(self.data_type),
            STRIDED if self.is_runtime() => RUNTIME as usize,
            STRIDED if self.dims().contains(&0) => 0,
            STRIDED => self.logical(0).map_or(0, |tensor| tensor.memory_size()),
            _ => 0,
        }
    }

    /// The bytes of memory that the elements of this description lie in, gaps, offset and all.
    pub(crate) fn bytes(&self) -> Option<usize> {
        if self.format_kind != STRIDED {
            return Some(self.size());
        }
        let tensor = self.logical(0).ok()?;
        let span = tensor.span()?.checked_mul(tensor.data_type().bits())?.div_ceil(8);
        span.max(self.size()).checked_add(self.offset_bytes()?)
    }

    fn has_layout(&self) -> Result<(), Fault> {
        match self.format_kind {
            STRIDED | ANY => Ok(()),
            _ => Err(Fault::invalid_arguments("the memory descriptor has no plain layout")),
        }
    }

    fn submemory(&self, dims: &[i64], offsets: &[i64]) -> Result<Self, Fault> {
        if self.is_runtime() || !self.is_strided() {
            return Err(Fault::unimplemented("a part of memory whose layout is not known"));
        }
        let mut part = *self;
        for (axis, (&dim, &offset)) in dims.iter().zip(offsets).enumerate() {
            let whole = self.dims[axis];
            if dim < 0 || offset < 0 || offset.checked_add(dim).is_none_or(|end| end > whole) {
                return Err(Fault::invalid_arguments(format!(
                    "{dim} from {offset} on do not lie in dim {axis} of {whole}"
                )));
            }
            part.dims[axis] = dim;
            let moved = offset.checked_mul(self.strides[axis]).and_then(|by| part.offset.checked_add(by));
            part.offset =
                moved.ok_or_else(|| Fault::invalid_arguments("the offset exceeds the address space"))?;
        }
        Ok(part)
    }

    fn reshaped(&self, dims: &[i64]) -> Result<Self, Fault> {
        self.has_layout()?;
        let mut desc = Self::of(dims, self.data_type, self.format_kind)?;
        if self.is_runtime() || desc.is_runtime() {
            return Err(Fault::invalid_arguments("dims that come with the data have no other shape"));
        }
        let count = |dims: &[i64]| dims.iter().map(|&dim| i128::from(dim)).try_fold(1, i128::checked_mul);
        if count(self.dims()) != count(dims) {
            let given = self.dims();
            return Err(Fault::invalid_arguments(format!("{dims:?} are not as many elements as {given:?}")));
        }
        if self.format_kind == STRIDED {
            desc.offset = self.offset;
            let strides = view_strides(self.dims(), self.strides(), dims);
            let Some(strides) = strides else {
                let (given, strides) = (self.dims(), self.strides());
                return Err(Fault::invalid_arguments(format!(
                    "{given:?} with strides {strides:?} are not {dims:?} without a copy"
                )));
            };
            desc.strides = strides;
        }
        Ok(desc)
    }

    fn permuted(&self, permutation: &[c_int]) -> Result<Self, Fault> {
        self.has_layout()?;
        let mut seen = [false; MAX_NDIMS];
        let mut desc = *self;
        for (from, &to) in permutation.iter().enumerate() {
            let to = usize::try_from(to).ok().filter(|&to| to < permutation.len() && !seen[to]);
            let to = to.ok_or_else(|| {
                Fault::invalid_arguments(format!("{permutation:?} is no permutation of the axes"))
            })?;
            seen[to] = true;
            (desc.dims[to], desc.strides[to]) = (self.dims[from], self.strides[from]);
        }
        Ok(desc)
    }

    /// True if the same elements lie in the same places. The stride of a dim of 1 does not count.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let strides = |desc: &Self| {
            let mut strides = desc.strides;
            strides
                .iter_mut()
                .zip(desc.dims)
                .filter(|(_, dim)| *dim == 1)
                .for_each(|(stride, _)| *stride = 0);
            strides
        };
        Self { strides: strides(self), ..*self } == Self { strides: strides(other), ..*other }
    }
}

/// The strides under which elements have other dims; none if they would have to be copied.
fn view_strides(from: &[i64], strides: &[i64], to: &[i64]) -> Option<Dims> {
    let mut made = [0; MAX_NDIMS];
    if from.contains(&0) {
        let mut next = 1;
        for (axis, &dim) in to.iter().enumerate().rev() {
            made[axis] = next;
            next = i64::checked_mul(next, dim.max(1))?;
        }
        return Some(made);
    }
    // Axes that lie densely behind one another are one chunk, which may be divided anew.
    let mut chunks: Vec<(i64, i64)> = Vec::new();
    for (&dim, &stride) in from.iter().zip(strides).filter(|(dim, _)| **dim != 1) {
        match chunks.last_mut() {
            Some((length, inner)) if *inner == stride.checked_mul(dim)? => {
                (*length, *inner) = (length.checked_mul(dim)?, stride);
            }
            _ => chunks.push((dim, stride)),
        }
    }
    let mut chunks = chunks.into_iter().rev();
    let (mut left, mut next) = chunks.next().unwrap_or((1, 1));
    for (axis, &dim) in to.iter().enumerate().rev() {
        if left == 1 && dim != 1 {
            (left, next) = chunks.next()?;
        }
        if left % dim != 0 {
            return None;
        }
        made[axis] = next;
        (left, next) = (left / dim, next.checked_mul(dim)?);
    }
    Some(made)
}

/// Bytes of one element, of 4-bit types too; `SIZE_MAX` for a number that is no type, as oneDNN has it.
fn element_size(data_type: c_int) -> usize {
    data_type::from_code(data_type).map_or(usize::MAX, |data_type| data_type.bits().div_ceil(8))
}

/// The first `ndims` numbers of the caller's.
///
/// # Safety
///
/// Unless the address is null, so many numbers can be read there.
unsafe fn numbers<'a>(at: *const i64, ndims: c_int, name: &'static str) -> Result<&'a [i64], Fault> {
    let len = usize::try_from(ndims).ok().filter(|&len| len <= MAX_NDIMS);
    let len = len.ok_or_else(|| Fault::unknown("number of dims", ndims))?;
    // SAFETY: as the caller promises.
    unsafe { array(at, len, name) }
}

type Out<'a> = Option<&'a mut MaybeUninit<Box<MemoryDesc>>>;

/// Hands out a description.
fn give(to: Out<'_>, made: impl FnOnce() -> Result<MemoryDesc, Fault>) -> Status {
    ffi_guard(|| {
        let to = require(to, "memory_desc")?;
        to.write(Box::new(made()?));
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn dnnl_memory_desc_destroy(desc: Option<Box<MemoryDesc>>) -> Status {
    ffi_guard(|| {
        drop(desc);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn dnnl_memory_desc_clone(to: Out<'_>, desc: Option<&MemoryDesc>) -> Status {
    give(to, || require(desc, "existing_memory_desc").copied())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dnnl_memory_desc_create_with_strides(
    to: Out<'_>,
    ndims: c_int,
    dims: *const i64,
    data_type: c_int,
    strides: *const i64,
) -> Status {
    give(to, || {
        if ndims == 0 {
            return Ok(EMPTY);
        }
        // SAFETY: the caller promises `ndims` numbers at both addresses, unless they are null.
        let dims = unsafe { numbers(dims, ndims, "dims") }?;
        if strides.is_null() {
            return MemoryDesc::strided(dims, data_type, &row_major(dims)?);
        }
        // SAFETY: as above.
        MemoryDesc::strided(dims, data_type, unsafe { numbers(strides, ndims, "strides") }?)
    })
}

fn row_major(dims: &[i64]) -> Result<Dims, Fault> {
    const ROW_MAJOR: FormatTag = 2;
    format_tag::strides(ROW_MAJOR + dims.len().saturating_sub(1) as FormatTag, dims)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dnnl_memory_desc_create_with_tag(
    to: Out<'_>,
    ndims: c_int,
    dims: *const i64,
    data_type: c_int,
    tag: FormatTag,
) -> Status {
    give(to, || {
        if ndims == 0 || tag == format_tag::UNDEF {
            return Ok(EMPTY);
        }
        // SAFETY: the caller promises `ndims` numbers, unless the address is null.
        let dims = unsafe { numbers(dims, ndims, "dims") }?;
        match tag {
            format_tag::ANY => MemoryDesc::of(dims, data_type, ANY),
            _ => {
                MemoryDesc::of(dims, data_type, STRIDED)?;
                MemoryDesc::strided(dims, data_type, &format_tag::strides(tag, dims)?)
            }
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn dnnl_memory_desc_create_host_scalar(to: Out<'_>, data_type: c_int) -> Status {
    give(to, || {
        let mut desc = MemoryDesc::of(&[1], data_type, HOST_SCALAR)?;
        desc.strides[0] = 1;
        Ok(desc)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dnnl_memory_desc_create_submemory(
    to: Out<'_>,
    parent: Option<&MemoryDesc>,
    dims: *const i64,
    offsets: *const i64,
) -> Status {
    give(to, || {
        let parent = require(parent, "parent_memory_desc")?;
        // SAFETY: the caller promises as many numbers as the parent has dims, unless an address is null.
        let (dims, offsets) =
            unsafe { (numbers(dims, parent.ndims, "dims")?, numbers(offsets, parent.ndims, "offsets")?) };
        parent.submemory(dims, offsets)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dnnl_memory_desc_reshape(
    to: Out<'_>,
    desc: Option<&MemoryDesc>,
    ndims: c_int,
    dims: *const i64,
) -> Status {
    give(to, || {
        let desc = require(desc, "in_memory_desc")?;
        // SAFETY: the caller promises `ndims` numbers, unless the address is null.
        desc.reshaped(unsafe { numbers(dims, ndims, "dims") }?)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dnnl_memory_desc_permute_axes(
    to: Out<'_>,
    desc: Option<&MemoryDesc>,
    permutation: *const c_int,
) -> Status {
    give(to, || {
        let desc = require(desc, "in_memory_desc")?;
        // SAFETY: the caller promises as many numbers as there are dims, unless the address is null.
        desc.permuted(unsafe { array(permutation, desc.ndims as usize, "permutation") }?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn dnnl_memory_desc_equal(left: Option<&MemoryDesc>, right: Option<&MemoryDesc>) -> c_int {
    match (left, right) {
        (Some(left), Some(right)) => left.is_same(right).into(),
        (None, None) => 1,
        _ => 0,
    }
}

#[unsafe(no_mangle)]
extern "C" fn dnnl_memory_desc_get_size(desc: Option<&MemoryDesc>) -> usize {
    dnnl_memory_desc_get_size_v2(desc, 0)
}

#[unsafe(no_mangle)]
extern "C" fn dnnl_memory_desc_get_size_v2(desc: Option<&MemoryDesc>, index: c_int) -> usize {
    value_of(0, || desc.filter(|_| index == 0).map_or(0, MemoryDesc::size))
}

#[unsafe(no_mangle)]
extern "C" fn dnnl_data_type_size(data_type: c_int) -> usize {
    value_of(0, || element_size(data_type))
}

/// A description as numbers, the first of which says that it is one.
type Blob = [i64; 5 + 2 * MAX_NDIMS];
const BLOB: i64 = 0x1e57_e12a_6d64_0001;

#[unsafe(no_mangle)]
unsafe extern "C" fn dnnl_memory_desc_get_blob(
    blob: *mut u8,
    size: Option<&mut usize>,
    desc: Option<&MemoryDesc>,
) -> Status {
    ffi_guard(|| {
        let (desc, size) = (require(desc, "memory_desc")?, require(size, "size")?);
        if blob.is_null() {
            *size = size_of::<Blob>();
            return Ok(());
        }
        if *size < size_of::<Blob>() {
            return Err(Fault::invalid_arguments(format!(
                "a blob takes {} bytes, not {size}",
                size_of::<Blob>()
            )));
        }
        let head = [BLOB, desc.ndims.into(), desc.data_type.into(), desc.format_kind.into(), desc.offset];
        let numbers = head.into_iter().chain(desc.dims).chain(desc.strides);
        for (index, number) in numbers.enumerate() {
            // SAFETY: the caller promises room for `size` bytes, which are as many as are written, or more.
            unsafe { blob.cast::<i64>().add(index).write_unaligned(number) };
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dnnl_memory_desc_create_with_blob(to: Out<'_>, blob: *const u8) -> Status {
    give(to, || {
        let blob = require(ptr::NonNull::new(blob.cast_mut()), "blob")?;
        // SAFETY: the caller promises that `dnnl_memory_desc_get_blob` has filled the blob.
        let numbers: Blob = unsafe { blob.as_ptr().cast::<Blob>().read_unaligned() };
        let not_a_blob = || Fault::invalid_arguments("the bytes are no memory descriptor");
        let [BLOB, ndims, data_type, format_kind, offset, lists @ ..] = numbers else {
            return Err(not_a_blob());
        };
        let ndims = usize::try_from(ndims).ok().filter(|&ndims| ndims <= MAX_NDIMS).ok_or_else(not_a_blob)?;
        let (dims, strides) = (&lists[..ndims], &lists[MAX_NDIMS..][..ndims]);
        let (data_type, format_kind) = (data_type as c_int, format_kind as FormatKind);
        let desc = match format_kind {
            UNDEF => return Ok(EMPTY),
            ANY | HOST_SCALAR => MemoryDesc::of(dims, data_type, format_kind)?,
            STRIDED => MemoryDesc::strided(dims, data_type, strides)?,
            _ => return Err(not_a_blob()),
        };
        Ok(MemoryDesc { offset, ..desc })
    })
}

/// Numbers of `dnnl_query_t` that memory descriptors answer.
mod query {
    use std::ffi::c_int;

    pub(super) const STRIDES: c_int = 14;
    pub(super) const NDIMS: c_int = 256;
    pub(super) const DIMS: c_int = 257;
    pub(super) const DATA_TYPE: c_int = 258;
    pub(super) const SUBMEMORY_OFFSET: c_int = 259;
    pub(super) const PADDED_DIMS: c_int = 260;
    pub(super) const PADDED_OFFSETS: c_int = 261;
    pub(super) const FORMAT_KIND: c_int = 262;
    pub(super) const INNER_BLOCKS: c_int = 263;
    pub(super) const INNER_BLOCK_SIZES: c_int = 264;
    pub(super) const INNER_BLOCK_AXES: c_int = 265;
    pub(super) const HANDLES: c_int = 268;
}

/// An answer to a query, of the type that the query has.
enum Answer<'a> {
    Int(c_int),
    Long(i64),
    List(&'a Dims),
}

impl MemoryDesc {
    fn answer(&self, what: c_int) -> Result<Answer<'_>, Fault> {
        let strided = |answer| match self.format_kind {
            STRIDED => Ok(answer),
            _ => Err(Fault::invalid_arguments(format!("query {what} is for strided memory"))),
        };
        match what {
            query::NDIMS => Ok(Answer::Int(self.ndims)),
            query::DIMS | query::PADDED_DIMS => Ok(Answer::List(&self.dims)),
            query::DATA_TYPE => Ok(Answer::Int(self.data_type)),
            query::SUBMEMORY_OFFSET => Ok(Answer::Long(self.offset)),
            query::PADDED_OFFSETS => Ok(Answer::List(&NO_DIMS)),
            query::FORMAT_KIND => Ok(Answer::Int(self.format_kind)),
            query::STRIDES => strided(Answer::List(&self.strides)),
            query::INNER_BLOCKS => strided(Answer::Int(0)),
            query::INNER_BLOCK_SIZES | query::INNER_BLOCK_AXES => strided(Answer::List(&NO_DIMS)),
            query::HANDLES => Ok(Answer::Int(1)),
            _ => Err(Fault::unimplemented(format!("no memory descriptor answers query {what}"))),
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dnnl_memory_desc_query(
    desc: Option<&MemoryDesc>,
    what: c_int,
    result: *mut c_void,
) -> Status {
    // SAFETY: as the caller promises.
    unsafe { dnnl_memory_desc_query_v2(desc, what, 0, result) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dnnl_memory_desc_query_v2(
    desc: Option<&MemoryDesc>,
    what: c_int,
    index: c_int,
    result: *mut c_void,
) -> Status {
    ffi_guard(|| {
        let desc = require(desc, "memory_desc")?;
        let result = require(ptr::NonNull::new(result), "result")?.as_ptr();
        if index != 0 {
            return Err(Fault::invalid_arguments(format!("there is one buffer, of index 0, not {index}")));
        }
        // SAFETY: the caller promises that the result is of the type of the query.
        unsafe {
            match desc.answer(what)? {
                Answer::Int(number) => result.cast::<c_int>().write(number),
                Answer::Long(number) => result.cast::<i64>().write(number),
                Answer::List(list) => result.cast::<*const Dims>().write(list),
            }
        }
        Ok(())
    })
}
