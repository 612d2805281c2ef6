"""Builds a verified program in the caller's process, and binds it to the caller's own weights. (torch)

The program was verified by kforge, and runs with all rights of the caller's process.
"""

from __future__ import annotations

import linecache
import sys
import types
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from kforge.drop_in.calls import ALIGNMENT
from kforge.problems.live.exporting import one_line
from kforge.problems.randomness import seeded

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class Unusable(Exception):
    """Raised if the program cannot be built or cannot be bound to the weights. The message says why, in one line."""


@dataclass
class Recipe:
    """What a program is built from: its source, the arguments of its constructor, and tensors that the caller's module
    does not hold."""

    source: str
    arguments: tuple[Any, ...] = ()
    constants: dict[str, torch.Tensor] = field(default_factory=dict)
    """Large constants of the traced graph that are neither parameters nor buffers of the module, by name."""
    updates_state: bool = False
    """Whether a call of the module writes into its buffers, so that the program must do so, too."""


class Program:
    """An object of the program's class `ModelNew` that computes with the weights of another module."""

    def __init__(self, recipe: Recipe, weights: Mapping[str, torch.Tensor], device: torch.device) -> None:
        """Build the program and bind it to the weights, by name. Raises Unusable."""
        self.recipe = recipe
        self.model = self._made(device)
        own = _state(self.model)
        theirs = {name: self._found(name, each, weights, device) for name, each in own.items()}
        if not _share_memory(own, theirs):
            if recipe.updates_state:
                raise Unusable("the program needs copies of buffers that the module updates")
            self.model = self._made(device)
            with torch.no_grad():
                for name, each in _state(self.model).items():
                    each.copy_(theirs[name])
        for each in self.model.parameters():
            each.requires_grad_(False)
        self._bound = [(registry, name, registry[name], theirs[key]) for registry, name, key in _places(self.model)]

    def __call__(self, *args: Any) -> Any:
        output = self.model(*args)
        if self.recipe.updates_state:
            self._write_back()
        return output

    def _write_back(self) -> None:
        """Copy to the caller's module those buffers that the program replaced instead of writing into them."""
        for registry, name, bound, original in self._bound:
            if registry[name] is not bound:
                original.copy_(registry[name])
                registry[name] = bound

    def _made(self, device: torch.device) -> nn.Module:
        """Return a new `ModelNew`, with the weights that its constructor makes. Raises Unusable."""
        module = _execute(self.recipe.source)
        try:
            with seeded(0), _usual_defaults():
                made = module.ModelNew(*self.recipe.arguments)
                model: nn.Module = made.to(device)
        except Exception as error:
            raise Unusable(f"ModelNew cannot be constructed: {one_line(error)}") from error
        return model

    def _found(
        self, name: str, own: torch.Tensor, weights: Mapping[str, torch.Tensor], device: torch.device
    ) -> torch.Tensor:
        """Return the tensor of the caller's module that corresponds to this tensor of the program. Raises Unusable."""
        theirs = weights.get(name)
        if theirs is None:
            theirs = self.recipe.constants.get(name)
            theirs = theirs.to(device) if theirs is not None else None
        if theirs is None:
            raise Unusable(f"the program has a tensor '{name}', which the module does not have")
        if (theirs.shape, theirs.dtype, theirs.device) != (own.shape, own.dtype, own.device):
            raise Unusable(f"'{name}' of the module has another shape, dtype or device than that of the program")
        return theirs


def _execute(source: str) -> types.ModuleType:
    digest = sha256(source.encode()).hexdigest()[:12]
    module = types.ModuleType(f"kforge_program_{digest}")
    filename = f"<kforge program {digest}>"
    module.__file__ = filename
    # Compilers of kernels and tracebacks read the source through inspect, which needs both.
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    sys.modules[module.__name__] = module
    try:
        with _usual_defaults():
            code = compile(source, filename, "exec", dont_inherit=True)  # without this file's `__future__` imports
            exec(code, module.__dict__)  # noqa: S102 - the user chose this program
    except Exception as error:
        raise Unusable(f"the program cannot be loaded: {one_line(error)}") from error
    return module


def _share_memory(own: Mapping[str, torch.Tensor], theirs: Mapping[str, torch.Tensor]) -> bool:
    """Make the program's tensors use the memory of the caller's tensors. Returns False if that is not possible and
    copies are needed.

    Copies are needed if the caller's tensors have another memory layout than the verified ones, or if the program keeps
    views of the memory that its constructor made.
    """
    if not all(_lie_alike(each, theirs[name]) for name, each in own.items()):
        return False
    before = {each.untyped_storage()._cdata: each.untyped_storage() for each in own.values()}
    for name, each in own.items():
        each.data = theirs[name].detach()
    return all(torch._C._storage_Use_Count(cdata) == 1 for cdata in before)


def _lie_alike(own: torch.Tensor, theirs: torch.Tensor) -> bool:
    same = own.stride() == theirs.stride() or (own.is_contiguous() and theirs.is_contiguous())
    return same and theirs.data_ptr() % ALIGNMENT == 0


def _state(model: nn.Module) -> dict[str, torch.Tensor]:
    """Return the module's parameters and persistent buffers, not copies of them, by name. These are the tensors that
    the evaluator sets."""
    return dict(model.state_dict(keep_vars=True))


def _places(model: nn.Module) -> Iterator[tuple[dict[str, Any], str, str]]:
    """Yield where each tensor of the state is registered: the dictionary, the key in it, and the full dotted name."""
    state = _state(model)
    for prefix, owner in model.named_modules(remove_duplicate=False):
        for registry in (owner._parameters, owner._buffers):
            for name in registry:
                whole = f"{prefix}.{name}" if prefix else name
                if whole in state:
                    yield registry, name, whole


@contextmanager
def _usual_defaults() -> Iterator[None]:
    """Set torch's default dtype to float32 inside the `with` block, because programs rely on it."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
