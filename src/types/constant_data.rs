//! The memory of constants.

use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

use super::dtype::{InputElement, bytes_of};

/// The bytes of a constant: those of a vector, of mapped memory, of whatever gives bytes that stay as they
/// are. They lie in the order of memory of the machine, from the first element to the last.
///
/// A clone is the same memory.
///
/// ```
/// use sterna::ConstantData;
/// let weights = ConstantData::from_slice(&[0.5f32, 2.0]);
/// assert_eq!(weights.bytes().len(), 8);
/// let mapped = ConstantData::new(vec![1u8, 2, 3]);
/// assert_eq!(mapped.bytes(), [1, 2, 3]);
/// ```
#[derive(Clone)]
pub struct ConstantData {
    owner: Arc<dyn Lender>,
}

/// An owner of bytes that others read.
trait Lender: Send + Sync {
    fn bytes(&self) -> &[u8];

    /// Lets the system have the memory of bytes that it can bring back.
    fn release(&self);
}

/// An owner of bytes that stay in memory.
struct Staying<T>(T);

impl<T: AsRef<[u8]> + Send + Sync> Lender for Staying<T> {
    fn bytes(&self) -> &[u8] {
        self.0.as_ref()
    }

    fn release(&self) {}
}

/// An owner of bytes that the system can bring back.
struct Returning<T> {
    owner: T,
    release: fn(&T),
}

impl<T: AsRef<[u8]> + Send + Sync> Lender for Returning<T> {
    fn bytes(&self) -> &[u8] {
        self.owner.as_ref()
    }

    fn release(&self) {
        (self.release)(&self.owner);
    }
}

// Whoever owns the bytes only lends them; a panic of another cannot change them.
impl UnwindSafe for ConstantData {}
impl RefUnwindSafe for ConstantData {}

impl ConstantData {
    /// The bytes that an owner lends. It gives the same ones each time.
    #[must_use]
    pub fn new(owner: impl AsRef<[u8]> + Send + Sync + 'static) -> Self {
        Self { owner: Arc::new(Staying(owner)) }
    }

    /// As [`new`](Self::new), of bytes that the system can bring back, such as those of a mapped file: a
    /// session calls the function when it has a packed copy of them, so that they need not be in memory
    /// twice. They can still be read, at the same place, at any time.
    ///
    /// ```
    /// use sterna::ConstantData;
    /// let mapped = ConstantData::returning(vec![1u8, 2, 3], |_: &Vec<u8>| { /* as by `madvise` */ });
    /// assert_eq!(mapped.bytes(), [1, 2, 3]);
    /// ```
    #[must_use]
    pub fn returning<T: AsRef<[u8]> + Send + Sync + 'static>(owner: T, release: fn(&T)) -> Self {
        Self { owner: Arc::new(Returning { owner, release }) }
    }

    /// A copy of elements.
    #[must_use]
    pub fn from_slice<T: InputElement>(elements: &[T]) -> Self {
        Self::new(bytes_of(elements).to_vec())
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.owner.bytes()
    }

    /// Lets the system have the memory of bytes that it can bring back.
    pub(crate) fn release(&self) {
        self.owner.release();
    }
}

impl fmt::Debug for ConstantData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConstantData").field("bytes", &self.bytes().len()).finish()
    }
}
