"""Builds a verified program in the caller's process, with the caller's own weights. (torch)

This executes a program that kforge has verified, with all rights of the caller's process.
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
    """The program cannot be built or bound here; the message says why, in one line."""


@dataclass
class Recipe:
    """What the program is built from: its source, its constructor's arguments, and tensors that the module lacks."""

    source: str
    arguments: tuple[Any, ...] = ()
    constants: dict[str, torch.Tensor] = field(default_factory=dict)
    """Large constants of the traced module that are not its parameters or buffers."""
    updates_state: bool = False
    """Whether the module writes into its buffers. The program must then do so, too."""


class Program:
    """A `ModelNew` that computes with the weights of another module."""

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
        """Copy buffers back to the caller's module: a program may replace a buffer instead of writing into it."""
        for registry, name, bound, original in self._bound:
            if registry[name] is not bound:
                original.copy_(registry[name])
                registry[name] = bound

    def _made(self, device: torch.device) -> nn.Module:
        """Return the program's own module, with the weights that its constructor makes."""
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
        """Return the tensor of the caller's module that corresponds to this tensor of the program."""
        theirs = weights.get(name)
        if theirs is None:
            theirs = self.recipe.constants.get(name)
            theirs = theirs.to(device) if theirs is not None else None
        if theirs is None:
            raise Unusable(f"the program holds '{name}', which the module does not")
        if (theirs.shape, theirs.dtype, theirs.device) != (own.shape, own.dtype, own.device):
            raise Unusable(f"'{name}' of the module is not like that of the program")
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
            code = compile(source, filename, "exec", dont_inherit=True)  # not our own `__future__` imports
            exec(code, module.__dict__)  # noqa: S102 - verified, and what a user asked for
    except Exception as error:
        raise Unusable(f"the program does not load: {one_line(error)}") from error
    return module


def _share_memory(own: Mapping[str, torch.Tensor], theirs: Mapping[str, torch.Tensor]) -> bool:
    """Give the program's tensors the memory of the caller's. Returns False where only copies work.

    Copies are needed where the caller's tensors have another memory layout than the verified ones, and where the
    program keeps views of the memory that its constructor made.
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
    """Return parameters and persistent buffers themselves, as the evaluator sets them."""
    return dict(model.state_dict(keep_vars=True))


def _places(model: nn.Module) -> Iterator[tuple[dict[str, Any], str, str]]:
    """Yield where each tensor of the state is registered: the registry, the name in it, and the full name."""
    state = _state(model)
    for prefix, owner in model.named_modules(remove_duplicate=False):
        for registry in (owner._parameters, owner._buffers):
            for name in registry:
                whole = f"{prefix}.{name}" if prefix else name
                if whole in state:
                    yield registry, name, whole


@contextmanager
def _usual_defaults() -> Iterator[None]:
    """Set float32 as torch's default dtype, for which programs are written."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
