"""`attention` gives what its formula says, for every option, and finds what masks leave out."""

import math

import ml_dtypes
import numpy as np
import pytest

import sterna


def heads(*shape, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32).astype(dtype)


def formula(
    q, k, v, keep=None, bias=0.0, scale=None, softcap=None, sinks=None, nan_without_keys=False
):  # fmt: skip
    """The formula in f64, with `keep` as the booleans of all masks."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    scores = q @ np.swapaxes(k, -1, -2) * (scale or 1 / math.sqrt(q.shape[-1]))
    if softcap:
        scores = softcap * np.tanh(scores / softcap)
    scores = scores + bias
    if keep is not None:
        scores = np.where(keep, scores, -np.inf)
    if sinks is not None:
        sinks = np.broadcast_to(sinks, (*scores.shape[:-1], 1)).astype(np.float64)
        scores = np.concatenate([scores, sinks], -1)
    with np.errstate(invalid="ignore"):
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights = weights / weights.sum(-1, keepdims=True)
    if not nan_without_keys:
        weights = np.nan_to_num(weights)
    if sinks is not None:
        weights = weights[..., :-1]
    return weights @ v


def close(given, expected, tolerance=2e-5):
    np.testing.assert_allclose(given.astype(np.float64), expected, atol=tolerance, rtol=tolerance)


ROWS, COLUMNS = np.arange(70)[:, None], np.arange(90)[None, :]


@pytest.mark.parametrize(
    ("options", "keep"),
    [
        ({}, None),
        ({"causal": False}, None),
        ({"causal": True}, COLUMNS <= ROWS),
        ({"causal": "top_left"}, COLUMNS <= ROWS),
        ({"causal": "bottom_right"}, COLUMNS <= ROWS + 20),
        ({"causal": 7}, COLUMNS <= ROWS + 7),
        ({"causal": np.array(7, np.int32)}, COLUMNS <= ROWS + 7),
        ({"causal": np.array([7, 3], np.int32)[:, None, None, None]},
         COLUMNS <= ROWS + np.array([7, 3])[:, None, None, None]),
        ({"causal": True, "window": 9}, (COLUMNS <= ROWS) & (COLUMNS > ROWS - 9)),
        ({"window": 9}, abs(COLUMNS - ROWS) < 9),
        ({"nan_without_keys": True}, None),
    ],
)  # fmt: skip
def test_masks_by_position(options, keep):
    q, k, v = heads(2, 3, 70, 16), heads(2, 3, 90, 16, seed=1), heads(2, 3, 90, 8, seed=2)
    close(sterna.attention(q, k, v, **options), formula(q, k, v, keep))


def test_masks_and_their_meaning():
    q, k, v = heads(2, 3, 70, 16), heads(2, 3, 90, 16, seed=1), heads(2, 3, 90, 16, seed=2)
    mask = np.random.default_rng(3).random((2, 1, 70, 90)) < 0.7
    close(sterna.attention(q, k, v, mask), formula(q, k, v, mask))
    close(sterna.attention(q, k, v, mask, mask_true="drop"), formula(q, k, v, ~mask))
    bias = heads(3, 70, 90, seed=4)
    close(sterna.attention(q, k, v, bias), formula(q, k, v, bias=bias))
    close(sterna.attention(q, k, v, bias=bias), formula(q, k, v, bias=bias))
    close(sterna.attention(q, k, v, mask, bias=bias), formula(q, k, v, mask, bias))
    padding = np.arange(90) < np.array([[50], [90]])
    close(sterna.attention(q, k, v, padding[:, None, None]), formula(q, k, v, padding[:, None, None]))
    nothing = np.zeros((90,), bool)
    assert not sterna.attention(q, k, v, nothing).any()
    assert np.isnan(sterna.attention(q, k, v, nothing, nan_without_keys=True)).all()


def test_scores():
    q, k, v = heads(3, 70, 16), heads(3, 90, 16, seed=1), heads(3, 90, 16, seed=2)
    close(sterna.attention(q, k, v, scale=0.5), formula(q, k, v, scale=0.5))
    close(sterna.attention(q, k, v, softcap=2.0), formula(q, k, v, softcap=2.0))
    sinks = np.array([0.5, -1.0, 2.0], np.float32)[:, None, None]
    close(sterna.attention(q, k, v, sinks=sinks), formula(q, k, v, sinks=sinks))
    transposed = np.ascontiguousarray(np.swapaxes(k, -1, -2))
    close(sterna.attention(q, transposed, v, k_transposed=True), formula(q, k, v))
    result, stats = sterna.attention(q, k, v, stats=True)
    close(result, formula(q, k, v))
    scores = q.astype(np.float64) @ np.swapaxes(k, -1, -2) / 4
    close(stats, np.log(np.exp(scores).sum(-1, keepdims=True)))


def test_groups_of_heads():
    q, k, v = heads(2, 6, 70, 16), heads(2, 3, 90, 16, seed=1), heads(2, 3, 90, 16, seed=2)
    expected = formula(q, np.repeat(k, 2, 1), np.repeat(v, 2, 1), COLUMNS <= ROWS)
    close(sterna.attention(q, k, v, causal=True, groups=2), expected)
    out = np.empty((2, 6, 70, 16), np.float32)
    assert sterna.attention(q, k, v, causal=True, groups=2, out=out) is out
    close(out, expected)
    of_tokens = np.empty((2, 70, 6, 16), np.float32)
    sterna.attention(q, k, v, causal=True, groups=2, out=of_tokens.swapaxes(1, 2))
    close(of_tokens.swapaxes(1, 2), expected)
    _, stats = sterna.attention(q, k, v, causal=True, groups=2, stats=True)
    assert stats.shape == (2, 6, 70, 1)


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float16, 2e-3), (ml_dtypes.bfloat16, 2e-2)])
def test_types(dtype, tolerance):
    q, k, v = heads(3, 70, 16, dtype=dtype), heads(3, 90, 16, dtype=dtype, seed=1), heads(3, 90, 16, dtype=dtype, seed=2)
    result = sterna.attention(q, k, v, causal=True)
    assert result.dtype == dtype
    close(result, formula(q, k, v, COLUMNS <= ROWS), tolerance)
    close(sterna.attention(q, k, v, score_type=dtype), formula(q, k, v), 8 * tolerance)


def test_strides_and_out():
    tokens = heads(2, 70, 3, 3, 16)
    q, k, v = (tokens[:, :, i].swapaxes(1, 2) for i in range(3))
    expected = formula(q, k, v)
    close(sterna.attention(q, k, v), expected)
    out = np.full((2, 70, 3, 16), 7, np.float32)
    assert sterna.attention(q, k, v, out=out.swapaxes(1, 2)) is not None
    close(out.swapaxes(1, 2), expected)
    with pytest.raises(sterna.ShapeError):
        sterna.attention(q, k, v, out=out)
    out.flags.writeable = False
    with pytest.raises(sterna.ArrayError, match="read-only"):
        sterna.attention(q, k, v, out=out.swapaxes(1, 2))


def test_the_engine_of_a_block():
    q = heads(2, 8, 16)
    with sterna.Engine(threads=1):
        close(sterna.attention(q, q, q), formula(q, q, q))


def test_options_that_do_not_do():
    q = heads(2, 8, 16)
    for options, error, word in [
        ({"mask_true": "yes"}, sterna.AttentionError, "mask_true"),
        ({"causal": "left"}, sterna.AttentionError, "causal"),
        ({"window": 0}, sterna.AttentionError, "window"),
        ({"groups": 3}, sterna.Error, "groups"),
        ({"score_type": "f33"}, sterna.ArrayError, "f33"),
        ({"score_type": "f64"}, sterna.Error, "score_type"),
        ({"windows": 1}, TypeError, "windows"),
        ({"scale": "big"}, TypeError, None),
        ({"causal": 1.5}, sterna.Error, None),
        ({"mask": np.zeros((3, 3), bool)}, sterna.ShapeError, None),
        ({"mask": np.zeros(8, np.float32), "bias": np.zeros(8, np.float32)}, sterna.AttentionError, "both"),
    ]:  # fmt: skip
        with pytest.raises(error, match=word):
            sterna.attention(q, q, q, **options)
    with pytest.raises(sterna.Error):
        sterna.attention(q.astype(np.float64), q.astype(np.float64), q.astype(np.float64))
    with pytest.raises(sterna.Error):
        sterna.attention(q, q[:, :, :4], q)


def test_many_shapes_leave_the_cache_bounded():
    for length in range(1, 400):
        q = np.ones((1, length, 2), np.float32)
        assert sterna.attention(q, q, q, causal=True).shape == q.shape


def test_mask_tiles():
    q = heads(2, 256, 16)
    tiles = sterna.mask_tiles(q, q, q, causal=True, window=64)
    names = [[sterna.TILE_CLASSES[tile] for tile in row] for row in tiles[0]]
    assert names[2] == ["masked", "partial", "partial", "masked"]
    assert (sterna.mask_tiles(q, q, q) == 1).all()
    assert sterna.mask_tiles(q, q, q).shape == (1, 4, 4)
    mask = np.zeros((2, 1, 256), bool)
    mask[0, 0, :64] = mask[1, 0, 64:128] = True
    tiles = sterna.mask_tiles(q, q, q, mask)
    assert tiles[0, 0].tolist() == [1, 3, 3, 3] and tiles[1, 0].tolist() == [3, 1, 3, 3]
