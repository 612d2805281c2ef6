"""Programs of the smith and how they are run."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from kforge.inline import configuration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kforge.problems.instance import Instance

Given = tuple[str, dict[str, torch.Tensor], list[list[torch.Tensor]]]
"""A program's text, its state, and the inputs of several calls."""


@pytest.fixture(scope="session")
def interpret(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Runs Triton programs on the host, all in one process: what each returns, or what it raises as a string."""
    if importlib.util.find_spec("triton") is None:
        pytest.skip("triton is not installed")
    command = [sys.executable, "-W", "ignore", str(Path(__file__).with_name("interpreted.py"))]
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True) as process:

        def run(programs: dict[str, Given]) -> dict[str, Any]:
            folder = tmp_path_factory.mktemp("interpreted")
            files = {name: f"program{number}" for number, name in enumerate(programs)}
            for name, (source, state, inputs) in programs.items():
                (folder / f"{files[name]}.py").write_text(source)
                torch.save((state, inputs), folder / f"{files[name]}.given.pt")
            assert process.stdin is not None
            assert process.stdout is not None
            print(folder, file=process.stdin, flush=True)
            assert process.stdout.readline() == f"{folder}\n", "the process that interprets has ended"
            return {name: torch.load(folder / f"{file}.got.pt") for name, file in files.items()}

        yield run


@pytest.fixture(scope="module")
def values_to_test(request: pytest.FixtureRequest) -> Callable[[str], set[Any]]:
    """The values that a parameter has among the tests of this file that will run."""

    def values(parameter: str) -> set[Any]:
        here = (item for item in request.session.items if item.path == request.path)
        calls = (
            item.callspec.params for item in here if isinstance(item, pytest.Function) and hasattr(item, "callspec")
        )
        return {parameters[parameter] for parameters in calls if parameter in parameters}

    return values


@pytest.fixture
def as_exact_as_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a C++ program whose outputs are named cases: each is hardly further from the truth than torch's own."""
    monkeypatch.setattr(configuration, "_current", configuration.Configuration(cache=tmp_path / "builds"))

    def check(instance: Instance, source: str, cases: Iterable[str]) -> None:
        program: dict[str, Any] = {"__name__": "program"}
        exec(compile(source, "program.py", "exec"), program)
        torch.manual_seed(0)  # how exact either is depends on the weights
        model, candidate = instance.make_model(), program["ModelNew"]()
        candidate.load_state_dict(model.state_dict())
        for seed in range(2):
            inputs = instance.inputs(seed)
            with torch.no_grad():
                found, usual = candidate(*inputs), model.float()(*inputs)
                exact = model.double()(*(each.double() for each in inputs))
            for case, ours, theirs, truth in zip(cases, found, usual, exact, strict=True):
                assert ours.shape == truth.shape
                error, common = ((each - truth).abs().max() / truth.square().mean().sqrt() for each in (ours, theirs))
                assert error < 1e-6 + 1.5 * common, case

    return check
