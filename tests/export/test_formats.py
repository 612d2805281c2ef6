"""Exports in the formats of other suites: what their tools load and call computes what PyTorch computes."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
import re
import sys
import tomllib
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from tests.export.conftest import example

from kforge import inline
from kforge.errors import InputError
from kforge.export import FORMATS, export, writing
from kforge.export.kernelbench import place_of
from kforge.export.one_file import _after_future_imports, one_file
from kforge.export.tensors import NamedTensors
from kforge.records import TensorSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kforge.export import Solution

TWO = """\
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, size, bias=True):
        super().__init__()
        self.linear = nn.Linear(size, size, bias=bias)

    def forward(self, run, other):
        y = self.linear(run) + other
        return y, y.sum(-1)


def get_inputs():
    return [torch.randn(4, 8), torch.randn(4, 8)]


def get_init_inputs():
    return [[8], {"bias": True}]
"""
"""Two inputs, one of them with an awkward name, two outputs, weights with dotted names, and keyword arguments."""
TWO_PROGRAM = TWO.partition("def get_inputs")[0].replace("class Model(", "class ModelNew(")


@pytest.fixture(autouse=True)
def unused_modules(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Modules that a test imports are not there in the next one."""
    inline.configure(cache=tmp_path / "builds")
    before = set(sys.modules)
    monkeypatch.syspath_prepend(tmp_path / "out")
    yield
    for name in set(sys.modules) - before:
        if name.split(".")[0] in ("task", "reference", "submission") or "kernel" in name or "kforge_inline" in name:
            del sys.modules[name]


def loaded(name: str, file: Path) -> Any:
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def two(solved: Callable[..., Solution], **more: str) -> Solution:
    import dataclasses

    solution = solved("null", problem=TWO, program=TWO_PROGRAM, name="TwoOutputs", **more)
    x, total = TensorSpec(shape=(4, 8), dtype="float32"), TensorSpec(shape=(4,), dtype="float32")
    weights = (
        TensorSpec(shape=(8, 8), dtype="float32", name="linear.weight"),
        TensorSpec(shape=(8,), dtype="float32", name="linear.bias"),
    )
    workload = solution.workload.model_copy(update={"inputs": (x, x), "outputs": (x, total), "parameters": weights})
    return dataclasses.replace(solution, workload=workload)


# --- one file -----------------------------------------------------------------------------------------------


def test_a_program_is_one_file_that_unpacks_its_runtime(solved: Callable[..., Solution], tmp_path: Path) -> None:
    program = f'"""A program."""\nfrom __future__ import annotations\n{example("cpu", "kernel.py")}'
    (tmp_path / "alone.py").write_text(one_file(solved("cpu", program=program)))
    alone = loaded("alone_kernel", tmp_path / "alone.py")
    assert alone.__doc__ == "A program."
    assert alone.inline is not inline
    assert alone.inline.__name__.startswith("kforge_inline_")
    folder = Path(alone.inline.__file__).parent
    assert not folder.is_relative_to(Path(inline.__file__).parents[1])
    x = torch.randn(3, 16)
    expected = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5)
    torch.testing.assert_close(alone.ModelNew(16)(x), expected)


FUTURE = "from __future__ import annotations"


@pytest.mark.parametrize(
    ("head", "kept"),
    [
        ("", 0),
        ("# a comment\n", 0),
        (f'"""A page.\f\u2028\x1c Another."""\n{FUTURE}\n', 2),
        (f"{FUTURE}; ", 1),
        (f"{FUTURE} \\\n ; \\\r\n\t", 1),
        (f'"""é\u2028"""; {FUTURE}; {FUTURE} # é;\r\n', 3),
        (f"{FUTURE};\r@staticmethod\rdef é(): pass\r", 1),
        (f"{FUTURE}\n\f\n@staticmethod\ndef f(): pass\n", 1),
    ],
)
def test_the_runtime_is_unpacked_after_the_future_imports_and_before_all_else(
    solved: Callable[..., Solution], tmp_path: Path, head: str, kept: int
) -> None:
    """Cause: lines were counted as `str.splitlines` does, and cut even where a statement follows on the same line."""
    program = f"{head}{example('cpu', 'kernel.py')}"
    text = one_file(solved("cpu", program=program))
    body, before = ast.parse(text).body, ast.parse(program).body
    # the definition of the function that unpacks, and its call
    assert [ast.dump(node) for node in body[:kept]] == [ast.dump(node) for node in before[:kept]]
    assert isinstance(body[kept], ast.FunctionDef)
    assert len(body) == len(before) + 2
    (tmp_path / "alone.py").write_bytes(text.encode())
    alone = loaded("alone_kernel", tmp_path / "alone.py")
    assert alone.inline.__name__.startswith("kforge_inline_")


