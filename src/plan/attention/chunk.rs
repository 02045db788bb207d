//! The sizes in which attention of few queries goes through keys.

use super::tile_class::CLASS_TILE;

/// Keys of a chunk.
pub(crate) const CHUNK: usize = 512;

/// Tiles of classes in a chunk.
pub(crate) const CHUNK_TILES: usize = CHUNK / CLASS_TILE;

/// Most queries of a group.
pub(crate) const DECODE_ROWS: usize = 8;
