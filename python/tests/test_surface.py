"""What sessions and their parts have in Rust, they have in Python."""

import pathlib
import re

import pytest

import sterna

SOURCES = pathlib.Path(__file__).resolve().parents[2] / "src/session"

# Each public function in Rust, and what it is in Python: an attribute, or an argument of a function.
SURFACE = {
    "Session": {
        "new": "Graph.session",
        "builder": "Graph.session",
        "inputs": "Session.inputs",
        "outputs": "Session.outputs",
        "engine": "Session.engine",
        "run": "Session.run",
        "run_profiled": "Session.run_profiled",
        "plan_profile": "Session.plan_profile",
        "arena_plan": "Session.arena_plan",
        "run_into": "Session.run(out)",
        "output_descs": "Session.output_shapes",
        "output_descs_with_state": "Session.output_shapes(state)",
        "new_state": "Session.new_state",
        "run_with_state": "Session.run(state)",
        "run_with_state_profiled": "Session.run_profiled(state)",
        "run_with_state_into": "Session.run(state)",
        "run_memory": "Session.run_memory",
        "bytes_moved": "Session.bytes_moved",
        "run_steps": "Session.run_steps",
    },
    "SessionBuilder": {
        "op": "Graph.session(ops)",
        "fallback": "Graph.session(fallback)",
        "fpmath": "Graph.session(fpmath)",
        "state": "Graph.session(states)",
        "find_states": "Graph.session(states)",
        "shapes": "Graph.session(kept_shapes)",
        "arenas": "Graph.session(arenas)",
        "build": "Graph.session(engine)",
    },
    "StateLink": {
        "new": "Graph.session(states)",
        "axis": "Graph.session(states)",
        "fixed": "Graph.session(states)",
        "is_fixed": "Graph.find_states",
        "capacity": "Graph.session(states)",
        "window": "Graph.session(states)",
        "past": "Graph.find_states",
        "present": "Graph.find_states",
        "find": "Graph.find_states",
    },
    "SessionState": {
        "len": "State.__len__",
        "is_empty": "State.__len__",
        "capacity": "State.capacity",
        "memory": "State.memory",
        "reset": "State.reset",
        "trim": "State.trim",
        "fork": "State.fork",
        "get": "State.get",
        "set": "State.set",
    },
    # A dict of arrays by name.
    "SessionOutputs": {"get": "Session.run", "iter": "Session.run", "into_tensors": "Session.run"},
    # A list of dicts.
    "RunProfile": {"time_of": "Session.run_profiled"},
    "SpanKind": {"name": "Session.run_profiled", "is_step": "Session.run_profiled"},
}


def functions():
    """The public functions of each type in the sources."""
    found = {}
    for path in sorted(SOURCES.glob("*.rs")):
        owner = None
        for line in path.read_text().splitlines():
            if match := re.match(r"impl(?:<[^>]*>)? (?:[\w<>', ]+ for )?(\w+)", line):
                owner = match[1] if " for " not in line else None
            elif owner and (match := re.match(r"    pub (?:const )?fn (\w+)", line)):
                found.setdefault(owner, set()).add(match[1])
    return found


def test_every_function_of_rust_has_a_row():
    assert {owner: sorted(rows) for owner, rows in functions().items()} == {
        owner: sorted(rows) for owner, rows in SURFACE.items()
    }


@pytest.mark.parametrize("place", sorted({place for rows in SURFACE.values() for place in rows.values()}))
def test_it_is_in_python(place):
    path, _, argument = place.partition("(")
    owner, name = path.split(".")
    member = getattr(getattr(sterna, owner), name)
    if argument:
        assert argument.rstrip(")") in member.__text_signature__
        # What makes a session of a graph, `load` takes too.
        if name == "session":
            assert argument.rstrip(")") in sterna.load.__text_signature__
