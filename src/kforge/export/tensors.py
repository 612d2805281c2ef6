"""The inputs, weights and outputs of a problem under names that other suites' function signatures need."""

from __future__ import annotations

import ast
import keyword
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kforge.syntax import parsed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kforge.export.solution import Solution
    from kforge.records import TensorSpec


@dataclass(frozen=True)
class NamedTensors:
    """The tensors of a problem, by Python names that are all different."""

    inputs: dict[str, TensorSpec]
    weights: dict[str, TensorSpec]
    """Parameters and buffers. Each `TensorSpec.name` is the name in the state dict."""
    outputs: dict[str, TensorSpec]

    @classmethod
    def of(cls, solution: Solution, reserved: Iterable[str] = ()) -> NamedTensors:
        """Return the tensors of a solution's problem, under other names than the reserved ones.

        Inputs get the names of the parameters of `Model.forward`, or `x0`, `x1` ... if the number of parameters differs
        from the number of tensors.
        """
        workload, taken = solution.workload, set(reserved)
        given = _parameters(solution.problem.source)
        own = given if len(given) == len(workload.inputs) else [f"x{i}" for i in range(len(workload.inputs))]
        outputs = ["output", *(f"output_{i}" for i in range(1, len(workload.outputs)))]
        return cls(
            inputs={_unique(name, taken): spec for name, spec in zip(own, workload.inputs, strict=True)},
            weights={_unique(spec.name, taken): spec for spec in workload.parameters},
            outputs={_unique(name, taken): spec for name, spec in zip(outputs, workload.outputs, strict=False)},
        )


def _unique(name: str, taken: set[str]) -> str:
    """Return a valid name that is not taken yet, and take it."""
    normal = unicodedata.normalize("NFKC", name)  # names that Python takes for the same become the same
    plain = "".join(each if f"_{each}".isidentifier() else "_" for each in normal) or "x"
    if not plain.isidentifier() or keyword.iskeyword(plain) or plain == "__debug__":
        plain = f"_{plain}"
    found, count = plain, 1
    while found in taken:
        count += 1
        found = f"{plain}_{count}"
    taken.add(found)
    return found


def _parameters(source: str) -> list[str]:
    """Return the names of the positional parameters of `Model.forward`, without `self`; empty without a `forward`."""
    for node in parsed(source).body:
        if isinstance(node, ast.ClassDef) and node.name == "Model":
            for method in node.body:
                if isinstance(method, ast.FunctionDef) and method.name == "forward":
                    arguments = method.args
                    return [each.arg for each in (*arguments.posonlyargs, *arguments.args)][1:]
    return []
