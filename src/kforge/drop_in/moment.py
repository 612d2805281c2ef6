"""Checks whether torch is in a state in which a program can run. Kernels compute no gradients, and tracers cannot see
them. (torch)"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.autograd import forward_ad
from torch.nn.modules import module as torch_modules
from torch.utils import _pytree as pytree

from kforge.drop_in import Obstacle

if TYPE_CHECKING:
    from collections.abc import Sequence

GRADIENTS = Obstacle(
    "gradients",
    "gradients are needed, and a kernel has none",
    "for inference, wrap the call in torch.no_grad(); for training, the original must run",
)
AUTOCAST = Obstacle(
    "autocast", "the call is inside torch.autocast", "disable autocast for this call, or forge a module of its dtype"
)
TRACED = Obstacle("tracing", "the call is traced or transformed by torch (jit, fx, functorch, a dispatch mode)")
FORWARD_GRADIENTS = Obstacle("forward gradients", "forward-mode gradients are computed, and a kernel has none")
DEFAULTS = Obstacle(
    "defaults",
    "torch's default dtype or device was changed, or a torch function mode is active",
    "make the call with float32 as the default dtype and no default device",
)
HOOKS = Obstacle("hooks", "forward hooks for all modules are registered with torch, and a kernel would skip them")


def transformed() -> Obstacle | None:
    """Return an obstacle if a tracer, a functorch transform or a dispatch mode is active, otherwise None."""
    active = torch._C._len_torch_dispatch_stack() or torch._C._get_tracing_state() or _in_functorch()
    return TRACED if active else None


def obstacle(args: tuple[Any, ...], weights: Sequence[torch.Tensor], device_type: str) -> Obstacle | None:
    """Return an obstacle if gradients, autocast, changed defaults or global hooks keep the program from running,
    otherwise None."""
    if torch.is_grad_enabled() and (any(each.requires_grad for each in weights) or _requires_grad(args)):
        return GRADIENTS
    if torch.is_autocast_enabled(device_type):
        return AUTOCAST
    if forward_ad._current_level >= 0:
        return FORWARD_GRADIENTS
    if torch.get_default_dtype() is not torch.float32 or torch._C._is_torch_function_mode_enabled():
        return DEFAULTS
    if torch_modules._global_forward_hooks or torch_modules._global_forward_pre_hooks:
        return HOOKS
    return None


def _in_functorch() -> bool:
    return torch._C._functorch.peek_interpreter_stack() is not None


def _requires_grad(args: tuple[Any, ...]) -> bool:
    nested = [each for each in args if isinstance(each, list | tuple | dict)]
    leaves = (*args, *pytree.tree_leaves(nested)) if nested else args
    return any(isinstance(each, torch.Tensor) and each.requires_grad for each in leaves)
