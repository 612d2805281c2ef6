"""Translates a definition and one of its workloads into a problem: a module that calls `run`, and inputs drawn as
specified."""

from __future__ import annotations

import ast
import keyword
from typing import TYPE_CHECKING, Any

from kforge.errors import ProblemError
from kforge.problems.readers.files import json_value
from kforge.problems.readers.trace import axes as axis_solver
from kforge.problems.readers.trace import tensor_files
from kforge.problems.readers.writing import literal, problem
from kforge.problems.source import parse
from kforge.records.tolerances import FLOORS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from kforge.records import Problem

FLOATS = ("float64", "float32", "float16", "bfloat16")
ALIASES = {"float8_e4m3": "float8_e4m3fn"}
RANGES = {
    "int8": (-128, 128),
    "uint8": (0, 256),
    "int16": (-1024, 1024),
    "int32": (-1024, 1024),
    "int64": (-1024, 1024),
}
"""The ranges from which both benchmarks draw random integers; the upper bound is not drawn."""
SMALL_FLOATS = ("float8_e4m3fn", "float8_e5m2")
IN_COLUMNS = ("axes", "inputs", "outputs", "constraints", "tags", "workloads")
"""Fields that a table of definitions holds as JSON text."""
MODULE = """\
class Model(torch.nn.Module):
    def forward(self, {parameters}):
        return run({arguments})


def get_inputs({custom_inputs}):
    return {inputs}


def get_init_inputs():
    return []
"""


def decoded(definition: dict[str, Any], origin: str) -> dict[str, Any]:
    """Return a definition in which fields that were JSON text in a table are parsed. Raises ProblemError if a field is
    missing or has the wrong type."""
    columns = {
        name: json_value(value, f"{origin}: {name}") if name in IN_COLUMNS and isinstance(value, str) else value
        for name, value in definition.items()
    }
    for name, kind in (("name", str), ("axes", dict), ("inputs", dict), ("outputs", dict), ("reference", str)):
        if not isinstance(columns.get(name), kind):
            raise ProblemError(f"{origin}: has no {name}, or one of the wrong type")
    return columns


def translated(definition: Mapping[str, Any], workload: Mapping[str, Any], root: Path, origin: str) -> Problem:
    """Return the problem of a definition at a workload. Raises ProblemError if it cannot be judged.

    `root` is the folder that paths of tensor files are relative to, and `origin` names the definition in errors.
    """
    given = workload.get("axes")
    axes = axis_solver.solve(definition["axes"], given if isinstance(given, dict) else {}, origin)
    axis_solver.check(list(definition.get("constraints") or ()), axes, origin)
    names = list(definition["inputs"])
    if odd := [name for name in names if not name.isidentifier() or keyword.iskeyword(name)]:
        raise ProblemError(f"{origin}: the input {odd[0]!r} cannot be a Python name")
    reference = definition["reference"]
    custom = definition.get("custom_inputs_entrypoint")
    drawn = _custom_inputs(workload, axes, names) if custom else _inputs(definition, workload, axes, root, origin)
    needs_files = "_tensor(" in drawn
    parts = [
        reference.rstrip(),
        "import hashlib\nimport torch" if needs_files else "import torch",
        tensor_files.LOADER if needs_files else "",
        MODULE.format(
            parameters=", ".join(names),
            arguments=_arguments(reference, names, origin),
            # a default, because the reference may call its own function get_inputs
            custom_inputs=f"_custom_inputs={custom}" if custom else "",
            inputs=drawn,
        ),
    ]
    return problem(definition["name"], "\n\n".join(part for part in parts if part), origin)


