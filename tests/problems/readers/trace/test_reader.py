"""FlashInfer-Trace and SOL-ExecBench: layouts, and the inputs that a workload describes."""

from __future__ import annotations

import json
import os
import struct
from typing import TYPE_CHECKING, Any

import pytest
import torch
from tests.problems.readers.conftest import described, tasks_of

from kforge.problems import ProblemChoice, Task, open_suite
from kforge.problems.instance import instantiate

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DEFINITION: dict[str, Any] = {
    "name": "scaled_rows",
    "op_type": "norm",
    "tags": ["model:ours"],
    "axes": {
        "rows": {"type": "var"},
        "heads": {"type": "const", "value": 2},
        "width": {"type": "expr", "expression": "heads * 4"},
    },
    "inputs": {
        "x": {"shape": ["rows", "width"], "dtype": "float16"},
        "weight": {"shape": ["width"], "dtype": "float32"},
        "eps": {"shape": None, "dtype": "float32"},
    },
    "outputs": {"y": {"shape": ["rows", "width"], "dtype": "float16"}},
    "reference": "import torch\n\n@torch.no_grad()\ndef run(x, weight, eps):\n    return (x * weight + eps).half()\n",
    "constraints": ["width == heads * 4"],
}
RANDOM = {"x": {"type": "random"}, "weight": {"type": "random"}, "eps": {"type": "scalar", "value": 1e-6}}


def workload(rows: int, **more: Any) -> dict[str, Any]:
    return {"uuid": f"u{rows}", "axes": {"rows": rows}, "inputs": RANDOM, **more}


def lines(*values: dict[str, Any]) -> str:
    return "".join(json.dumps(value) + "\n" for value in values)


def trace(**files: str) -> dict[str, str]:
    traced = [{"definition": "scaled_rows", "workload": workload(rows), "solution": None} for rows in (3, 5)]
    return {
        "definitions/norm/scaled_rows.json": json.dumps(DEFINITION),
        "workloads/norm/scaled_rows.jsonl": lines(*traced),
        **files,
    }


def test_flashinfer_trace_has_a_task_for_each_workload(tree: Callable[..., Path]) -> None:
    tasks = tasks_of(tree(trace()))
    assert list(tasks) == ["norm/scaled_rows/1-rows=3", "norm/scaled_rows/2-rows=5"]
    found = described(tasks["norm/scaled_rows/2-rows=5"])
    assert [(spec.shape, spec.dtype) for spec in found.inputs] == [((5, 8), "float16"), ((8,), "float32")]
    assert found.outputs[0].dtype == "float16"


def test_definitions_are_chosen_by_kind_and_tag(tree: Callable[..., Path]) -> None:
    folder = str(tree(trace()))
    for tag in ("norm", "model:ours"):
        assert len(open_suite(folder, ProblemChoice(tags=(tag,))).tasks()) == 2


def test_sol_execbench_shows_its_tolerance_beside_ours(tree: Callable[..., Path]) -> None:
    theirs = {"max_atol": 0.01, "max_rtol": 0.01, "required_matched_ratio": 0.99, "max_error_cap": None}
    definition = {name: value for name, value in DEFINITION.items() if name != "reference"}
    folder = tree(
        {
            "L1/scaled_rows/definition.json": json.dumps(definition),
            "L1/scaled_rows/reference.py": DEFINITION["reference"],
            "L1/scaled_rows/workload.jsonl": lines(workload(3, tolerance=theirs), workload(4, weight=9)),
        }
    )
    first, second = tasks_of(folder).values()
    assert described(first).inputs[0].shape == (3, 8)
    assert first.notes == (
        "the suite's own tolerance is max_atol 0.01, max_rtol 0.01, required_matched_ratio 0.99; kforge's floor at "
        "strict precision, relative to the output's root mean square, is float16 0.001",
    )
    assert (first.weight, second.weight, second.notes) == (1.0, 9.0, ())


def test_a_table_with_json_in_its_columns_is_read(tree: Callable[..., Path]) -> None:
    columns = {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in {**DEFINITION, "workloads": [workload(2)]}.items()
    }
    (task,) = tasks_of(tree({"L2.jsonl": lines(columns)})).values()
    assert (task.name, described(task).inputs[0].shape) == ("L2/scaled_rows", (2, 8))


