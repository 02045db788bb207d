"""The masks of `benches/attention/masks.rs`, in NumPy: True where a query sees a key."""

from __future__ import annotations

import numpy as np

FEW_KEYS = 4
GLOBAL_KEYS = 16


def mixed(at):
    """A number that follows no simple pattern, always the same for the same place."""
    with np.errstate(over="ignore"):
        x = np.asarray(at, np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ x >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ x >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
        return x ^ x >> np.uint64(31)


def document_ends(size):
    """Ends of documents of very different lengths, 0 first."""
    ends, at = [0], 0
    while size - at > size // 16:
        left = size - at
        at += max(left // 4 + int(mixed(at)) % max(left // 2, 1), 1)
        ends.append(at)
    return ends if at >= size else [*ends, size]


def masks(size):
    """Every mask by name, for so many queries and keys."""
    position = np.arange(size)
    query, key = position[:, None], position[None, :]
    window = max(size // 16, 1)
    ends = document_ends(size)
    ids = np.searchsorted(np.array(ends[1:]), position, side="right")
    prefixes = np.concatenate([np.full(end - begin, (begin + end) // 2) for begin, end in zip(ends, ends[1:])])
    answers = position // max(size // 8, 1)
    chunks = np.minimum(answers, 4)
    evicted = position + 1 + (mixed(position) % (size - position).astype(np.uint64)).astype(np.int64)
    causal = key <= query
    near = query - key < window

    def same(numbers):
        return numbers[:, None] == numbers[None, :]

    def band(start, queries):
        return (start <= key) & (key < start + size // 32) & (queries <= query)

    def same_chunk(length):
        return same(position // length)

    drawn = mixed(query.astype(np.uint64) << np.uint64(32) | key.astype(np.uint64)) % np.uint64(10_000)
    by_name = {
        "full": key >= 0,
        "causal": causal,
        "window": causal & near,
        "causal-document": causal & same(ids),
        "document": same(ids),
        "share-question": causal & ((key < size // 2) | same(answers)),
        "global-window": causal & ((key < GLOBAL_KEYS) | (query < GLOBAL_KEYS) | near),
        "causal-blockwise": causal & (same(chunks) | (chunks == 4)[:, None]),
        "prefix-lm": causal | (key < size // 2),
        "prefix-lm-document": same(ids) & (causal | (key < prefixes[:, None])),
        "qk-sparse": causal & ~(band(size // 8, size // 2) | band(size // 4, 3 * size // 4)),
        "random-eviction": causal & (query < evicted[None, :]),
        "padding": key < max(size * 3 // 5, 1),
        "sink-window": causal & ((key < FEW_KEYS) | near),
        "strided": causal & (same_chunk(64) | (key % 256 < 64)),
        "chunked-local": causal & same_chunk(max(size // 8, 1)),
        "random-50": drawn < 5_000,
        "random-1": drawn < 100,
    }
    return {name: np.array(np.broadcast_to(mask, (size, size))) for name, mask in by_name.items()}


def tiles_kept(mask, tile=64):
    """The share of tiles with any key that is seen."""
    rows = np.logical_or.reduceat(mask, range(0, mask.shape[0], tile), axis=0)
    return np.logical_or.reduceat(rows, range(0, mask.shape[1], tile), axis=1).mean()
