"""Makes a problem from a live `nn.Module`: a self-contained source file, and a file with the weights. (torch)"""

from __future__ import annotations

import hashlib
import inspect
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn
from torch.utils import _pytree as pytree

from kforge.errors import ProblemError
from kforge.problems.instance import instantiate
from kforge.problems.live.example_source import inputs_source
from kforge.problems.live.exporting import one_line, quiet
from kforge.problems.live.graph_source import arguments_of, forward_source
from kforge.problems.live.state_source import State, collect
from kforge.problems.randomness import seeded
from kforge.problems.tensors import tensors_in
from kforge.records import Problem

if TYPE_CHECKING:
    from pathlib import Path

    from torch.export import ExportedProgram

_MARK = "written by kforge from a live module."
"""End of the first line of every generated problem, by which it is recognized."""
LONGEST_COMMENT = 300
"""Most lines of the original module's source that are quoted in the problem."""

_TEMPLATE = """\
{comment}
import torch
from torch import nn

aten = torch.ops.aten


{model}


def get_inputs():
    return [
{inputs}
    ]


def get_init_inputs():
    return []
"""

_MODEL = '''\
class Model(nn.Module):
    """The module's ATen graph; parameters and buffers have the original's names and shapes."""

    def __init__(self):
        super().__init__()
{construction}

    def forward({parameters}):
{forward}'''


@dataclass(frozen=True)
class Written:
    """A live module as source text."""

    model: str
    """The source of the class `Model`."""
    state: State
    output: pytree.TreeSpec
    """The structure of the module's output. The generated `Model` returns plain tuples, lists and dicts."""


def from_module(module: nn.Module, example_inputs: Sequence[Any] | torch.Tensor, *, name: str, folder: Path) -> Problem:
    """Write the module as a class `Model`, save its weights as `folder/state.pt`, check both, and return the problem.

    `example_inputs` are positional inputs, or one tensor; the problem draws similar ones. The generated `Model` has the
    same keys and shapes in its state dict, and in addition the module's constants that are too large to be written as
    source. The module is not changed. Raises ProblemError if `torch.export` cannot trace the module on the examples, if
    it uses something that cannot be written as source, or if the result does not agree with the module.
    """
    inputs = as_arguments(example_inputs)
    if not tensors_in(inputs):
        raise ProblemError(f"{name}: the example inputs hold no tensors")
    written = write_module(module, inputs, name)
    source = _TEMPLATE.format(
        comment=_comment(module, name),
        model=written.model,
        inputs=_indented([f"{draw}," for draw in inputs_source(inputs)]),
    )
    problem = _saved(Problem(name=name, source=source), written.state, folder)
    check_agreement(problem, module, inputs)
    _check_draws(problem, tensors_in(inputs)[0].device)
    return problem


def as_arguments(example_inputs: Sequence[Any] | torch.Tensor) -> tuple[Any, ...]:
    """Return the example inputs as positional arguments. A single tensor becomes the only argument."""
    return tuple(example_inputs) if isinstance(example_inputs, Sequence) else (example_inputs,)


def write_module(module: nn.Module, inputs: tuple[Any, ...], name: str) -> Written:
    """Return the module in its present mode as the source of a class `Model`. Raises ProblemError as `from_module`
    does."""
    parameters = _parameter_names(module, inputs, name)
    program = _export(module, inputs, name)
    state = collect(module, program)
    forward = forward_source(program, state.expressions, arguments_of(parameters, inputs))
    model = _MODEL.format(
        construction=_indented(state.statements or ["# no parameters and no buffers"]),
        parameters=", ".join(["self", *parameters]),
        forward=_indented(forward),
    )
    assert program.call_spec.out_spec is not None
    return Written(model, state, program.call_spec.out_spec)


class Nature(NamedTuple):
    """Properties of a live module that its callers depend on, apart from the computed numbers."""

    output: pytree.TreeSpec
    """The structure of the module's output."""
    any_mode: bool
    """Whether the module computes the same in training mode and in evaluation mode."""


def nature(module: nn.Module, inputs: tuple[Any, ...]) -> Nature:
    """Return the structure of a module's output, and whether training and evaluation mode compute the same.

    They count as different if the other mode cannot be traced. The module is left in the mode it was in.

    Raises ProblemError if it cannot be traced in its present mode.
    """
    present = write_module(module, inputs, type(module).__name__)
    modes = [(each, each.training) for each in module.modules()]
    try:
        other = write_module(module.train(not module.training), inputs, type(module).__name__).model
    except ProblemError:  # for example a batch norm that cannot train with one row
        other = ""
    finally:
        for each, mode in modes:
            each.training = mode
    return Nature(present.output, any_mode=present.model == other)


def is_live(problem: Problem) -> bool:
    """Return whether a problem was made from a live module. Its `Model` then works for one shape of inputs only."""
    return problem.source.partition("\n")[0].endswith(_MARK)


def _parameter_names(module: nn.Module, inputs: tuple[Any, ...], name: str) -> list[str]:
    """Return the names of the positional parameters of `forward` for these inputs. Raises ProblemError if they do not
    fit."""
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
    """Trace the module by torch.export. Raises ProblemError if torch cannot trace it."""
    try:
        with quiet(), torch.no_grad():
            return torch.export.export(module, inputs)
    except Exception as error:
        raise ProblemError(f"{name}: torch.export cannot trace the module: {one_line(error)}") from error


def _saved(problem: Problem, state: State, folder: Path) -> Problem:
    """Save the weights into the folder, and return the problem with their path and digest."""
    if not state.tensors:
        return problem
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "state.pt"
    torch.save(state.tensors, path)
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return problem.model_copy(update={"state_digest": digest, "state_path": str(path)})


def check_agreement(problem: Problem, module: nn.Module, inputs: tuple[Any, ...]) -> None:
    """Run the problem's `Model` and the module with the same random state. Raises ProblemError if they differ.

    Outputs and updated buffers must agree. The module is not changed.
    """
    device = tensors_in(inputs)[0].device
    model = instantiate(problem).make_model().to(device)
    before = [(tensor, tensor.clone()) for tensor in (*module.parameters(), *module.buffers())]
    try:
        with torch.no_grad():
            expected_state = dict(module.state_dict())
            if missing := sorted(expected_state.keys() - model.state_dict().keys()):
                raise ValueError(f"the problem has no {missing[0]!r}")
            model.load_state_dict(expected_state, strict=False)
            with seeded(0):
                expected = module(*_copied(inputs))
            with seeded(0):
                actual = model(*_copied(inputs))
            updated = model.state_dict()
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


def _check_draws(problem: Problem, device: torch.device) -> None:
    """Raise ProblemError if the module fails on inputs that the problem draws."""
    instance = instantiate(problem, device)
    drawn = instance.inputs(0)
    try:
        with torch.no_grad():
            instance.make_model()(*drawn)
    except Exception as error:
        raise ProblemError(
            f"{problem.name}: the module fails on random inputs of the examples' shapes, dtypes and ranges, which a "
            f"kernel has to be verified on: {one_line(error)}"
        ) from error


def _copied(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    copies: tuple[Any, ...] = pytree.tree_map_only(torch.Tensor, torch.Tensor.clone, inputs)
    return copies


def _comment(module: nn.Module, name: str) -> str:
    """Return a comment with the module's description and its authors' source, so that readers of the graph know the
    intent."""
    lines = [f"{' '.join(name.split())}: {_MARK}", "", *repr(module).splitlines()]
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
