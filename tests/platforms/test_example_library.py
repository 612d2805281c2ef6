"""Examples of a platform's library: which one a problem gets, and that each computes what its reference does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from kforge import platforms

if TYPE_CHECKING:
    from pathlib import Path

CPU = platforms.find("cpu")
FOLDERS = {folder.name: folder for folder in sorted((CPU.folder / "examples").glob("*/"))}


def defined(file: Path) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(file.read_text(), names)
    return names


@pytest.mark.parametrize(
    ("source", "example"),
    [
        ("return torch.softmax(x * 2, dim=-1)", "softmax"),
        ("return functional.cross_entropy(x, y)", "softmax"),
        ("self.linear = nn.Linear(3, 4)", "product_tail"),
        ("return x.cumsum(dim=1)", "scan"),
        ("return functional.max_pool2d(x, 2)", "pooling"),
        ("return torch.sigmoid(x) * x", "elementwise"),
        ("return functional.mse_loss(x, y)", "loss"),
        ("self.linear = nn.Linear(3, 4)\nreturn torch.relu(self.linear(x)).matmul(y)", "product_tail"),
    ],
)
def test_a_problem_gets_the_example_that_shares_most_operators(source: str, example: str) -> None:
    assert CPU.example_for(source).kernel == (FOLDERS[example] / "kernel.py").read_text()


@pytest.mark.parametrize("source", ["", "return x * torch.rsqrt(x.pow(2).mean())", "cumsums = relulike = 1"])
def test_a_problem_that_shares_none_gets_the_platforms_own(source: str) -> None:
    assert CPU.example_for(source) == CPU.example


def test_a_platform_without_a_library_has_its_own_example() -> None:
    null = platforms.find("null")
    assert null.example_for("torch.softmax(x)") == null.example


@pytest.mark.skipif(CPU.adapter.probe() is not None, reason="needs a C++ compiler")
@pytest.mark.parametrize("name", FOLDERS)
def test_an_example_computes_what_its_reference_does(name: str) -> None:
    theirs, ours = (defined(FOLDERS[name] / file) for file in ("reference.py", "kernel.py"))
    arguments = theirs["get_init_inputs"]()
    reference, program = theirs["Model"](*arguments), ours["ModelNew"](*arguments)
    program.load_state_dict(reference.state_dict())
    for factor in (1.0, 0.0, 256.0, -1e-3):
        inputs = [factor * each for each in theirs["get_inputs"]()]
        with torch.no_grad():
            exact = reference.double()(*(each.double() for each in inputs))
            found = program(*inputs)
        scale = exact.pow(2).mean().sqrt().clamp(min=1e-30)
        errors = (found - exact).abs() / torch.maximum(exact.abs(), scale)
        assert found.dtype == torch.float32
        assert float(errors.max()) < 1e-5, factor
