"""Records everything in the caller's module that a program relies on, and detects later changes. (torch)

A module can change in many ways between two calls: a training step writes into its weights, `load_state_dict` and `to`
replace them, user code sets `eps` or swaps a submodule. A `Snapshot` detects each of these with a few lookups;
`Verified` then decides whether the program may still be used.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain, repeat
from operator import attrgetter, contains, is_, itemgetter
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from kforge.drop_in import Obstacle
from kforge.drop_in.calls import PLAIN

if TYPE_CHECKING:
    from collections.abc import Iterator

SIMPLE = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size)
REGISTRIES = ("_parameters", "_buffers", "_modules", "_forward_hooks", "_forward_pre_hooks")
AGAIN = "forge the module again as it is now"


def named_tensors(module: nn.Module) -> dict[str, torch.Tensor]:
    """Return all parameters, buffers and tensors that are plain attributes, by dotted name. A tensor with several names
    is listed under each."""
    named = {}
    for prefix, owner in module.named_modules(remove_duplicate=False):
        for registry in (vars(owner), owner._buffers, owner._parameters):
            for name, value in registry.items():
                if isinstance(value, torch.Tensor):
                    named[f"{prefix}.{name}" if prefix else name] = value
    return named


class Snapshot:
    """The state of a module at one moment. Comparing uses loops in C, because every call does it."""

    def __init__(self, module: nn.Module) -> None:
        members = list(module.modules())
        self._registries = [getattr(member, name) for member in members for name in REGISTRIES]
        self._sizes = list(map(len, self._registries))
        self._filled = [registry for registry in self._registries if registry]
        self._registered = list(chain.from_iterable(map(dict.values, self._filled)))
        self._namespaces = [vars(member) for member in members]
        self._getters = [itemgetter("training", *_OWN_FORWARD & vars(m).keys(), *_settings(m)) for m in members]
        self._settings = self._present_settings()
        self._without_forward = [namespace for namespace in self._namespaces if "forward" not in namespace]
        self.tensors = tuple(named_tensors(module).values())
        self._has_versions = not any(each.is_inference() for each in self.tensors)
        self._marks = self._present_marks()

    def is_current(self) -> bool:
        """Return whether nothing has changed since the snapshot. Writes through `tensor.data` cannot be detected."""
        try:
            return (
                list(map(len, self._registries)) == self._sizes
                and all(map(is_, chain.from_iterable(map(dict.values, self._filled)), self._registered))
                and self._present_settings() == self._settings
                and not any(map(contains, self._without_forward, _FORWARD))
                and self._present_marks() == self._marks
            )
        except KeyError:  # an attribute was deleted
            return False

    def _present_settings(self) -> list[Any]:
        return [get(namespace) for get, namespace in zip(self._getters, self._namespaces, strict=True)]

    def _present_marks(self) -> tuple[list[int], list[int]]:
        if not self._has_versions:
            return [], []
        return list(map(_version, self.tensors)), list(map(torch.Tensor.data_ptr, self.tensors))


_OWN_FORWARD = {"forward"}
"""Name of an attribute that hides the method of a module's class, if the module itself has it."""
_FORWARD = repeat("forward")
_version = attrgetter("_version")