def notes(definition: Mapping[str, Any], workload: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the suite's own tolerance beside kforge's, if the workload has one."""
    said = workload.get("tolerance")
    if not isinstance(said, dict):
        return ()
    theirs = ", ".join(f"{name} {value}" for name, value in said.items() if value is not None)
    dtypes = dict.fromkeys(str(spec.get("dtype")) for spec in definition["outputs"].values() if isinstance(spec, dict))
    ours = ", ".join(f"{dtype} {FLOORS['strict'][dtype]:g}" for dtype in dtypes if dtype in FLOORS["strict"])
    return (
        f"the suite's own tolerance is {theirs}; kforge's floor at strict precision, relative to the output's root "
        f"mean square, is {ours or 'that of the wider dtype'}",
    )


def _arguments(reference: str, names: list[str], origin: str) -> str:
    """Return the arguments of the call of `run`: by keyword if `run` names all inputs, otherwise by position. Raises
    ProblemError if the reference does not define `run`."""
    for node in parse(reference, f"{origin}: reference").body:
        if isinstance(node, ast.FunctionDef) and node.name == "run":
            said = {each.arg for each in (*node.args.args, *node.args.kwonlyargs)}
            return ", ".join(f"{name}={name}" for name in names) if set(names) <= said else ", ".join(names)
    raise ProblemError(f"{origin}: its reference does not define run()")


def _custom_inputs(workload: Mapping[str, Any], axes: Mapping[str, int], names: list[str]) -> str:
    specs = workload.get("inputs") or {}
    scalars = {name: spec["value"] for name, spec in specs.items() if isinstance(spec, dict) and "value" in spec}
    call = f"_custom_inputs({literal({**axes, **scalars})}, torch.get_default_device())"
    return f"[*map({call}.__getitem__, {names!r})]"


def _inputs(
    definition: Mapping[str, Any], workload: Mapping[str, Any], axes: Mapping[str, int], root: Path, origin: str
) -> str:
    specs = workload.get("inputs") or {}
    is_sampling = definition.get("op_type") == "sampling"
    drawn: list[str] = []
    for name, tensor in definition["inputs"].items():
        where = f"{origin}: input {name}"
        shape, dtype = _shape(tensor, axes, where), _dtype(tensor, where)
        match specs.get(name, {"type": "random"}):
            case {"type": "scalar", "value": bool() | int() | float() as value}:
                drawn.append(literal(value))
            case {"type": "safetensors", "path": str(path), "tensor_key": str(key)}:
                drawn.append(_stored(tensor_files.find(root, path, key), shape, dtype, where))
            case {"type": "random"}:
                code = _random(shape or (), dtype)
                code = f"torch.softmax({code}, -1)" if is_sampling and name == "probs" else code
                drawn.append(code if shape is not None else f"{code}.item()")
            case spec:
                raise ProblemError(f"{where}: inputs like {spec!r} are not read")
    return "[\n" + "".join(f"        {each},\n" for each in drawn) + "    ]"


def _shape(tensor: Any, axes: Mapping[str, int], where: str) -> tuple[int, ...] | None:
    """Return the shape of an input; None for a scalar. Raises ProblemError if it names an unknown axis."""
    try:
        return None if tensor["shape"] is None else tuple(axes[axis] for axis in tensor["shape"])
    except (KeyError, TypeError):
        raise ProblemError(f"{where}: its shape is not a list of axes") from None


def _dtype(tensor: Any, where: str) -> str:
    dtype = ALIASES.get(tensor.get("dtype"), tensor.get("dtype"))
    if dtype not in (*FLOATS, *SMALL_FLOATS, *RANGES, "bool"):
        raise ProblemError(f"{where}: tensors of dtype {dtype} are not read")
    return str(dtype)


def _random(shape: tuple[int, ...], dtype: str) -> str:
    """Return code that draws a tensor as both benchmarks draw it: normal numbers, and integers of a small range."""
    if dtype in FLOATS:
        return f"torch.randn({shape!r}, dtype=torch.{dtype})"
    if dtype in SMALL_FLOATS:
        return f"torch.randn({shape!r}).clamp(-2.0, 2.0).to(torch.{dtype})"
    low, high = RANGES.get(dtype, (0, 2))
    return f"torch.randint({low}, {high}, {shape!r}, dtype=torch.{dtype})"


def _stored(tensor: tensor_files.StoredTensor, shape: tuple[int, ...] | None, dtype: str, where: str) -> str:
    if (tensor.shape, tensor.dtype) != (shape, dtype):
        found = f"{tensor.dtype} {list(tensor.shape)}"
        raise ProblemError(f"{where}: {tensor.path} holds {found}, not {dtype} {list(shape or ())}")
    return tensor.code
