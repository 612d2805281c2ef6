"""GPU MODE tasks: cases of `task.yml`, and what the reference uses of the files beside it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
import torch
from tests.problems.readers.conftest import described, tasks_of

from kforge.errors import ProblemError
from kforge.problems import open_suite
from kforge.problems.instance import instantiate
from kforge.problems.readers.inlining import inlined

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TASK = """\
files:
  - {name: submission.py, source: "@SUBMISSION@"}
  - {name: task.py, source: task.py}
  - {name: utils.py, source: ../utils.py}
  - {name: reference.py, source: reference.py}
lang: py
tests:
  - {rows: 2, seed: 1}
benchmarks:
  - {rows: 3, seed: 5}
  - {rows: 4, seed: 5}
ranking_by: geom
"""
REFERENCE = """\
import torch
from task import input_t, output_t
from utils import make_match_reference, Quietly as Context

def generate_input(rows: int, seed: int) -> input_t:
    gen = torch.Generator(device="xpu")
    gen.manual_seed(seed)
    x = torch.randn(rows, 5, device="xpu", generator=gen).to("xpu")
    return x, torch.empty(rows, 5, device=torch.device("xpu"))

def ref_kernel(data: input_t) -> output_t:
    with Context():
        x, out = data
        out[...] = x * 2
        return out

check_implementation = make_match_reference(ref_kernel, rtol=1e-3)
"""
TYPES = "import torch\ninput_t = tuple[torch.Tensor, torch.Tensor]\noutput_t = torch.Tensor\n"
HELPERS = """\
import contextlib
import subprocess

LEVEL = 3

class Quietly(contextlib.ExitStack):
    level = LEVEL

def make_match_reference(reference, **options):
    subprocess.run(["false"])
"""
FILES = {
    "problems/set/double_py/task.yml": TASK,
    "problems/set/double_py/reference.py": REFERENCE,
    "problems/set/double_py/task.py": TYPES,
    "problems/set/utils.py": HELPERS,
}


def test_benchmarks_are_timed_and_tests_are_held_out(tree: Callable[..., Path]) -> None:
    folder = tree(FILES)
    tasks = tasks_of(folder)
    assert list(tasks) == ["set/double_py/1-rows=3", "set/double_py/2-rows=4"]
    assert list(tasks_of(folder, "held_out")) == ["set/double_py"]
    assert [described(task).outputs[0].shape for task in tasks.values()] == [(3, 5), (4, 5)]
    assert all(task.notes == () for task in tasks.values())


def test_inputs_follow_the_evaluators_seed_and_not_the_tasks(tree: Callable[..., Path]) -> None:
    task = tasks_of(tree(FILES))["set/double_py/1-rows=3"]
    assert task.problem is not None
    instance = instantiate(task.problem)
    one, same, other = (instance.inputs(seed)[0] for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


@pytest.mark.parametrize(
    ("returned", "parameters"),
    [
        ("x, torch.empty(rows, 5)", "x, data1"),
        ("(x, x)", "data0, data1"),
        ("tuple([x, torch.empty(rows, 5)])", "data"),
    ],
)
def test_a_tuple_that_is_seen_becomes_several_inputs(tree: Callable[..., Path], returned: str, parameters: str) -> None:
    line = '    return x, torch.empty(rows, 5, device=torch.device("xpu"))\n'
    assert line in REFERENCE
    reference = REFERENCE.replace(line, f"    return {returned}\n")
    tasks = tasks_of(tree({**FILES, "problems/set/double_py/reference.py": reference}))
    task = tasks["set/double_py/1-rows=3"]
    assert task.problem is not None
    assert f"def forward(self, {parameters}):" in task.problem.source
    assert described(task).outputs[0].shape == (3, 5)


def test_only_what_the_reference_uses_is_written_into_it(tree: Callable[..., Path]) -> None:
    task = tasks_of(tree(FILES))["set/double_py/1-rows=3"]
    assert task.problem is not None
    source = task.problem.source
    assert "class Quietly" in source
    assert "LEVEL = 3" in source
    assert "subprocess" not in source
    assert "check_implementation" not in source


def test_a_check_of_its_own_is_told(tree: Callable[..., Path]) -> None:
    residual = (
        REFERENCE.partition("check_implementation")[0] + "def check_implementation(data, output):\n    return True\n"
    )
    tasks = tasks_of(tree({**FILES, "problems/set/double_py/reference.py": residual}))
    assert all("not a plain comparison with its reference" in task.notes[0] for task in tasks.values())


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("task.yml", "tests: [1]\n", "tests must be a list of mappings"),
        ("task.yml", "tests: {\n", "is not valid YAML"),
        ("task.yml", "[]\n", "must hold a mapping"),
        ("task.yml", "lang: py\n", "has no benchmarks and no tests"),
        ("reference.py", "x = 1\n", "does not define ref_kernel()"),
        ("reference.py", "import utils\n" + REFERENCE, "only `from utils import name` at the top is read"),
        ("reference.py", REFERENCE.replace("Quietly as", "Loudly as"), "utils does not define Loudly"),
    ],
)
def test_a_bad_task_fails_alone(tree: Callable[..., Path], name: str, text: str, said: str) -> None:
    tasks = tasks_of(tree({**FILES, f"problems/set/double_py/{name}": text}))
    assert tasks
    assert all(said in str(task.failure) for task in tasks.values())


def test_tasks_for_several_devices_are_left_out(tree: Callable[..., Path]) -> None:
    folder = tree({**FILES, "problems/set/double_py/task.yml": TASK + "multi_gpu: true\n"})
    with pytest.raises(ProblemError, match="tasks for several devices at once are not read"):
        open_suite(str(folder)).tasks()


def test_a_missing_yaml_package_is_told_in_one_line(tree: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    (task,) = tasks_of(tree(FILES)).values()
    assert str(task.failure).endswith("reading it needs PyYAML; install it with: pip install 'kforge[suites]'")


def test_names_of_two_meanings_are_refused() -> None:
    beside = {"utils": "def scale(x):\n    return x\n"}
    with pytest.raises(ProblemError, match="define scale more than once"):
        inlined("from utils import scale as s\ndef scale(x):\n    return s(x)\n", beside, "reference.py")


def test_files_that_import_each_other_are_refused() -> None:
    beside = {"a": "from b import y\ndef x(): y()\n", "b": "from a import x\ndef y(): x()\n"}
    with pytest.raises(ProblemError, match="import each other in a circle"):
        inlined("from a import x\nx()\n", beside, "reference.py")


SECRET = "API_KEY = 'of the user'\n"


def leaking(source: str) -> dict[str, str]:
    """A task whose reference wants the content of a file of the user's."""
    task = f'files:\n  - {{name: utils.py, source: "{source}"}}\nbenchmarks:\n  - {{rows: 2, seed: 1}}\n'
    reference = "from utils import API_KEY\n" + REFERENCE.partition("from utils")[0].replace("from task", "# ")
    reference += (
        "def generate_input(rows, seed):\n    return torch.ones(rows)\ndef ref_kernel(data):\n    return API_KEY\n"
    )
    return {"set/leak/task.yml": task, "set/leak/reference.py": reference}