def test_a_program_of_a_docstring_alone_is_cut_at_its_end() -> None:
    assert _after_future_imports('"""A program."""') == ('"""A program."""', "")


def test_a_program_without_the_runtime_stays_as_it_is(solved: Callable[..., Solution]) -> None:
    assert one_file(solved("null")) == example("null", "kernel.py")


def test_the_same_program_gives_the_same_file(solved: Callable[..., Solution]) -> None:
    assert one_file(solved("cpu", place="one")) == one_file(solved("cpu", place="another"))


# --- kernelbench --------------------------------------------------------------------------------------------


def test_kernelbench_finds_the_sample_and_its_results(solved: Callable[..., Solution], tmp_path: Path) -> None:
    solution = solved("cpu", name="23_Softmax", place="problems/level2/23_Softmax")
    assert place_of(solution) == (2, 23)
    export(solution, tmp_path / "out", "kernelbench")
    folder = tmp_path / "out" / "runs" / solution.run
    assert "class ModelNew" in (folder / "level_2_problem_23_sample_0_kernel.py").read_text()
    (result,) = json.loads((folder / "eval_results.json").read_text())["23"]
    assert (result["sample_id"], result["compiled"], result["correctness"]) == (0, True, True)
    assert result["runtime"] == pytest.approx(1.0)
    assert result["runtime_stats"]["speedup_over_eager"] == 2.0


def test_a_problem_of_no_level_gets_none(solved: Callable[..., Solution]) -> None:
    assert place_of(solved("cpu", name="softmax")) == (0, 0)


# --- flashinfer ---------------------------------------------------------------------------------------------


def test_names_are_python_names_and_all_different(solved: Callable[..., Solution]) -> None:
    tensors = NamedTensors.of(two(solved))
    assert list(tensors.inputs) == ["run", "other"]
    assert list(tensors.weights) == ["linear_weight", "linear_bias"]
    assert list(tensors.outputs) == ["output", "output_1"]


def exported_functions(root: Path, name: str) -> tuple[Any, Any, dict[str, Any]]:
    """The modules of a solution and of its definition's reference as other tools import them, and the definition."""
    definition = json.loads((root / "definitions" / "module" / f"{name}.json").read_text())
    solution = json.loads((root / "solutions" / "kforge" / "module" / name / f"{name}_kforge.json").read_text())
    workload = json.loads((root / "workloads" / "module" / f"{name}.jsonl").read_text())
    assert solution["definition"] == definition["name"] == workload["definition"]
    assert list(definition["inputs"]) == list(workload["workload"]["inputs"])
    for source in solution["sources"]:
        path = root / "a_kernel_package" / source["path"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source["content"])
        assert source["content"]
    sys.path.insert(0, str(root))
    try:
        entry = importlib.import_module("a_kernel_package.main")
    finally:
        sys.path.remove(str(root))
    reference = types.ModuleType("reference_kernel")
    exec(definition["reference"], reference.__dict__)
    return entry, reference, definition


