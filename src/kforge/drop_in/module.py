"""The class of forged modules: a subclass of the caller's class, made for one object, whose calls may run a program.
(torch)

A forged module and the caller's module are two objects that share one `__dict__`. So parameters, buffers, submodules,
hooks, attributes and the training flag are the same, whichever of the two is changed. If the program cannot serve a
call, the caller's own `forward` runs.
"""

from __future__ import annotations

import copy
import io
import pickle
import types
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import nn
from torch.utils import _pytree as pytree

from kforge.drop_in import FallbackWarning, Obstacle, moment
from kforge.drop_in.calls import MISFIT
from kforge.drop_in.program import Program, Recipe, Unusable
from kforge.drop_in.watched import Snapshot, Verified, named_tensors
from kforge.errors import InputError
from kforge.problems.live.exporting import one_line
from kforge.problems.tensors import HOST
from kforge.records import times

if TYPE_CHECKING:
    from pathlib import Path

    from kforge.drop_in.calls import Calls
    from kforge.records import Interval, Receipt

Finding = Literal["faster", "slower", "cannot tell", "not measured", "no kernel found"]


@dataclass(frozen=True)
class Report:
    """What a run found out about the program of a forged module."""

    run: Path
    finding: Finding
    """Result of comparing the program with the module in eager mode."""
    speedup: Interval | None = None
    """Speedup over the module in eager mode. It comes from the repeated evaluations, if there were any. None if no
    kernel was found, or if the kernel was not timed."""
    receipt: Receipt | None = None
    labels: tuple[str, ...] = ()
    reason: str = ""
    """Why no kernel was found, or why nothing is known about its speed. Empty otherwise."""

    def __str__(self) -> str:
        if self.speedup is None:
            return self.finding
        if self.finding == "not measured":
            return f"{self.finding}; {self.speedup.median:.2f}x seen"
        return f"{self.finding}, {times(self.speedup)}"


@dataclass
class ForgedKernel:
    """Everything that a forged module holds besides the caller's module. It can be pickled."""

    report: Report
    recipe: Recipe | None
    """How to build the program. None if the caller's module always runs."""
    calls: Calls | None = None
    verified: Verified | None = None
    output: Any = None
    """The structure that the module returns, with a number for each tensor. None if the program returns that structure
    itself. It cannot do so for named tuples and other classes of the user."""
    device_type: str = ""
    fallback: bool = True
    """Whether the original module may serve calls that the program cannot serve. False if the original is only a graph
    traced for one shape."""

    @property
    def updates_state(self) -> bool:
        """Whether a call changes buffers of the module. If so, no call may be made merely to measure it."""
        return self.recipe is not None and self.recipe.updates_state


@dataclass
class _Bound:
    """The program, built for the module's present weights, or the obstacle that prevented the build."""

    snapshot: Snapshot
    program: Program | None = None
    obstacle: Obstacle | None = None
    device: torch.device = HOST