def test_custom_inputs_come_from_the_reference(tree: Callable[..., Path]) -> None:
    reference = (
        "import torch\n"
        "def get_inputs(axes, device):\n"
        "    return {'eps': 0.5, 'weight': torch.ones(axes['width'], device=device), 'x': torch.full((axes['rows'],"
        " axes['width']), 2.0, dtype=torch.float16, device=device)}\n"
        "def run(a, b, c):\n"
        "    return a * b + c\n"
    )
    definition = {**DEFINITION, "reference": reference, "custom_inputs_entrypoint": "get_inputs"}
    custom = workload(3, inputs={name: {"type": "custom"} for name in RANDOM})
    folder = tree({"p/definition.json": json.dumps(definition), "p/workload.jsonl": lines(custom)})
    (task,) = tasks_of(folder).values()
    assert task.problem is not None
    instance = instantiate(task.problem)
    x, weight, eps = instance.inputs(0)
    assert (x.tolist(), weight.sum().item(), eps) == ([[2.0] * 8] * 3, 8.0, 0.5)
    assert instance.make_model()(x, weight, eps).unique().tolist() == [2.5]


def stored(values: torch.Tensor) -> bytes:
    """A file with one tensor, as the format describes it."""
    data = values.numpy().tobytes()
    header = json.dumps({"w": {"dtype": "F32", "shape": list(values.shape), "data_offsets": [0, len(data)]}}).encode()
    return struct.pack("<Q", len(header)) + header + data


def with_file(path: str = "blob/w.safetensors") -> dict[str, str]:
    inputs = {**RANDOM, "weight": {"type": "safetensors", "path": path, "tensor_key": "w"}}
    return trace(**{"workloads/norm/scaled_rows.jsonl": lines(workload(3, inputs=inputs))})


def test_a_tensor_of_a_file_is_an_input_and_must_not_change(tree: Callable[..., Path]) -> None:
    folder = tree({**with_file(), "blob/placeholder": ""})
    values = torch.arange(8, dtype=torch.float32)
    (folder / "blob/w.safetensors").write_bytes(stored(values))
    (task,) = tasks_of(folder).values()
    assert task.problem is not None, task.failure
    assert torch.equal(instantiate(task.problem).inputs(0)[1], values)
    (folder / "blob/w.safetensors").write_bytes(stored(values + 1))
    with pytest.raises(Exception, match="was changed since the problem was read"):
        instantiate(task.problem).inputs(0)


@pytest.mark.parametrize(
    ("held", "said"),
    [
        (stored(torch.zeros(9)), "holds float32 [9], not float32 [8]"),
        (stored(torch.zeros(8))[:-4], "it ends too early"),
        (struct.pack("<Q", 2**60) + b"{}", "its header is too long"),
        (b"\x02" + b"\0" * 7 + b"{}", "has no tensor 'w'"),
        (b"", "has no tensor 'w'"),
    ],
)
def test_a_bad_tensor_file_fails_that_workload(tree: Callable[..., Path], held: bytes, said: str) -> None:
    folder = tree({**with_file(), "blob/placeholder": ""})
    (folder / "blob/w.safetensors").write_bytes(held)
    (task,) = tasks_of(folder).values()
    assert said in str(task.failure)


def test_a_tensor_file_outside_the_suite_is_not_read(tree: Callable[..., Path]) -> None:
    (task,) = tasks_of(tree(with_file("../../w.safetensors"))).values()
    assert "lies outside the suite's folder" in str(task.failure)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"reference": "def walk(): ...\n"}, "its reference does not define run()"),
        ({"reference": "def (\n"}, "reference: is not valid Python"),
        ({"reference": None}, "has no reference"),
        ({"inputs": {"x": {"shape": ["depth"], "dtype": "float16"}}}, "input x: its shape is not a list of axes"),
        ({"inputs": {"x": {"shape": ["rows"], "dtype": "float4_e2m1"}}}, "tensors of dtype float4_e2m1 are not read"),
        ({"inputs": {"for": {"shape": ["rows"], "dtype": "int8"}}}, "'for' cannot be a Python name"),
        ({"constraints": ["rows == 4"]}, "the workload breaks the constraint rows == 4"),
    ],
)
def test_a_bad_definition_fails_alone(tree: Callable[..., Path], change: dict[str, Any], said: str) -> None:
    definition = json.dumps({**DEFINITION, **change})
    tasks = tasks_of(tree(trace(**{"definitions/norm/scaled_rows.json": definition})))
    assert tasks
    assert all(said in str(task.failure) for task in tasks.values())


def test_every_dtype_is_drawn(tree: Callable[..., Path]) -> None:
    dtypes = ["float64", "bfloat16", "float8_e4m3", "float8_e5m2", "int64", "int32", "int16", "int8", "bool"]
    inputs = {f"i{number}": {"shape": ["rows"], "dtype": dtype} for number, dtype in enumerate(dtypes)}
    names = ", ".join(inputs)
    definition = {**DEFINITION, "inputs": inputs, "reference": f"def run({names}):\n    return i0 + 1\n"}
    folder = tree({"d/definition.json": json.dumps(definition), "d/workload.jsonl": lines(workload(3, inputs={}))})
    (task,) = tasks_of(folder).values()
    assert [spec.dtype.replace("e4m3fn", "e4m3") for spec in described(task).inputs] == dtypes


