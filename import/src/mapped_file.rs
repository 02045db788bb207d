//! Files that are mapped to memory. No other file of the crate holds `unsafe`.

use std::fs::File;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use memmap2::Mmap;

/// A whole file in memory. Whoever changes the file changes the bytes, and whoever cuts it off lets the next
/// look at them end the process: that is what [`Options::own_constants`](crate::Options::own_constants)
/// avoids.
#[derive(Debug, Clone)]
pub(crate) struct MappedFile(Arc<Mmap>);

impl AsRef<[u8]> for MappedFile {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl MappedFile {
    #[allow(unsafe_code, reason = "the system maps files without a promise that they stay as they are")]
    pub(crate) fn new(file: &File) -> io::Result<Self> {
        // SAFETY: the mapping is for reading alone. That no one changes or cuts off the file while it is
        // mapped is what the documentation asks of the caller.
        let mapping = unsafe { Mmap::map(file)? };
        Ok(Self(Arc::new(mapping)))
    }

    /// Lets the system have the memory of a part, and of what shares its pages; a look at it reads the file
    /// again. Elsewhere than on Linux it stays.
    #[cfg_attr(target_os = "linux", allow(unsafe_code, reason = "memmap2 knows no file that stays as it is"))]
    pub(crate) fn release(&self, part: &Bytes) {
        let place = part.as_ptr().addr().checked_sub(self.0.as_ptr().addr());
        let Some(place) = place.filter(|place| place + part.len() <= self.0.len()) else { return };
        #[cfg(target_os = "linux")]
        // SAFETY: pages of a file that is mapped for reading alone come back with the bytes of the file,
        // which stay as they are, as `new` asks of the caller.
        let _ =
            unsafe { self.0.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, place, part.len()) };
        #[cfg(not(target_os = "linux"))]
        let _ = place;
    }
}
