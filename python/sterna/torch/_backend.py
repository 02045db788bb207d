"""The backend of `torch.compile`."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch.fx import GraphModule, Node

import sterna

from . import _aten
from ._in_place import put_in_place
from ._resize import keep_resizing_whole
from ._rest import join_rest
from ._runtime import Program, generation, program_of
from ._sizes import Unknown

#: Programs that a graph keeps for the sizes, strides and numbers of threads it was called with.
KEPT_PROGRAMS = 64
#: Once a graph has so many programs, sizes get one when they come for the second time: those of a cache that grows by
#: each call never do, and a program costs more than many calls.
AT_ONCE = 8
#: Sizes that are remembered for that.
SEEN = 4096
#: Who may run the ops that Sterna does not take.
RESTS = ("torch", "inductor")

_watchers: list[Callable[[Compiled, Program | None], None]] = []


@contextmanager
def watching(watcher: Callable[[Compiled, Program | None], None]) -> Generator[None]:
    """Calls a function for each program that is made in a block, and with None for each run in torch alone."""
    _watchers.append(watcher)
    try:
        yield
    finally:
        _watchers.remove(watcher)


class Options(NamedTuple):
    """What ``options`` of ``torch.compile`` may say."""

    #: If products keep packed copies of parameters between calls.
    packed: bool = True
    #: Who runs the ops that Sterna does not take.
    rest: str = "torch"

    @staticmethod
    def of(given: Mapping[str, Any]) -> Options:
        unknown = sorted(given.keys() - set(Options._fields))
        if unknown:
            raise ValueError(f"no option {unknown[0]!r}: there are {', '.join(Options._fields)}")
        made = Options(**given)
        if not isinstance(made.packed, bool):
            raise ValueError(f"packed is True or False, not {made.packed!r}")
        if made.rest not in RESTS:
            raise ValueError(f"rest is one of {', '.join(RESTS)}, not {made.rest!r}")
        return made


class Compiled:
    """A graph of aten ops that runs in Sterna as far as it can."""

    def __init__(self, role: str, module: GraphModule, options: Options = Options()) -> None:
        # torch hands its arguments over in a list that is emptied. It copies what an object says of that, not
        # what a class says.
        self._boxed_call = True
        self.role, self.module, self.options = role, module, options
        #: Why torch keeps nodes, or the whole graph.
        self.kept: dict[Node, str] = dict.fromkeys(put_in_place(module), "it writes to an input")
        self.reason: str | None = None
        nodes = list(module.graph.nodes)
        places = [node for node in nodes if node.op == "placeholder"]
        self.sizes = [index for index, node in enumerate(places) if not isinstance(node.meta.get("val"), torch.Tensor)]
        self.programs: dict[Any, list[Program]] = {}
        self.seen: dict[Any, None] = {}
        if any(not is_on_cpu(value) for node in nodes for value in tensors_of(node)):
            self.reason = "a tensor lies on a device"

    def __call__(self, args: list[Any]) -> Any:
        if self.reason is None:
            sizes = [args[index] for index in self.sizes]
            key = (torch.get_num_threads(), generation(), *[one for one in sizes if type(one) is not torch.SymInt])
            for program in self.programs.get(key, ()):
                if program.fits(args):
                    return run(program, args)
            found = self.compile(key, args) if self.is_worth(key) else None
            if found is not None:
                return run(found, args)
        for watcher in _watchers:
            watcher(self, None)
        given = list(args)
        args.clear()
        return self.module.forward(*given)

    def is_worth(self, key: Any) -> bool:
        """If sizes are to have a program."""
        if key in self.seen or len(self.programs) < AT_ONCE:
            return True
        if len(self.seen) >= SEEN:
            del self.seen[next(iter(self.seen))]
        self.seen[key] = None
        return False

    def compile(self, key: Any, args: list[Any]) -> Program | None:
        """A program for arguments; None if torch keeps the whole graph."""
        try:
            packs = self.role == "inference" and self.options.packed
            join = join_rest if self.options.rest == "inductor" else None
            program = program_of(_aten.ROWS, self.module, args, key[0], self.kept, packs=packs, join=join)
        except Unknown as error:
            self.reason = str(error)
            return None
        if sum(map(len, self.programs.values())) >= KEPT_PROGRAMS:
            del self.programs[next(iter(self.programs))]
        self.programs.setdefault(key, []).append(program)
        for watcher in _watchers:
            watcher(self, program)
        return program


def run(program: Program, args: list[Any]) -> list[Any]:
    """The results of a program. An index that leads nowhere is an error as torch has it."""
    try:
        return program.run(args)
    except sterna.ExecuteError as error:
        if error.fault != "IndexOutOfRange":
            raise
        raise IndexError(f"index out of range, at place {error.place} of the indices") from error


def tensors_of(node: Node) -> list[torch.Tensor]:
    value = node.meta.get("val")
    found = value if isinstance(value, (tuple, list)) else (value,)
    return [one for one in found if isinstance(one, torch.Tensor)]


def is_on_cpu(tensor: torch.Tensor) -> bool:
    return tensor.device.type == "cpu"


def _compiler(role: str, options: Options) -> Callable[[GraphModule, Sequence[Any]], Compiled]:
    def compile(module: GraphModule, example_inputs: Sequence[Any]) -> Compiled:
        module.graph.eliminate_dead_code()
        return Compiled(role, module, options)

    return compile


def backend(
    module: GraphModule, example_inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None, mode: Any = None
) -> Callable[..., Any]:
    """The backend ``sterna`` of ``torch.compile``: what Sterna has as an op runs in its partitions, all else in
    torch.

    Args:
        module, example_inputs: what ``torch.compile`` hands over.
        options: ``packed``, which is True unless products are to keep no packed copies of parameters between calls,
            and ``rest``, which is ``"torch"`` unless ``"inductor"`` is to compile what Sterna does not take.
        mode: changes nothing.

    Returns:
        The function that runs in place of the module.

    >>> import torch, sterna.torch
    >>> function = torch.compile(lambda x: torch.relu(x) + 1, backend=sterna.torch.backend)
    >>> function(torch.tensor([-1.0, 2.0]))
    tensor([1., 3.])
    """
    from torch._dynamo.backends.common import aot_autograd

    known = Options.of(options or {})
    made = aot_autograd(
        fw_compiler=_compiler("forward", known),
        bw_compiler=_compiler("backward", known),
        inference_compiler=_compiler("inference", known),
        decompositions=_aten.decompositions(),
        keep_inference_input_mutations=True,
    )
    keep_resizing_whole(module)
    compiled: Callable[..., Any] = made(module, example_inputs)
    return compiled