def header(**about: object) -> bytes:
    """A tensor file whose header says what a test wants."""
    text = json.dumps({"w": {"dtype": "F32", "shape": [8], "data_offsets": [0, 32], **about}}).encode()
    return struct.pack("<Q", len(text)) + text + b"\0" * 32


@pytest.mark.parametrize(
    ("held", "said"),
    [
        (header(data_offsets=[0, 2**50]), "it ends too early"),
        (header(data_offsets=[2**64, 2**64 + 32]), "it ends too early"),
        (header(data_offsets=[0, float("inf")]), "has no tensor 'w' that can be read"),
        (header(shape=[float("inf")]), "has no tensor 'w' that can be read"),
        (header(shape=7), "has no tensor 'w' that can be read"),
        (header(dtype=["F32"]), "has no tensor 'w' that can be read"),
        (header(shape=[2**40]), "another size than its shape and dtype say"),
    ],
)
def test_an_absurd_header_fails_that_workload(tree: Callable[..., Path], held: bytes, said: str) -> None:
    folder = tree({**with_file(), "blob/placeholder": ""})
    (folder / "blob/w.safetensors").write_bytes(held)
    (task,) = tasks_of(folder).values()
    assert said in str(task.failure)


def test_a_sparse_tensor_file_of_a_wrong_size_is_not_hashed(tree: Callable[..., Path]) -> None:
    folder = tree({**with_file(), "blob/placeholder": ""})
    path = folder / "blob/w.safetensors"
    path.write_bytes(header(data_offsets=[0, 2**40]))
    os.truncate(path, 2**41)
    (task,) = tasks_of(folder).values()
    assert "another size than its shape and dtype say" in str(task.failure)


def test_a_sparse_tensor_file_that_no_memory_holds_is_not_hashed(tree: Callable[..., Path]) -> None:
    folder = tree({**with_file(), "blob/placeholder": ""})
    path = folder / "blob/w.safetensors"
    path.write_bytes(header(shape=[2**40], data_offsets=[0, 2**42]))
    os.truncate(path, 2**43)
    (task,) = tasks_of(folder).values()
    assert "larger than this machine's memory" in str(task.failure)


@pytest.mark.parametrize("path", ["a\0b", "a" * 5000, "circle"])
def test_a_name_that_no_file_can_have_fails_that_workload(tree: Callable[..., Path], path: str) -> None:
    folder = tree(with_file(path))
    (folder / "circle").symlink_to("circle")
    (task,) = tasks_of(folder).values()
    assert task.failure
    assert "\n" not in task.failure


@pytest.mark.parametrize(
    ("definition", "asked"),
    [
        ({"constraints": 7}, {}),
        ({"constraints": [7]}, {}),
        ({"axes": {"rows": {"type": "expr", "expression": "*".join(["9223372036854775807**64"] * 10)}}}, {}),
        ({"axes": {f"a{i}": {"type": "expr", "expression": f"a{i + 1}"} for i in range(3000)}}, {}),
        ({"inputs": {"x": {"shape": ["rows"], "dtype": ["float32"]}}}, {}),
        ({"inputs": {"x": 7}}, {}),
        ({}, {"inputs": ["x"]}),
        ({}, {"weight": 10**400}),
        ({"name": ""}, {}),
    ],
)
def test_fields_of_odd_types_fail_alone(
    tree: Callable[..., Path], definition: dict[str, Any], asked: dict[str, Any]
) -> None:
    hostile = {**DEFINITION, **definition}
    files = {
        "a/definition.json": json.dumps(hostile), "a/workload.jsonl": lines({**workload(3), **asked}),
        "b/definition.json": json.dumps(DEFINITION), "b/workload.jsonl": lines(workload(3)),
    }  # fmt: skip
    tasks = tasks_of(tree(files))
    assert set(tasks) == {"a", "b"}
    assert tasks["a"].failure is not None or definition == {"name": ""}
    assert "\n" not in str(tasks["a"].failure)
    assert tasks["b"].failure is None


@pytest.mark.parametrize("name", ["../../escaped", "x" * 300, "x\0y", "\ud800"])
def test_a_name_that_cannot_name_a_folder_is_replaced(tree: Callable[..., Path], name: str) -> None:
    row = {**DEFINITION, "name": name, "workloads": [workload(3)]}
    (task,) = tasks_of(tree({"t.jsonl": json.dumps(row) + "\n"})).values()
    assert task.failure
    assert "/" not in task.name
    assert Task.from_json(task.to_json()) == task
