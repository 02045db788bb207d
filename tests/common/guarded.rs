//! Memory between two pages that fault when they are touched, and places in it.

use std::ops::Range;

use super::Random;

/// Memory that ends at a page which faults when it is touched, and starts behind another.
pub struct Guarded {
    first: *mut u8,
    pub size: usize,
}

#[cfg(unix)]
impl Guarded {
    /// At least so many bytes.
    pub fn new(size: usize) -> Self {
        let page = page_size();
        let size = size.next_multiple_of(page);
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a fresh mapping; the pages between the first and the last are made accessible.
        unsafe {
            let mapped = libc::mmap(std::ptr::null_mut(), size + 2 * page, libc::PROT_NONE, flags, -1, 0);
            assert_ne!(mapped, libc::MAP_FAILED);
            let first = mapped.cast::<u8>().add(page);
            assert_eq!(libc::mprotect(first.cast(), size, access), 0);
            Self { first, size }
        }
    }
}

#[cfg(unix)]
impl Drop for Guarded {
    fn drop(&mut self) {
        let page = page_size();
        // SAFETY: the whole of the mapping that `new` made, which nobody uses any more.
        unsafe { libc::munmap(self.first.sub(page).cast(), self.size + 2 * page) };
    }
}

#[cfg(unix)]
fn page_size() -> usize {
    // SAFETY: a query without side effects.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

/// Without guard pages, all else is still checked.
#[cfg(not(unix))]
impl Guarded {
    pub fn new(size: usize) -> Self {
        let memory = vec![0u8; size.next_multiple_of(4096)].leak();
        Self { first: memory.as_mut_ptr(), size: memory.len() }
    }
}

impl Guarded {
    pub fn at(&self, offset: usize) -> *mut u8 {
        assert!(offset <= self.size);
        self.first.wrapping_add(offset)
    }

    pub fn bytes(&self, range: Range<usize>) -> &[u8] {
        assert!(range.end <= self.size);
        // SAFETY: within the mapping, which starts as zeros; executions run while no such slice is alive.
        unsafe { std::slice::from_raw_parts(self.at(range.start), range.len()) }
    }

    pub fn bytes_mut(&mut self, range: Range<usize>) -> &mut [u8] {
        assert!(range.end <= self.size);
        // SAFETY: as in `bytes`, uniquely borrowed.
        unsafe { std::slice::from_raw_parts_mut(self.at(range.start), range.len()) }
    }
}

/// Where an operand lies in its memory.
#[derive(Debug, Clone, Copy)]
pub enum Place {
    /// So many bytes behind the guard page before the memory.
    Front(usize),
    /// Ends so many bytes before the guard page behind the memory.
    Back(usize),
}

impl Place {
    pub fn range(self, memory: &Guarded, span: usize) -> Range<usize> {
        let start = match self {
            Self::Front(offset) => offset,
            Self::Back(offset) => memory.size - offset - span,
        };
        start..start + span
    }

    pub fn random(random: &mut Random) -> Self {
        let offset = random.below(64);
        random.pick(&[Self::Front(offset), Self::Back(offset)])
    }
}

pub const AT_BACK: [Place; 4] = [Place::Back(0); 4];
pub const AT_FRONT: [Place; 4] = [Place::Front(0); 4];
