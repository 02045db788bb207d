"""Masks of attention in the words of torch, and how much of the scores each leaves out.

    python python/examples/masks.py
"""

import numpy as np

import sterna

QUERIES = KEYS = 512
random = np.random.default_rng(0)
q, k, v = (random.standard_normal((2, 4, QUERIES, 64), np.float32) for _ in range(3))
i, j = np.ogrid[:QUERIES, :KEYS]
lengths = np.array([300, 512])

masks = {
    "causal": {"causal": True},
    "causal, by a tensor": {"mask": j <= i},
    "window of 64": {"causal": True, "window": 64},
    "window to both sides": {"window": 64},
    "padding, attn_mask": {"mask": (np.arange(KEYS) < lengths[:, None])[:, None, None]},
    "padding, key_padding_mask": {"mask": (np.arange(KEYS) >= lengths[:, None])[:, None, None], "mask_true": "drop"},
    "causal documents": {"mask": (j <= i) & (i // 128 == j // 128)},
    "ALiBi": {"causal": True, "bias": (-0.5 * (i - j)).astype(np.float32)},
    "none": {},
}


def main() -> dict[str, float]:
    left_out = {}
    for name, options in masks.items():
        result = sterna.attention(q, k, v, **options)
        tiles = sterna.mask_tiles(q, k, v, **options)
        left_out[name] = float((tiles == sterna.TILE_CLASSES.index("masked")).mean())
        print(f"{name:28} {left_out[name]:5.0%} left out, result {result.shape}")
    padded, dropped = left_out["padding, attn_mask"], left_out["padding, key_padding_mask"]
    assert padded == dropped
    assert left_out["causal"] == left_out["causal, by a tensor"] > 0.4
    return left_out


if __name__ == "__main__":
    main()
