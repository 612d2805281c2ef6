"""Finds ascending inputs that a module would also accept in any other order. (torch)

Rows that are ascending in every draw stay ascending in all cases, because they may be the edges of bins. But a module
that sorts such an input itself, or takes its extremes, accepts any order. A program that leaves out the sort, or takes
the ends of rows as their extremes, is wrong for its user.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from kforge.problems.inputs.discrete import shuffled
from kforge.problems.randomness import seeded
from kforge.problems.tensors import cloned, tensors_in

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from torch import nn

    from kforge.problems.inputs.structure import Structure
    from kforge.problems.instance import Instance

SORTS = ("sort", "argsort", "msort", "topk", "unique", "median", "nanmedian", "kthvalue", "quantile", "nanquantile",
         "mode")  # fmt: skip
"""torch functions that sort, or whose result is trivial if their argument is already sorted."""
_POOLED = ("max_pool1d", "max_pool2d", "max_pool3d")
EXTREMES = ("max", "min", "amax", "amin", "aminmax", "argmax", "argmin", "cummax", "cummin", *_POOLED,
            *(f"adaptive_{name}" for name in _POOLED), *(f"{name}_with_indices" for name in _POOLED),
            *(f"adaptive_{name}_with_indices" for name in _POOLED), "fractional_max_pool2d_with_indices",
            "fractional_max_pool3d_with_indices")  # fmt: skip
"""Functions that take extremes, whose result is trivial for sorted numbers. They do not prove that a module accepts any
order: it may also search in a tensor that it made from the input."""
ELEMENTWISE = ("add", "sub", "rsub", "mul", "div", "true_divide", "neg", "__radd__", "__rsub__", "__rmul__",
               "__rdiv__", "exp", "log", "sqrt", "clone", "contiguous", "to", "float", "double")  # fmt: skip
"""Functions whose result has the same order as their argument, such as shifting and scaling."""
NEEDS_ORDER = {"searchsorted": (0, "sorted_sequence"), "bucketize": (1, "boundaries"), "histogram": (1, "bins")}
"""Functions that search sorted numbers, with position and name of the argument that must be sorted."""
SEED = 31
"""Seed of the module that is called. It need not be secret, because this tests only the problem."""


class _Handed(TorchFunctionMode):
    """A mode of torch that records the addresses of the tensors that are passed to the functions in SORTS, EXTREMES and
    NEEDS_ORDER."""

    def __init__(self, watched: Collection[int]) -> None:
        """`watched` holds the addresses of the ascending tensors. A tensor computed elementwise from one of them counts
        as that one."""
        super().__init__()
        self._watched = set(watched)
        self.sorted: set[int] = set()
        self.extremes: set[int] = set()
        self.needed: set[int] = set()
        """Memory addresses of the tensors that must be sorted, because the module searches in them."""
        self._sources: dict[int, set[int]] = {}
        """The addresses of the tensors from which an elementwise result was made, by the address of the result."""
        self._alive: list[Tensor] = []
        """The derived tensors. They are kept so that no other tensor gets their memory."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, kwargs = getattr(func, "__name__", ""), kwargs or {}
        if name in EXTREMES:
            self.extremes |= self._memory([*args, *kwargs.values()])
        elif name in SORTS or name in NEEDS_ORDER:
            position, word = NEEDS_ORDER.get(name, (len(args), ""))
            self.sorted |= self._memory([*args, *kwargs.values()])
            self.needed |= self._memory([*args[position : position + 1], kwargs.get(word)])
        result = func(*args, **kwargs)
        if name in ELEMENTWISE and isinstance(result, Tensor):
            given = tensors_in([*args, *kwargs.values()])
            rows = [tensor for tensor in given if tensor.dim() and tensor.shape[-1] > 1]
            # a second operand with more than one number per row may change the order
            if len(rows) == 1 and not self._watched.isdisjoint(sources := self._memory(rows)):
                self._sources[result.data_ptr()] = sources
                self._alive.append(result)
        return result

    def _memory(self, values: list[Any]) -> set[int]:
        """Return the addresses of these tensors, or of the tensors from which they were made."""
        places = [tensor.data_ptr() for tensor in tensors_in(values)]
        return {source for place in places for source in self._sources.get(place, {place})}


def sorted_inputs(instance: Instance, inputs: list[Any], structure: Structure) -> list[int]:
    """Return the positions of the tensors that are given in ascending order although the module accepts any order.

    Raises ProblemError if the module cannot be constructed.
    """
    ordered = [place for place, leaf in enumerate(structure.leaves) if leaf.ascending]
    tensors = tensors_in(inputs := cloned(inputs))
    if not ordered:
        return []
    with seeded(SEED):
        model = instance.make_model()
    memory: dict[int | None, set[int]] = {}
    for place, tensor in zip(structure.places_of(inputs), tensors, strict=True):
        memory.setdefault(place, set()).add(tensor.data_ptr())
    handed = _handed(model, inputs, {each for place in ordered for each in memory.get(place, ())})
    if handed is None:
        return []
    every = set().union(*memory.values())
    found = handed.sorted if handed.needed - every else handed.sorted | handed.extremes
    return [place for place in ordered if place in memory and memory[place] <= found - handed.needed]


def _handed(model: nn.Module, inputs: list[Any], watched: Collection[int]) -> _Handed | None:
    """Call the module once, and return what was recorded; None if the call fails. The call may change module and
    inputs."""
    handed = _Handed(watched)
    try:
        with torch.no_grad(), seeded(SEED), handed:
            model(*inputs)
    except Exception:  # an error of the module is reported where its result is needed
        return None
    return handed


def in_any_order(model: nn.Module, inputs: list[Any], names: Collection[str]) -> set[str]:
    """Return those of the `names` whose entries of the module's state need no order: no search such as
    `torch.bucketize` uses them as its sorted numbers.

    The set is empty if the module searches in a tensor that is neither an input nor an entry, because that tensor may
    have been made from an entry. The module is called once, which may change it and the inputs.
    """
    state = {name: value.data_ptr() for name, value in model.state_dict().items()}
    known = {*state.values(), *(tensor.data_ptr() for tensor in tensors_in(inputs))}
    handed = _handed(model, inputs, [state[name] for name in names])
    if handed is None or handed.needed - known:
        return set()
    return {name for name in names if state[name] not in handed.needed}


def unordered(
    inputs: Sequence[Any], generator: torch.Generator, structure: Structure, places: Collection[int]
) -> list[Any]:
    """Return the same inputs with these tensors shuffled within their rows."""
    leaves = [
        replace(leaf, ascending=False, total=None) if place in places else replace(leaf, kind="other")
        for place, leaf in enumerate(structure.leaves)
    ]
    return shuffled(inputs, generator, structure.with_leaves(leaves))
