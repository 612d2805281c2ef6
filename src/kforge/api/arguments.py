"""Checks the arguments of `kforge.forge` and `kforge.load` before any work is done. (torch, when called)"""

from __future__ import annotations

import functools
import inspect
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypedDict, TypeVar

from kforge.choices import ProfileForm, did_you_mean
from kforge.errors import InputError
from kforge.prompts.rendering import template_sets
from kforge.records.policy import CHOICES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import nn

P = ParamSpec("P")
R = TypeVar("R")


class ForgeOptions(TypedDict, total=False):
    """The keyword arguments that `kforge.forge` takes besides its own: the options of the command `kforge forge`, under
    the same names."""

    analyst: str
    model_settings: str
    analyst_settings: str
    search: str
    remember: bool
    memory_without: str
    iterations: int
    target_speedup: float
    budget_minutes: float
    budget_usd: float
    budget_tokens: int
    replications: int
    sanitize: bool
    precision: str
    track: str
    compile_baseline: bool
    compile_mode: str
    profile_as: str
    rewrites: bool
    prompts: str
    prompt_tokens: int
    images: Sequence[str | Path]


def known_keywords(function: Callable[P, R]) -> Callable[P, R]:
    """Return the function with a check: an unknown keyword argument raises InputError, with the most similar known name
    as a suggestion."""
    names = []
    for parameter in inspect.signature(function).parameters.values():
        is_open = parameter.kind is inspect.Parameter.VAR_KEYWORD
        names += list(ForgeOptions.__annotations__) if is_open else [parameter.name]

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        for name in kwargs:
            if name not in names:
                meant = did_you_mean(name, names) or f"there are: {', '.join(names)}"
                raise InputError(f"kforge.{function.__name__} has no argument '{name}'; {meant}")
        return function(*args, **kwargs)

    return checked


def check_module(module: Any) -> nn.Module:
    """Return the module to forge. For a module that was forged before, this is the caller's original.

    Raises InputError for anything that is not an nn.Module object, and for modules that cannot be traced: TorchScript,
    compiled, lazy or on the meta device.
    """
    import torch
    from torch import nn
    from torch.nn.parameter import is_lazy

    from kforge.drop_in.module import ForgedModule, plain

    if isinstance(module, type):
        raise InputError(
            f"module must be an nn.Module object, not the class {module.__name__}: call {module.__name__}(…)"
        )
    if not isinstance(module, nn.Module):
        advice = "; put the function into the forward of an nn.Module" if callable(module) else ""
        raise InputError(f"module must be an nn.Module, not {type(module).__name__}{advice}")
    if isinstance(module, torch.jit.ScriptModule):
        raise InputError(
            "module is a TorchScript module, which torch.export cannot trace; forge the nn.Module it was made from"
        )
    if hasattr(module, "_orig_mod"):
        raise InputError("module is wrapped by torch.compile; forge the module that was compiled: module._orig_mod")
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if is_lazy(tensor):
            raise InputError(f"'{name}' of the module has no shape yet; call the module once before it is forged")
        if tensor.is_meta:
            raise InputError(f"'{name}' of the module is on the meta device and has no values; load its weights first")
    return plain(module) if isinstance(module, ForgedModule) else module


def check_inputs(example_inputs: Any) -> tuple[Any, ...]:
    """Return the positional arguments of the module's forward as a tuple. Raises InputError if they are not a tensor,
    list or tuple."""
    import torch

    if isinstance(example_inputs, torch.Tensor):
        return (example_inputs,)
    if not isinstance(example_inputs, list | tuple):
        kind = type(example_inputs).__name__
        raise InputError(f"example_inputs must be a tensor, or a list or tuple of forward's arguments, not {kind}")
    return tuple(example_inputs)


def check_options(options: ForgeOptions) -> None:
    """Raise InputError for a value that the command line would refuse, too."""
    given: dict[str, Any] = dict(options)
    for rule in CHOICES.keys() & given.keys():
        _choice(rule, given[rule], CHOICES[rule])
    if "profile_as" in given:
        _choice("profile_as", given["profile_as"], tuple(map(str, ProfileForm)))
    if "prompts" in given:
        _choice("prompts", given["prompts"], template_sets())
    if "search" in given:
        _strategy(given["search"])
    images = given.get("images", ())
    if not isinstance(images, list | tuple) or not all(isinstance(image, str | Path) for image in images):
        raise InputError(f"images must be a list of file names, not {images!r}")
    usual_mode = CHOICES["compile_mode"][0]
    if given.get("compile_mode", usual_mode) != usual_mode and not given.get("compile_baseline", True):
        raise InputError("compile_mode has no effect with compile_baseline=False, which leaves torch.compile out")
    for name, least in {"iterations": 1, "replications": 0, "budget_tokens": 0}.items():
        if name in given:
            _count(name, given[name], least)
    for name in {"target_speedup", "budget_minutes", "budget_usd"} & given.keys():
        value = given[name]
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
            raise InputError(f"{name} must be a number of at least 0 (0 sets no limit), not {value!r}")


def _strategy(name: object) -> None:
    from kforge.search import strategy

    try:
        strategy(str(name))
    except ValueError as error:
        raise InputError(f"search: {error}") from error


def _choice(name: str, value: object, choices: Sequence[str]) -> None:
    if value not in choices:
        raise InputError(f"{name} must be one of {', '.join(choices)}, not {value!r}")


def _count(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InputError(f"{name} must be a whole number of at least {least}, not {value!r}")