def test_a_flashinfer_solution_computes_what_its_definition_computes(
    solved: Callable[..., Solution], tmp_path: Path
) -> None:
    export(two(solved), tmp_path / "out", "flashinfer")
    entry, reference, definition = exported_functions(tmp_path / "out", "two_outputs")
    sizes = {name: axis["value"] for name, axis in definition["axes"].items()}
    given = [torch.randn([sizes[axis] for axis in each["shape"]]) for each in definition["inputs"].values()]
    for _ in range(2):  # new weights, the same module
        torch.testing.assert_close(entry.run(*given), reference.run(*given))
        given = [each + 1 for each in given]


AWKWARD_INPUTS = (
    "first", "model", "state", "outputs", "torch", "inspect", "reference", "ModelNew", "Model", "_arguments", "_models",
    "_pytree", "next", "isinstance", "weights", "inputs", "run", "_kforge_run", "device", "get_init_inputs",
)  # fmt: skip
AWKWARD_WEIGHTS = (
    'a" in print("INJECTED") or "a', "a\\", "a\nb", "\U0001f600", "</a>", "_kforge_run", "_kforge2_run", "lambda",
    "__debug__", "x\u00b2", "x2", "\ufb01", "fi", "0",
)  # fmt: skip
AWKWARD = f"""\
import torch
from torch import nn

WEIGHTS = {AWKWARD_WEIGHTS!r}
factor = 3.0

def _arguments():
    return factor

def _model():
    return factor

_WEIGHTS = _DEVICE = _TOLERANCE = _models = 5.0

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        for name in WEIGHTS:
            self.register_parameter(name, nn.Parameter(torch.ones(4)))

    def forward(self, {", ".join(AWKWARD_INPUTS)}):
        total = first
        for place, each in enumerate(({", ".join(AWKWARD_INPUTS)})):
            total = total + place * each
        for place, each in enumerate(self._parameters.values()):
            total = total + place * each
        return self.scaled(total)

    def scaled(self, total):
        return total * _model() * _arguments() * (_WEIGHTS + _DEVICE + _TOLERANCE + _models)

def get_inputs():
    return [torch.randn(4) for _ in range({len(AWKWARD_INPUTS)})]

def get_init_inputs():
    return []
"""
"""Names of inputs, weights and globals that are also names of what an export adds, or that need quoting."""


def awkward(solved: Callable[..., Solution]) -> Solution:
    import dataclasses

    program = AWKWARD.partition("def get_inputs")[0].replace("class Model(", "class ModelNew(")
    solution = solved("null", problem=AWKWARD, program=program, name="Awkward")
    x = TensorSpec(shape=(4,), dtype="float32")
    weights = tuple(TensorSpec(shape=(4,), dtype="float32", name=name) for name in AWKWARD_WEIGHTS)
    changed = {"inputs": (x,) * len(AWKWARD_INPUTS), "outputs": (x,), "parameters": weights}
    return dataclasses.replace(solution, workload=solution.workload.model_copy(update=changed))


def whole_numbers() -> torch.Tensor:
    """Numbers whose sums are exact in any order."""
    return torch.randint(-9, 10, (4,)).float()


def computed(inputs: list[torch.Tensor], weights: list[torch.Tensor]) -> torch.Tensor:
    """What `AWKWARD` computes."""
    total = inputs[0] + sum(place * each for values in (inputs, weights) for place, each in enumerate(values))
    return total * 3.0 * 3.0 * 20.0


