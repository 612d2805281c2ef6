"""A problem out of a live `nn.Module`: a self-contained source file and a file with the weights. (torch)"""

from __future__ import annotations

import hashlib
import inspect
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from kforge.errors import ProblemError
from kforge.problems.example_source import inputs_source
from kforge.problems.graph_source import arguments_of, forward_source
from kforge.problems.instance import instantiate
from kforge.problems.randomness import seeded
from kforge.problems.state_source import State, collect
from kforge.problems.tensors import tensors_in
from kforge.records import Problem

if TYPE_CHECKING:
    from pathlib import Path

    from torch.export import ExportedProgram

LONGEST_COMMENT = 300
"""Lines of the original's source that are quoted at the top."""

_TEMPLATE = '''\
{comment}
import torch
from torch import nn

aten = torch.ops.aten


class Model(nn.Module):
    """The module's ATen graph; parameters and buffers have the original's names and shapes."""

    def __init__(self):
        super().__init__()
{construction}

    def forward({parameters}):
{forward}


def get_inputs():
    return [
{inputs}
    ]


def get_init_inputs():
    return []
'''


def from_module(module: nn.Module, example_inputs: Sequence[Any] | torch.Tensor, *, name: str, folder: Path) -> Problem:
    """Write the module as a plain `Model`, save its weights as `folder/state.pt`, and check that both are right.

    `example_inputs` are positional inputs, or one tensor; the problem draws its own like them. The generated `Model`
    has the same state dict keys and shapes; constants of more than a few elements are added to the state. The module
    is left as it was. Raises ProblemError when the module cannot be traced by `torch.export` on the examples, holds
    what has no plain source form, or the result does not agree with it.
    """
    inputs = tuple(example_inputs) if isinstance(example_inputs, Sequence) else (example_inputs,)
    if not tensors_in(inputs):
        raise ProblemError(f"{name}: the example inputs hold no tensors")
    parameters = _parameter_names(module, inputs, name)
    program = _export(module, inputs, name)
    state = collect(module, program)
    forward = forward_source(program, state.expressions, arguments_of(parameters, inputs))
    source = _TEMPLATE.format(
        comment=_comment(module, name),
        construction=_indented(state.statements or ["# no parameters and no buffers"]),
        parameters=", ".join(["self", *parameters]),
        forward=_indented(forward),
        inputs=_indented([f"{draw}," for draw in inputs_source(inputs)]),
    )
    problem = _saved(Problem(name=name, source=source), state, folder)
    _verify(problem, module, inputs)
    return problem


def _parameter_names(module: nn.Module, inputs: tuple[Any, ...], name: str) -> list[str]:
    signature = inspect.signature(module.forward)
    try:
        signature.bind(*inputs)
    except TypeError as error:
        raise ProblemError(f"{name}: the example inputs do not fit forward: {error}") from None
    names: list[str] = []
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            names += [f"{parameter.name}_{i}" for i in range(len(inputs) - len(names))]
        elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            names.append(parameter.name)
    return names[: len(inputs)]


def _export(module: nn.Module, inputs: tuple[Any, ...], name: str) -> ExportedProgram:
    try:
        with torch.no_grad():
            return torch.export.export(module, inputs)
    except Exception as error:
        first = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
        raise ProblemError(
            f"{name}: torch.export cannot trace the module: {type(error).__name__}: {first[:200]}"
        ) from error


def _saved(problem: Problem, state: State, folder: Path) -> Problem:
    if not state.tensors:
        return problem
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "state.pt"
    torch.save(state.tensors, path)
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return problem.model_copy(update={"state_digest": digest, "state_path": str(path)})


def _verify(problem: Problem, module: nn.Module, inputs: tuple[Any, ...]) -> None:
    """Both modules on the examples under the same random state: outputs and updated buffers must agree."""
    device = tensors_in(inputs)[0].device
    model = instantiate(problem).make_model().to(device)
    before = [(tensor, tensor.clone()) for tensor in (*module.parameters(), *module.buffers())]
    try:
        with torch.no_grad():
            with seeded(0):
                expected = module(*_copied(inputs))
            with seeded(0):
                actual = model(*_copied(inputs))
            updated = model.state_dict()
            expected_state = dict(module.state_dict())
        torch.testing.assert_close(
            (tensors_in(actual), {key: updated[key] for key in expected_state}),
            (tensors_in(expected), expected_state),
            equal_nan=True,
        )
    except Exception as error:
        first = str(error).partition("\n")[0]
        raise ProblemError(
            f"{problem.name}: the generated problem does not agree with the module: {type(error).__name__}: {first}"
        ) from error
    finally:
        with torch.no_grad():
            for tensor, value in before:
                tensor.copy_(value)


def _copied(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    copies: tuple[Any, ...] = pytree.tree_map_only(torch.Tensor, torch.Tensor.clone, inputs)
    return copies


def _comment(module: nn.Module, name: str) -> str:
    """What the module is, in its author's words, so that a reader of the graph knows the intent."""
    lines = [f"{' '.join(name.split())}: written by kforge from a live module.", "", *repr(module).splitlines()]
    classes = dict.fromkeys(type(child) for child in module.modules())
    for class_ in classes:
        if class_.__module__.partition(".")[0] == "torch":
            continue
        try:
            lines += ["", *textwrap.dedent(inspect.getsource(class_)).splitlines()]
        except (OSError, TypeError):
            continue  # defined interactively: the graph below is all there is
    if len(lines) > LONGEST_COMMENT:
        lines = [*lines[:LONGEST_COMMENT], "…"]
    return "\n".join(f"# {line}".rstrip() for line in lines) + "\n"


def _indented(lines: list[str]) -> str:
    return textwrap.indent("\n".join(lines), " " * 8)
