"""Tensors of torch, in and out without a copy.

    python python/examples/torch_tensors.py
"""

import torch

import sterna


def main() -> None:
    q, k, v = (torch.randn(2, 8, 256, 64, generator=torch.manual_seed(seed)) for seed in range(3))
    keep = torch.rand(2, 1, 1, 256, generator=torch.manual_seed(3)) < 0.7

    out = torch.empty_like(q)
    sterna.attention(q, k, v, keep, causal=True, out=out)
    i, j = torch.arange(256)[:, None], torch.arange(256)
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=keep & (j <= i))
    # torch gives NaN to a query that sees no key, Sterna 0.
    difference = (out - expected.nan_to_num()).abs().max().item()
    print(f"attention differs by {difference:.1e}")
    assert difference < 1e-4

    scores = torch.randn(4, 6, dtype=torch.bfloat16)
    masked = torch.empty_like(scores)
    sterna.select(scores > 0, scores, float("-inf"), out=masked)
    assert torch.equal(masked, torch.where(scores > 0, scores, float("-inf")))


if __name__ == "__main__":
    main()