def test_no_name_of_a_problem_clashes_with_a_name_of_a_flashinfer_solution(
    solved: Callable[..., Solution], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Cause: `run` had variables with names that parameters had, and names of weights were pasted into the code."""
    export(awkward(solved), tmp_path / "out", "flashinfer")
    entry, reference, definition = exported_functions(tmp_path / "out", "awkward")
    count = len(AWKWARD_INPUTS)
    assert tuple(definition["inputs"])[:count] == AWKWARD_INPUTS
    assert all(name.isidentifier() for name in definition["inputs"])
    inputs, weights = ([whole_numbers() for _ in names] for names in (AWKWARD_INPUTS, AWKWARD_WEIGHTS))
    for function in (entry.run, reference.run):
        torch.testing.assert_close(function(*inputs, *weights), computed(inputs, weights))
    by_name = dict(zip(definition["inputs"], [*inputs, *weights], strict=True))
    torch.testing.assert_close(entry.run(**by_name), computed(inputs, weights))
    assert "INJECTED" not in capsys.readouterr().out


def test_no_name_of_a_problem_clashes_with_a_name_of_a_gpumode_task(
    solved: Callable[..., Solution], tmp_path: Path
) -> None:
    export(awkward(solved), tmp_path / "out", "gpumode")
    submission, reference = importlib.import_module("submission"), importlib.import_module("reference")
    data = [whole_numbers() for _ in (*AWKWARD_INPUTS, *AWKWARD_WEIGHTS)]
    expected = computed(data[: len(AWKWARD_INPUTS)], data[len(AWKWARD_INPUTS) :])
    torch.testing.assert_close(submission.custom_kernel(data), expected)
    torch.testing.assert_close(reference.ref_kernel(data), expected)


@pytest.mark.parametrize(("form", "name"), [("flashinfer", "run"), ("gpumode", "ref_kernel"), ("gpumode", "input_t")])
def test_a_source_that_uses_a_name_of_the_format_is_refused(
    solved: Callable[..., Solution], tmp_path: Path, form: str, name: str
) -> None:
    import dataclasses

    source = TWO.replace("run", "x").replace("return y, y", f"return {name}(y), y")
    defined = f"def {name}(y):\n    return y\n\n{source}"
    program = defined.partition("def get_inputs")[0].replace("class Model(", "class ModelNew(")
    solution = two(solved)
    solution = dataclasses.replace(
        solution,
        problem=solution.problem.model_copy(update={"source": defined}),
        candidate=solution.candidate.model_copy(update={"source": program}),
    )
    with pytest.raises(InputError, match=f"the format '{form}' needs the name '{name}'"):
        export(solution, tmp_path / "out", form)
    assert not (tmp_path / "out").exists()


def test_a_text_of_others_is_quoted_in_every_file(solved: Callable[..., Solution], tmp_path: Path) -> None:
    name = 'x"""\n# \\ \x00\x7f\x1b\U0001f600: - {{ 7 * 7 }} [tool]'
    for form in FORMATS:
        for file in export(solved("cpu", name=name, place=f"run_{form}"), tmp_path / form, form):
            if file.suffix == ".toml":
                tomllib.loads(file.read_text())
    shown = "x''' # / ???\U0001f600: - {{ 7 * 7 }} [tool]"
    assert f'description: "{shown}"\n' in (tmp_path / "gpumode" / "task.yml").read_text()
    project = tomllib.loads((tmp_path / "package" / "pyproject.toml").read_text())["project"]
    assert project["description"].startswith(f"{shown}: a verified kernel for ")


def test_a_flashinfer_solution_carries_its_runtime(solved: Callable[..., Solution], tmp_path: Path) -> None:
    export(solved("cpu"), tmp_path / "out", "flashinfer")
    (file,) = (tmp_path / "out" / "solutions").rglob("*.json")
    paths = {source["path"] for source in json.loads(file.read_text())["sources"]}
    assert {"main.py", "kernel.py", "inline/__init__.py", "inline/include/kforge/math.h"} <= paths


# --- gpumode ------------------------------------------------------------------------------------------------


def test_a_gpumode_submission_solves_its_task(solved: Callable[..., Solution], tmp_path: Path) -> None:
    export(two(solved), tmp_path / "out", "gpumode")
    assert "@SUBMISSION@" in (tmp_path / "out" / "task.yml").read_text()
    submission, reference = importlib.import_module("submission"), importlib.import_module("reference")
    for seed in (1, 2):
        data = reference.generate_input(seed=seed)
        assert len(data) == 4
        assert reference.check_implementation(data, submission.custom_kernel(data)) == ""
    wrong = tuple(each * 1.01 for each in submission.custom_kernel(data))
    assert "is off by" in reference.check_implementation(data, wrong)
    assert "other shapes" in reference.check_implementation(data, wrong[0])


def test_a_gpumode_submission_is_one_file(solved: Callable[..., Solution], tmp_path: Path) -> None:
    export(solved("cpu"), tmp_path / "out", "gpumode")
    submission = importlib.import_module("submission")
    assert submission.inline.__name__.startswith("kforge_inline_")
    x = torch.randn(4, 1024)
    torch.testing.assert_close(submission.custom_kernel(x).square().mean(-1), torch.ones(4), rtol=1e-3, atol=1e-3)


# --- hf-kernels ---------------------------------------------------------------------------------------------


def test_the_kernels_library_loads_the_build(
    solved: Callable[..., Solution], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    kernels = pytest.importorskip("kernels")
    export(solved("cpu"), tmp_path / "out", "hf-kernels")
    kernel = kernels.get_local_kernel(tmp_path / "out" / "build", backend="cpu")
    module = kernel.load()
    model = kernel.reference.Model(*kernel.arguments())
    kernel.copy_weights(model.state_dict(), module)
    x = torch.randn(8, 1024)
    torch.testing.assert_close(module(x), model(x))
    assert kernel.kernel.inline is not inline


def test_source_and_build_of_a_hub_repository_are_the_same(solved: Callable[..., Solution], tmp_path: Path) -> None:
    export(solved("metal"), tmp_path / "out", "hf-kernels")
    source, built = tmp_path / "out" / "torch-ext" / "rms_norm_kernel", tmp_path / "out" / "build" / "torch-metal"
    for file in source.rglob("*.*"):
        assert (built / file.relative_to(source)).read_bytes() == file.read_bytes()
    project = tomllib.loads((tmp_path / "out" / "build.toml").read_text())
    assert project["general"]["backends"] == ["metal"]
    metadata = json.loads((built / "metadata.json").read_text())
    assert metadata["id"].isidentifier()


# --- all ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", list(FORMATS))
@pytest.mark.parametrize("platform", ["cpu", "cuda", "metal", "opencl", "triton", "webgpu"])
def test_every_format_takes_every_kernel(
    solved: Callable[..., Solution], tmp_path: Path, form: str, platform: str
) -> None:
    for file in export(solved(platform), tmp_path / "out", form):
        text = file.read_text()
        assert "/tmp/" not in text
        if file.suffix == ".py":
            compile(text, str(file), "exec")
            assert not re.search(r"^\s*(from|import) kforge\b", text, re.MULTILINE)
        elif file.suffix == ".json":
            json.loads(text)


@pytest.mark.parametrize("form", list(FORMATS))
@pytest.mark.parametrize("broken", ["return 1\n", "from __future__ import annotations\nx: (yield) = 1\n"])
def test_a_file_that_is_not_valid_python_is_refused_and_nothing_is_written(
    solved: Callable[..., Solution], tmp_path: Path, form: str, broken: str
) -> None:
    # each program has a syntax tree, and only compiling it finds the error
    program = f"{broken}{example('cpu', 'kernel.py')}"
    with pytest.raises(InputError, match=r"the exported file '.*\.py' is not valid Python, and nothing is written: "):
        export(solved("cpu", program=program), tmp_path / "out", form)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("source", [b"# coding: unknown\n", b"\xff", "x = '\ud800'", "\0", "(" * 10_000])
def test_every_way_to_be_no_python_is_an_input_error(tmp_path: Path, source: str | bytes) -> None:
    with pytest.raises(InputError, match=r"the exported file 'inside\.py' is not valid Python") as refused:
        writing.write(tmp_path / "out", {"data.txt": source, "inside.py": source})
    assert "\n" not in str(refused.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["../escaped.py", "runs/../../escaped.py", "{folder}/escaped.py"])
def test_no_file_is_written_outside_the_folder(tmp_path: Path, name: str) -> None:
    files = {"inside.py": "", name.format(folder=tmp_path): ""}
    with pytest.raises(InputError, match="would lie outside"):
        writing.write(tmp_path / "out", files)
    assert not list(tmp_path.iterdir())