class _FromReport:
    """A class attribute that returns a field of the report. It is not used if the caller's module has an attribute of
    that name."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, forged: ForgedModule | None, owner: type | None = None) -> Any:
        if forged is None:
            return self
        report = forged._kforge_kernel.report
        return report if self._name == "report" else getattr(report, self._name)


REPORTED = ("report", "receipt", "speedup", "finding", "labels", "run")


class ForgedModule(nn.Module):
    """The caller's module with a verified program, in a subclass of its class: same parameters, hooks and attributes.

    A call runs the program if three conditions hold: the program was verified for such inputs, torch's state allows it
    (no gradients, autocast or tracing, see `moment`), and the module has changed in nothing but its weights. Every
    other call runs the caller's own `forward`, with one `FallbackWarning` for each kind of reason. It raises InputError
    instead if the module was loaded without its original.
    """

    forged_from: ClassVar[type[nn.Module]]
    _kforge_kernel: ClassVar[ForgedKernel]
    _kforge_dispatch: ClassVar[_Dispatch]

    report: Report
    """What the run found out about the program. The attributes below are fields of it. If the caller's module has an
    attribute of the same name, that attribute is returned instead."""
    receipt: Receipt | None
    speedup: Interval | None
    finding: Finding
    labels: tuple[str, ...]
    run: Path

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return super().__call__(*args, **kwargs)
        served = self._kforge_dispatch.serve(self, args, kwargs)
        return super().__call__(*args, **kwargs) if served is _NOT_SERVED else served

    def extra_repr(self) -> str:
        own = super().extra_repr()
        return f"{own}, kforge: {self._kforge_kernel.report}" if own else f"kforge: {self._kforge_kernel.report}"

    def __copy__(self) -> ForgedModule:
        return forged(copy.copy(plain(self)), copy.copy(self._kforge_kernel))

    def __deepcopy__(self, memo: dict[int, Any]) -> ForgedModule:
        copied = forged(copy.deepcopy(plain(self), memo), copy.deepcopy(self._kforge_kernel, memo))
        memo[id(self)] = copied
        return copied

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        original = plain(self)
        _check_pickling(original)
        return forged, (original, self._kforge_kernel)


class _Dispatch:
    """Decides for each call of a forged module whether the program or the original runs, and holds the built
    program."""

    def __init__(self, kernel: ForgedKernel) -> None:
        self._kernel = kernel
        self._bound: _Bound | None = None
        self._said: set[str] = set()

    def serve(self, module: ForgedModule, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the program's result for this call, or `_NOT_SERVED` if the program cannot serve it.

        Warns once for each kind of obstacle. If there is no original to fall back to, raises InputError instead.
        """
        kernel = self._kernel
        if kernel.recipe is None:
            return _NOT_SERVED
        assert kernel.calls is not None
        given = kernel.calls.positional(args, kwargs, module.forward)
        obstacle = given if isinstance(given, Obstacle) else self._obstacle(module, given)
        if obstacle is not None:
            self._say(obstacle)
            return _NOT_SERVED
        assert self._bound is not None
        assert self._bound.program is not None
        output = self._bound.program(*given)
        if kernel.output is None:
            return output
        return pytree.tree_unflatten(pytree.tree_leaves(output), pytree.tree_structure(kernel.output))

    def prepare(self, module: ForgedModule) -> Obstacle | None:
        """Build the program for the module's present weights. Returns the obstacle if it cannot run, otherwise None."""
        if self._kernel.recipe is None:
            return None
        self._bound = self._bind(module)
        return self._bound.obstacle

    def _bind(self, module: ForgedModule) -> _Bound:
        kernel, snapshot = self._kernel, Snapshot(module)
        assert kernel.verified is not None
        assert kernel.recipe is not None
        obstacle = kernel.verified.changed(module, kernel.device_type)
        if obstacle is not None:
            return _Bound(snapshot, obstacle=obstacle)
        tensors = named_tensors(module)
        devices = {tensors[name].device for name in kernel.verified.bound}
        device = devices.pop() if devices else torch.device(kernel.device_type)
        if devices:
            return _Bound(snapshot, obstacle=Obstacle("device", "the module's weights are on several devices"))
        try:
            # tensors made in inference mode have no version counters, which later calls need
            with torch.inference_mode(False), torch.no_grad():
                return _Bound(snapshot, Program(kernel.recipe, tensors, device), device=device)
        except Unusable as error:
            return _Bound(snapshot, obstacle=Obstacle("program", f"the program cannot be used here: {error}"))

    def _obstacle(self, module: ForgedModule, args: tuple[Any, ...]) -> Obstacle | None:
        """Return why the program cannot serve the call. None if it can; the program is then bound to the module's
        present weights."""
        kernel, bound = self._kernel, self._bound
        assert kernel.calls is not None
        if (obstacle := moment.transformed()) is not None:
            return obstacle
        is_current = bound is not None and bound.snapshot.is_current()
        weights = bound.snapshot.tensors if bound is not None and is_current else tuple(named_tensors(module).values())
        obstacle = moment.obstacle(args, weights, kernel.device_type) or kernel.calls.mismatch(args)
        if obstacle is not None:
            return obstacle
        if bound is None or not is_current:
            bound = self._bound = self._bind(module)
        return bound.obstacle or _elsewhere(bound.device)

    def _say(self, obstacle: Obstacle) -> None:
        advice = f"; {obstacle.advice}" if obstacle.advice else ""
        if not self._kernel.fallback:
            raise InputError(
                f"this module was loaded without its original and cannot serve this call: {obstacle.reason}{advice}; "
                "load it with kforge.load(run, module) to have the original serve such calls"
            )
        if obstacle.kind != MISFIT and obstacle.kind not in self._said:
            self._said.add(obstacle.kind)
            text = f"the original module runs instead of the kernel: {obstacle.reason}{advice}"
            warnings.warn(text, FallbackWarning, stacklevel=4)


_NOT_SERVED = object()


def _elsewhere(device: torch.device) -> Obstacle | None:
    if device == HOST or device.index is None or device.index == torch.accelerator.current_device_index():
        return None
    return Obstacle("device", f"the module is on {device}, which is not the current device")


def forged(module: nn.Module, kernel: ForgedKernel) -> ForgedModule:
    """Return a forged module that shares its `__dict__` with the caller's module.

    Raises InputError if no class can be derived from the module's class.
    """
    kind = type(module)
    namespace: dict[str, Any] = {
        "__module__": __name__,
        "__doc__": kind.__doc__,
        "__new__": _construct_plain,
        "forged_from": kind,
        "_kforge_kernel": kernel,
        "_kforge_dispatch": _Dispatch(kernel),
        **{name: _FromReport() for name in REPORTED if not hasattr(module, name)},
    }
    try:
        derived = types.new_class(
            f"Forged{kind.__name__}", (ForgedModule, kind), exec_body=lambda ns: ns.update(namespace)
        )
    except TypeError as error:
        raise InputError(f"{kind.__name__} cannot be forged, since no class can be derived from it: {error}") from error
    made: ForgedModule = object.__new__(derived)
    made.__dict__ = module.__dict__
    return made


def prepare(module: ForgedModule) -> Obstacle | None:
    """Build the program now instead of at the first call. Returns the obstacle if it cannot run, otherwise None."""
    return module._kforge_dispatch.prepare(module)


def _construct_plain(kind: type[ForgedModule], *args: Any, **kwargs: Any) -> nn.Module:
    """Return an object of the caller's class instead of a forged one. Used if the module's own code constructs further
    objects of its class, as `nn.Sequential` does."""
    return kind.forged_from(*args, **kwargs)


def plain(module: ForgedModule) -> nn.Module:
    """Return an object of the caller's own class that shares its `__dict__` with the forged module."""
    plain: nn.Module = object.__new__(module.forged_from)
    plain.__dict__ = module.__dict__
    return plain


class _Probe(pickle.Pickler):
    """Pickles everything except the values of tensors, to find out whether a module can be pickled."""

    def reducer_override(self, value: Any) -> Any:
        return (int, ()) if isinstance(value, torch.Tensor) else NotImplemented


def _check_pickling(module: nn.Module) -> None:
    try:
        _Probe(io.BytesIO()).dump(module)
    except Exception as error:
        raise pickle.PicklingError(
            f"the original module of class {type(module).__name__} cannot be pickled: {one_line(error)}; "
            "save the forged module's state_dict() instead"
        ) from error