@pytest.mark.parametrize("source", ["../../../secret.py", "{folder}/secret.py", "linked.py"])
def test_a_file_outside_the_suite_is_not_read(tree: Callable[..., Path], tmp_path: Path, source: str) -> None:
    (tmp_path / "secret.py").write_text(SECRET)
    folder = tree(leaking(source.format(folder=tmp_path)))
    (folder / "set/leak/linked.py").symlink_to(tmp_path / "secret.py")
    (task,) = tasks_of(folder).values()
    assert "lies outside the suite's folder" in str(task.failure)


def test_links_in_a_circle_are_not_followed(tree: Callable[..., Path]) -> None:
    folder = tree(FILES)
    for index in range(60):
        (folder / f"again{index}").symlink_to(".")
    assert len(tasks_of(folder)) == 2


def bomb(merging: bool) -> str:
    """A document in which every line repeats the one before nine times."""
    lines = ["a0: &a0 {k: 1}"]
    for index in range(1, 10):
        repeated = ", ".join([f"*a{index - 1}"] * 9)
        lines.append(f"a{index}: &a{index} {{'<<': [{repeated}]}}" if merging else f"a{index}: &a{index} [{repeated}]")
    return "\n".join(lines).replace("'<<'", "<<") + "\n"


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("head", "case", "said"),
    [
        (bomb(merging=False), "*a9", "its aliases make more than"),
        (bomb(merging=True), "1", "its aliases make more than"),
        ("", "&x [*x]", "a value in it contains itself"),
        ("", "9" * 5000, "is not valid YAML"),
        ("", "0x" + "f" * 20000, "cannot be read: ValueError"),
        ("", "[" * 20000, "is not valid YAML"),
        ("#" * 2**20 + "\n", "1", "it is larger than 1 MiB"),
    ],
)
def test_a_document_that_explodes_fails_alone(tree: Callable[..., Path], head: str, case: str, said: str) -> None:
    hostile = f"{head}benchmarks:\n  - rows: {case}\n    seed: 1\n"
    folder = tree({**FILES, "a/task.yml": hostile, "a/reference.py": REFERENCE})
    tasks = tasks_of(folder)
    assert len(tasks) == 3
    assert said in str(tasks["a"].failure)
    assert "\n" not in str(tasks["a"].failure)


def test_aliases_of_a_small_document_are_read(tree: Callable[..., Path]) -> None:
    task = "common: &common {rows: 3}\nbenchmarks:\n  - {<<: *common, seed: 1}\n  - {<<: *common, rows: 4, seed: 2}\n"
    tasks = tasks_of(tree({**FILES, "problems/set/double_py/task.yml": task + TASK.partition("lang")[0]}))
    assert [described(each).outputs[0].shape for each in tasks.values()] == [(3, 5), (4, 5)]
