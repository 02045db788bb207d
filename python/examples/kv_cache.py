"""Attention over a cache that stays from run to run: a prompt at once, then token after token.

    python python/examples/kv_cache.py
"""

import numpy as np

import sterna

WIDTH, HEADS = 32, 4


def layer() -> sterna.Graph:
    """A layer of attention on tokens [1, tokens, width], with caches of keys and values."""
    random = np.random.default_rng(0)
    g = sterna.GraphBuilder()
    x = g.input("x", "f32", [1, None, WIDTH])
    offset = g.input("offset", "s32", [])

    def projected(name: str, of: sterna.Value) -> sterna.Value:
        return g.matmul(of, g.constant(name, random.standard_normal((WIDTH, WIDTH), np.float32) / 6))

    def in_heads(name: str) -> sterna.Value:
        split = g.reshape(projected(name, x), shape=[1, -1, HEADS, WIDTH // HEADS])
        return g.transpose(split, order=[0, 2, 1, 3])

    def cached(name: str) -> sterna.Value:
        past = g.input(f"past_{name}", "f32", [1, HEADS, None, WIDTH // HEADS])
        present = g.concat([past, in_heads(name)], axis=2)
        g.output(f"present_{name}", present)
        return present

    mixed = g.attention(in_heads("q"), cached("k"), cached("v"), causal=offset)
    joined = g.reshape(g.transpose(mixed, order=[0, 2, 1, 3]), shape=[1, -1, WIDTH])
    g.output("y", projected("out", joined))
    return g.build()


def main() -> None:
    session = layer().session(states=[("past_k", "present_k"), ("past_v", "present_v")])
    tokens = np.random.default_rng(1).standard_normal((1, 24, WIDTH), np.float32)

    def step(state: sterna.State, given: np.ndarray) -> np.ndarray:
        return session.run({"x": given, "offset": len(state)}, state=state)["y"]

    whole = step(session.new_state(), tokens)

    state = session.new_state()
    rows = [step(state, tokens[:, :11])]
    other = state.fork()
    rows += [step(state, tokens[:, at : at + 1]) for at in range(11, 24)]
    difference = float(abs(np.concatenate(rows, axis=1) - whole).max())
    print(f"{len(state)} tokens in steps differ from all at once by {difference:.1e}")
    assert difference < 1e-5

    # Another sequence with the same prompt.
    step(other, -tokens[:, 11:12])
    print(f"{len(other)} tokens in the fork, {other.memory} bytes")


if __name__ == "__main__":
    main()
