//! Memory whose size a graph or a file says, and which may be more than there is.

use anyhow::{Context, Result};

/// An empty list with room for `count` elements of `size` bytes.
pub(crate) fn room_for(count: usize, size: usize) -> Result<Vec<u8>> {
    let mut list = Vec::new();
    let bytes = count.checked_mul(size).context("it has more elements than memory can hold")?;
    list.try_reserve_exact(bytes).with_context(|| format!("there is no memory for its {bytes} bytes"))?;
    Ok(list)
}
