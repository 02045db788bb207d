//! The shapes of caches whose rows lie in pages.

use smallvec::smallvec;

use super::axis::unfit;
use super::op::Op;
use crate::error::Result;
use crate::types::shape::Dims;

/// The dims of a cache in pages, in their order.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PagedCache {
    pub(crate) pages: i64,
    pub(crate) heads: i64,
    /// Rows of a page.
    pub(crate) page: i64,
    /// Elements of a row.
    pub(crate) depth: i64,
}

impl PagedCache {
    fn of(op: &Op, dims: &[i64]) -> Result<Self> {
        match *dims {
            [_, _, _, depth] if op.inputs()[0].data_type().bits() == 4 && depth % 2 != 0 => {
                Err(unfit(op, 0, dims, "rows of 4-bit elements have an even number of them"))
            }
            [pages, heads, page, depth] => Ok(Self { pages, heads, page, depth }),
            _ => Err(unfit(op, 0, dims, "a cache has dims [pages, heads, rows of a page, elements]")),
        }
    }

    /// Rows of all pages.
    pub(crate) fn slots(&self) -> i64 {
        self.pages.saturating_mul(self.page)
    }
}

/// The rows of sequences that `PagedLoad` gives.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LoadedRows {
    pub(crate) cache: PagedCache,
    /// Sequences, and pages of each.
    pub(crate) sequences: i64,
    pub(crate) entries: i64,
}

impl LoadedRows {
    /// Those of inputs of some shapes.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`](crate::Error::Shape) if the shapes do not go together.
    pub(crate) fn new(op: &Op, inputs: &[&[i64]]) -> Result<Self> {
        let cache = PagedCache::of(op, inputs[0])?;
        let &[sequences, entries] = inputs[1] else {
            return Err(unfit(op, 1, inputs[1], "a table of pages has dims [sequences, pages of each]"));
        };
        if let Some(&lengths) = inputs.get(2)
            && *lengths != [sequences]
        {
            return Err(unfit(op, 2, lengths, "there is a length for each row of the table"));
        }
        match entries.checked_mul(cache.page) {
            Some(_) => Ok(Self { cache, sequences, entries }),
            None => Err(unfit(op, 1, inputs[1], "the sequences have too many rows")),
        }
    }

    /// Rows of a sequence.
    pub(crate) fn rows(&self) -> i64 {
        self.entries * self.cache.page
    }

    /// The shape of the result.
    pub(crate) fn shape(&self) -> Dims {
        smallvec![self.sequences, self.cache.heads, self.rows(), self.cache.depth]
    }
}

/// The cache to which `CacheStore` writes rows.
///
/// # Errors
///
/// [`Error::Shape`](crate::Error::Shape) if the shapes do not go together.
pub(crate) fn cache_of_store(op: &Op, inputs: &[&[i64]]) -> Result<PagedCache> {
    let cache = PagedCache::of(op, inputs[0])?;
    let rows = inputs[1];
    if rows.len() != 3 || rows[1..] != [cache.heads, cache.depth] {
        return Err(unfit(op, 1, rows, "rows have dims [tokens, heads, elements], as the cache has them"));
    }
    match inputs[2] == &rows[..1] {
        true => Ok(cache),
        false => Err(unfit(op, 2, inputs[2], "there is a slot for each token")),
    }
}

/// The shape of the cache to which `CacheStore` has written rows.
pub(crate) fn stored_shape(op: &Op, inputs: &[&[i64]]) -> Result<Dims> {
    cache_of_store(op, inputs).map(|_| inputs[0].into())
}
