"""Writes the parameters, buffers and constants of a module as statements of a constructor. (torch)"""

from __future__ import annotations

import keyword
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.export.graph_signature import InputKind

from kforge.errors import ProblemError
from kforge.problems.live.literals import LARGEST_LITERAL, source_of

if TYPE_CHECKING:
    from torch.export import ExportedProgram


@dataclass
class State:
    """The statements that make the state of the generated `Model`, the expressions that access it, and the weights."""

    statements: list[str] = field(default_factory=list)
    """Statements of the constructor."""
    expressions: dict[str, str] = field(default_factory=dict)
    """For each parameter, buffer and constant, the expression that accesses it."""
    tensors: dict[str, Tensor] = field(default_factory=dict)
    """The weights, by name."""
    _modules: set[str] = field(default_factory=set)
    _first_names: dict[int, str] = field(default_factory=dict)

    def add_parameter(self, key: str, parameter: nn.Parameter) -> None:
        """Add a parameter under its name in the state dict."""
        owner, name = self._owner(key)
        trainable = "" if parameter.requires_grad else ", requires_grad=False"
        made = self._made_once(key, parameter, f"nn.Parameter({_zeros(parameter)}{trainable})")
        if _is_name(name):
            self.statements.append(f"{owner}.{name} = {made}")
        else:
            self.statements.append(f"{owner}.register_parameter({name!r}, {made})")

    def add_buffer(self, key: str, buffer: Tensor) -> None:
        """Add a buffer under its name in the state dict."""
        owner, name = self._owner(key)
        made = self._made_once(key, buffer, _zeros(buffer))
        self.statements.append(f"{owner}.register_buffer({name!r}, {made})")

    def add_constant(self, key: str, constant: Tensor) -> None:
        """Add a constant that is not in the module's state dict. A small one is written out; a large one is saved with
        the weights."""
        if constant.numel() > LARGEST_LITERAL:
            self.add_buffer(key, constant)
            return
        owner, name = self._owner(key)
        self.expressions[key] = _attribute(owner, name)
        literal = source_of(constant.detach())
        self.statements.append(f"{owner}.register_buffer({name!r}, {literal}, persistent=False)")

    def _made_once(self, key: str, tensor: Tensor, made: str) -> str:
        """Record a tensor, and return the expression that makes it. The second name of a tied weight refers to the
        first."""
        first = self._first_names.setdefault(id(tensor), key)
        self.tensors[key] = tensor.detach().cpu().clone()
        self.expressions[key] = _attribute(*self._owner(key))
        return made if first == key else self.expressions[first]

    def _owner(self, key: str) -> tuple[str, str]:
        """Return an expression for the submodule that holds `key`, and the last part of the key. Missing submodules are
        made."""
        path, _, name = key.rpartition(".")
        parts = path.split(".") if path else []
        for depth in range(1, len(parts) + 1):
            prefix = ".".join(parts[:depth])
            if prefix not in self._modules:
                self._modules.add(prefix)
                parent, child = _submodule(parts[: depth - 1]), parts[depth - 1]
                by_name = f"{parent}.add_module({child!r}, nn.Module())"
                self.statements.append(f"{parent}.{child} = nn.Module()" if _is_name(child) else by_name)
        return _submodule(parts), name


def collect(module: nn.Module, program: ExportedProgram) -> State:
    """Return the module's state under its own names, and the constants that its graph uses.

    Raises ProblemError if the state dict has an entry that is neither a parameter nor a buffer.
    """
    keys = module.state_dict().keys()
    state = State()
    for key, parameter in module.named_parameters(remove_duplicate=False):
        state.add_parameter(key, parameter)
    for key, buffer in module.named_buffers(remove_duplicate=False):
        if key in keys:
            state.add_buffer(key, buffer)
    foreign = sorted(keys - state.tensors.keys())
    if foreign:
        raise ProblemError(f"the module's state dict holds {foreign[0]!r}, which is neither parameter nor buffer")
    for spec in program.graph_signature.input_specs:
        if spec.kind in (InputKind.BUFFER, InputKind.CONSTANT_TENSOR) and spec.target not in state.expressions:
            assert spec.target is not None
            constant = program.constants[spec.target]
            assert isinstance(constant, Tensor)
            state.add_constant(spec.target, constant)
    return state


def _zeros(tensor: Tensor) -> str:
    """Return an expression for a tensor of zeros with the same shape, dtype and memory order."""
    dtype = "" if tensor.dtype == torch.float32 else f", dtype={tensor.dtype}"
    order = sorted(range(tensor.dim()), key=lambda dim: (-tensor.stride()[dim], dim))
    permuted = tensor.detach().permute(order)
    if order == sorted(order) or not permuted.is_contiguous():
        return f"torch.zeros({source_of(tuple(tensor.shape))}{dtype})"
    back = tuple(order.index(dim) for dim in range(tensor.dim()))  # for example channels last
    return f"torch.zeros({source_of(tuple(permuted.shape))}{dtype}).permute{back}"


def _submodule(parts: list[str]) -> str:
    if all(_is_name(part) for part in parts):
        return ".".join(["self", *parts])
    return f"self.get_submodule({'.'.join(parts)!r})"


def _attribute(owner: str, name: str) -> str:
    return f"{owner}.{name}" if _is_name(name) else f"getattr({owner}, {name!r})"


def _is_name(text: str) -> bool:
    return text.isidentifier() and not keyword.iskeyword(text)