@dataclass
class Verified:
    """The state of the module against which the program was verified."""

    settings: dict[str, dict[str, Any]]
    """For each submodule: its type, and those attributes that are plain values (numbers, strings)."""
    hooks: tuple[Any, ...]
    """Forward hooks that were registered when the module was traced. The program includes their effect."""
    modes: tuple[tuple[bool, ...], ...]
    """The training flags of all submodules in each mode in which the program may be used. Empty if the flags do not
    matter."""
    bound: dict[str, tuple[torch.Size, torch.dtype]]
    """Shape and dtype of the tensors that the program shares with the module, by name."""
    constants: dict[str, torch.Tensor]
    """Tensors of the module that are constants in the program, with their values at verification, by name."""

    @classmethod
    def of(cls, module: nn.Module, held: set[str], *, any_mode: bool) -> Verified:
        """Return a record of the module as it is now. `held` are the names of the tensors that the program shares with
        it."""
        tensors = named_tensors(module)
        return cls(
            settings=_all_settings(module),
            hooks=tuple(_hooks(module)),
            modes=() if any_mode else (_modes(module),),
            bound={name: (each.shape, each.dtype) for name, each in tensors.items() if name in held},
            constants={name: each.detach().clone() for name, each in tensors.items() if name not in held},
        )

    def changed(self, module: nn.Module, device_type: str) -> Obstacle | None:
        """Return why the program may no longer replace the module, as an Obstacle. None if it still may, after its
        weights are bound again."""
        if (reason := self._other_settings(module)) is not None:
            return Obstacle("settings", reason, AGAIN)
        if [*map(id, _hooks(module))] != [*map(id, self.hooks)]:
            reason = "forward hooks were added or removed since the module was forged, and a kernel would skip them"
            return Obstacle("hooks", reason, "remove the hooks, or forge the module again")
        if self.modes and _modes(module) not in self.modes:
            now = "training" if module.training else "evaluation"
            reason = f"the module is in {now} mode, was forged in the other mode, and computes something else there"
            return Obstacle("mode", reason, f"call .{'eval' if module.training else 'train'}(), or {AGAIN}")
        return self._other_tensors(named_tensors(module), device_type)

    def _other_settings(self, module: nn.Module) -> str | None:
        now = _all_settings(module)
        if now == self.settings:
            return None
        for path in dict.fromkeys((*self.settings, *now)):
            what = f"submodule '{path}'" if path else "the module"
            if path not in now or path not in self.settings or now[path]["type"] != self.settings[path]["type"]:
                return f"{what} was added, removed or replaced since the module was forged"
            for name in dict.fromkeys((*self.settings[path], *now[path])):
                if now[path].get(name) != self.settings[path].get(name):
                    return f"'{name}' of {what} was changed since the module was forged"
        return "the module's settings were changed since it was forged"

    def _other_tensors(self, tensors: dict[str, torch.Tensor], device_type: str) -> Obstacle | None:
        for name, (shape, dtype) in self.bound.items():
            each = tensors.get(name)
            if (
                each is None
                or type(each) not in PLAIN
                or (each.shape, each.dtype, each.layout)
                != (
                    shape,
                    dtype,
                    torch.strided,
                )
            ):
                reason = f"'{name}' is no longer a plain {dtype} tensor of shape {tuple(shape)}"
                return Obstacle("weights", reason, AGAIN)
            if each.device.type != device_type:
                reason = f"'{name}' is on {each.device}, and the kernel was verified on a {device_type} device"
                return Obstacle("device", reason, f"move module and inputs to {device_type}")
            if each.is_inference():
                reason = f"'{name}' was made in inference mode, so that changes of its values cannot be detected"
                return Obstacle("weights", reason, "make the weights outside of torch.inference_mode()")
        for name, kept in self.constants.items():
            each = tensors.get(name)
            if each is None or each.is_inference() or not _equal(each, kept):
                return Obstacle("settings", f"'{name}' was changed since the module was forged", AGAIN)
        return None


def _equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    if (one.shape, one.dtype, one.layout) != (other.shape, other.dtype, other.layout):
        return False
    if one.layout is not torch.strided or one.is_meta:
        return one is other
    one, other = one.detach(), other.to(one.device)
    return torch.equal(one, other) or bool(torch.allclose(one, other, 0, 0, equal_nan=True))


def _settings(module: nn.Module) -> dict[str, Any]:
    """Return the plain attributes of a module whose change may change what it computes, except the training flag."""
    return {
        name: value
        for name, value in vars(module).items()
        if _is_simple(value) and name != "training" and not hasattr(nn.Module, name) and name not in _INTERNAL
    }


_INTERNAL = frozenset(vars(nn.Module()))


def _is_simple(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_simple, value))
    return isinstance(value, SIMPLE)


def _all_settings(module: nn.Module) -> dict[str, dict[str, Any]]:
    return {
        path: {"type": _plain_type(member), **_settings(member)}
        for path, member in module.named_modules(remove_duplicate=False)
    }


def _plain_type(module: nn.Module) -> str:
    """Return the full name of a module's class. For a forged module, that of the caller's class."""
    kind = getattr(type(module), "forged_from", type(module))
    return f"{kind.__module__}.{kind.__qualname__}"


def _modes(module: nn.Module) -> tuple[bool, ...]:
    return tuple(member.training for member in module.modules())


def _hooks(module: nn.Module) -> Iterator[Any]:
    for member in module.modules():
        yield from member._forward_hooks.values()
        yield from member._forward_pre_hooks.values()
