"""Who is not blamed for what rounding alone does to a case, and who is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from kforge import problems
from kforge.evaluation.comparison.comparison import Agreement, compare
from kforge.evaluation.correctness.rounding import excused, fails_nearby
from kforge.evaluation.reference.reference import Reference
from kforge.problems.instance import instantiate
from kforge.records import Mismatch

if TYPE_CHECKING:
    from pathlib import Path

    from kforge.evaluation.comparison.comparison import Truth

PROBLEM = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, query, key, value):
        scores = query @ key.transpose(-2, -1) / query.shape[-1] ** 0.5
        return torch.softmax(scores, dim=-1) @ value{more}

def get_inputs():
    return [torch.randn(2, 4, 160, 48) for _ in range(3)]

def get_init_inputs():
    return []
"""


@pytest.fixture
def reference(tmp_path: Path) -> Reference:
    (tmp_path / "problem.py").write_text(PROBLEM.format(more=""))
    return Reference(instantiate(problems.load(tmp_path / "problem.py")), 0)


def far_below_zero(seed: int) -> list[torch.Tensor]:
    """Scores in the hundred thousands, of which the largest two of a row are some apart."""
    generator = torch.Generator().manual_seed(seed)
    return [-(256 * torch.randn(2, 4, 160, 48, generator=generator)).abs() - 100 for _ in range(3)]


def refused(reference: Reference, change: object = None) -> tuple[Truth, torch.Tensor]:
    """A case on which fused attention, maybe of changed inputs, is further off than four times torch's own error."""
    for seed in range(200):
        inputs = far_below_zero(seed)
        truth = reference.truth(inputs)
        given = [change(each) for each in inputs] if callable(change) else inputs
        got = torch.nn.functional.scaled_dot_product_attention(*given)
        if isinstance(compare(truth, got, "strict", "case"), Mismatch):
            return truth, got
    pytest.fail("no such case")


def test_another_order_of_sums_is_excused_where_rounding_is_amplified(reference: Reference) -> None:
    truth, got = refused(reference)
    assert excused(reference, truth, got, "strict")


def test_fewer_bits_are_not(reference: Reference) -> None:
    def rounded(value: torch.Tensor) -> torch.Tensor:
        """As on a matrix unit that drops 13 bits."""
        return (value.view(torch.int32) & ~0x1FFF).view(torch.float32)

    truth, got = refused(reference, rounded)
    assert not excused(reference, truth, got, "strict")


def test_nobody_is_excused_where_rounding_does_nothing(reference: Reference) -> None:
    inputs = [torch.randn(2, 4, 160, 48) for _ in range(3)]
    truth = reference.truth(inputs)
    off = truth.own.clone()
    # of a large one it would be less, by its own magnitude
    off.view(-1)[off.abs().argmin()] += 3e-5 * truth.own.square().mean().sqrt()
    assert isinstance(compare(truth, off, "strict", "case"), Mismatch)
    assert not excused(reference, truth, off, "strict")


def test_what_is_not_finite_excuses_nobody(tmp_path: Path) -> None:
    """The inputs beside the edge of a domain have no result at all."""
    (tmp_path / "problem.py").write_text(
        "import torch\nfrom torch import nn\n\nclass Model(nn.Module):\n    def forward(self, x):\n"
        "        return torch.acos(x)\n\ndef get_inputs():\n    return [torch.rand(64)]\n\n"
        "def get_init_inputs():\n    return []\n"
    )
    reference = Reference(instantiate(problems.load(tmp_path / "problem.py")), 0)
    truth = reference.truth([torch.ones(64)])
    assert not excused(reference, truth, torch.full((64,), 1e-4), "strict")


def test_what_is_missing_beside_what_is_off_is_not_excused(tmp_path: Path) -> None:
    (tmp_path / "problem.py").write_text(PROBLEM.format(more=", scores"))
    reference = Reference(instantiate(problems.load(tmp_path / "problem.py")), 0)
    truth = reference.truth(far_below_zero(0))
    off = truth.own[0].clone()
    off[0, 0, 0, 0] += 1.0
    for missing in ([], truth.own[1][:, :, :1]):
        assert not excused(reference, truth, (off, missing), "strict")


CODES = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.book = nn.Parameter(torch.randn(256, 64))

    def forward(self, x):
        distance = (x**2).sum(dim=1, keepdim=True) - 2.0 * x @ self.book.t() + (self.book**2).sum(dim=1)
        return distance.{choice}

def get_inputs():
    return [torch.randn(10000, 64)]

def get_init_inputs():
    return []
"""
NEAR, APART = 1e-6, 1e-3
"""How much nearer the nearest of two codes is: distances of a hundred are rounded to 8e-6."""


def codes(folder: Path, choice: str = "argmin(dim=1)") -> Reference:
    (folder / "problem.py").write_text(CODES.format(choice=choice))
    return Reference(instantiate(problems.load(folder / "problem.py")), 0)


def between_two_codes(reference: Reference, gap: float, rows: int = 1, of: int = 10000) -> tuple[Truth, torch.Tensor]:
    """A case whose first rows are nearly as near to a second code, and those second ones."""
    book = reference.exact_model.book.detach()
    for seed in range(50):
        x = torch.randn(of, 64, generator=torch.Generator().manual_seed(seed))
        for _ in range(4):
            some = x[:rows].double()
            values, two = torch.cdist(some, book).square().topk(2, largest=False)
            away = book[two[:, 1]] - book[two[:, 0]]
            step = (values[:, 1] - values[:, 0] - gap) / (2 * away.square().sum(dim=1))
            x[:rows] = (some + step[:, None] * away).float()
        truth = reference.truth([x])
        nearest = torch.cdist(x[:rows].double(), book).topk(2, largest=False).indices
        if torch.equal(truth.own[:rows].view(rows, -1), truth.exact[:rows].view(rows, -1)):
            return truth, nearest[:, 1]
    pytest.fail("no such case")


@pytest.mark.parametrize("of", [10000, 100])
def test_the_other_of_two_codes_that_are_equally_near_is_excused(of: int, tmp_path: Path) -> None:
    reference = codes(tmp_path)
    truth, second = between_two_codes(reference, NEAR, of=of)
    got = truth.own.clone()
    got[:1] = second
    assert isinstance(compare(truth, got, "strict", "case"), Mismatch)
    assert excused(reference, truth, got, "strict")


def test_a_code_that_is_further_away_is_not(tmp_path: Path) -> None:
    reference = codes(tmp_path)
    for gap in (APART, NEAR):
        truth, second = between_two_codes(reference, gap)
        got = truth.own.clone()
        got[0] = second[0] if gap == APART else (second[0] + 1) % 256
        assert not excused(reference, truth, got, "strict")


def test_as_many_as_there_are_near_ties_are_excused(tmp_path: Path) -> None:
    reference = codes(tmp_path)
    truth, second = between_two_codes(reference, NEAR, rows=2)
    got = truth.own.clone()
    got[:2] = second
    assert excused(reference, truth, got, "strict") == "equal_choices"
    got[2] = (got[2] + 1) % 256
    assert excused(reference, truth, got, "strict") is None


def test_distances_of_fewer_bits_are_not(tmp_path: Path) -> None:
    reference = codes(tmp_path)
    truth, _ = between_two_codes(reference, APART)
    book = reference.model.book.detach()
    x = truth.inputs[0]
    product = x.bfloat16().float() @ book.bfloat16().float().t()
    got = ((x**2).sum(dim=1, keepdim=True) - 2.0 * product + (book**2).sum(dim=1)).argmin(dim=1)
    assert not excused(reference, truth, got, "strict")


def test_none_is_named_twice(tmp_path: Path) -> None:
    """One of the two places is right, and the other is what torch says there for inputs as near."""
    reference = codes(tmp_path, "topk(2, largest=False).indices")
    truth, _ = between_two_codes(reference, NEAR)
    swapped, twice = truth.own.clone(), truth.own.clone()
    swapped[0] = swapped[0].flip(0)
    twice[0, 1] = twice[0, 0]
    assert isinstance(compare(truth, twice, "strict", "case"), Mismatch)
    assert not excused(reference, truth, twice, "strict")
    assert excused(reference, truth, swapped, "strict")


CONVOLUTION = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(32, 32, {size}, padding={size} // 2, bias=False)

    def forward(self, x):
        return self.convolution(x)

def get_inputs():
    return [torch.randn(4, 32, 32, 32)]

def get_init_inputs():
    return []
"""


def convolution(folder: Path, size: int = 3) -> Reference:
    (folder / "problem.py").write_text(CONVOLUTION.format(size=size))
    return Reference(instantiate(problems.load(folder / "problem.py")), 0)


def winograd(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """A convolution with kernels of 3x3 by F(4x4, 3x3): tiles of 6x6 at the points 0, 1, -1, 2, -2 and infinity."""
    points = torch.tensor([0.0, 1, -1, 2, -2])
    before = torch.tensor(
        [[4.0, 0, -5, 0, 1, 0], [0, -4, -4, 1, 1, 0], [0, 4, -4, -1, 1, 0],
         [0, -2, -1, 2, 1, 0], [0, 2, -1, -2, 1, 0], [0, 4, 0, -5, 0, 1]]
    )  # fmt: skip
    scales = torch.tensor([1 / 4, -1 / 6, -1 / 6, 1 / 24, 1 / 24])
    of_weight = torch.cat([scales[:, None] * points[:, None] ** torch.arange(3), torch.tensor([[0.0, 0, 1]])])
    after = torch.cat([points ** torch.arange(4)[:, None], torch.tensor([[0.0], [0], [0], [1]])], dim=1)
    tiles = torch.nn.functional.pad(x, (1, 1, 1, 1)).unfold(2, 6, 4).unfold(3, 6, 4)
    moved = torch.einsum("ij,nctujk,lk->ilcntu", before, tiles, before)
    kernels = torch.einsum("ij,ocjk,lk->iloc", of_weight, weight, of_weight)
    products = torch.einsum("iloc,ilcntu->ilontu", kernels, moved)
    found: torch.Tensor = torch.einsum("ij,jkontu,lk->notiul", after, products, after)
    return found.reshape(x.shape[0], weight.shape[0], *x.shape[2:])


@pytest.mark.parametrize("huge_row", [False, True])
def test_a_fast_convolution_is_excused(huge_row: bool, tmp_path: Path) -> None:
    reference = convolution(tmp_path)
    x = torch.randn(4, 32, 32, 32, generator=torch.Generator().manual_seed(0))
    if huge_row:
        x[1, 3, 9] *= 2**14
    truth = reference.truth([x])
    got = winograd(x, reference.model.convolution.weight.detach())
    assert isinstance(compare(truth, got, "strict", "case", local=True), Mismatch)
    assert excused(reference, truth, got, "strict", local=True) == "fast_convolution"


def test_factors_of_fewer_bits_are_no_fast_convolution(tmp_path: Path) -> None:
    def rounded(value: torch.Tensor) -> torch.Tensor:
        return ((value.view(torch.int32) + 0x100) & ~0x1FF).view(torch.float32)

    reference = convolution(tmp_path)
    weight = reference.model.convolution.weight.detach()
    x = torch.randn(4, 32, 32, 32, generator=torch.Generator().manual_seed(0))
    truth = reference.truth([x])
    got = torch.nn.functional.conv2d(rounded(x), rounded(weight), padding=1)
    assert excused(reference, truth, got, "strict", local=True) is None
    assert excused(reference, truth, torch.zeros_like(got), "strict", local=True) is None


def test_a_product_has_no_fast_algorithm(tmp_path: Path) -> None:
    reference = convolution(tmp_path, size=1)
    truth = reference.truth([torch.randn(4, 32, 32, 32, generator=torch.Generator().manual_seed(0))])
    noise = 3e-5 * truth.own.square().mean().sqrt() * (2 * torch.rand(truth.own.shape) - 1)
    assert excused(reference, truth, truth.own + noise, "strict", local=True) is None


NAMED_DTYPE = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x, weight):
        return torch.softmax(x.to(torch.float32) @ weight.to(torch.float32), dim=-1)

def get_inputs():
    return [torch.randn(256, 512), torch.randn(512, 256)]

def get_init_inputs():
    return []
"""


@pytest.mark.parametrize(("bits", "right"), [(24, True), (13, False)])
def test_without_fp64_torchs_error_is_estimated(tmp_path: Path, bits: int, right: bool) -> None:
    (tmp_path / "problem.py").write_text(NAMED_DTYPE)
    reference = Reference(instantiate(problems.load(tmp_path / "problem.py")), 0)
    for seed in range(3):
        truth = reference.truth(reference.instance.inputs(seed))
        assert not reference.exact_is_fp64
        lost = 1 << (24 - bits)
        x, weight = (((each.view(torch.int32) // lost) * lost).view(torch.float32).double() for each in truth.inputs)
        got = torch.softmax(x @ weight, dim=-1).float()
        assert isinstance(compare(truth, got, "strict", "case"), Mismatch)
        assert (excused(reference, truth, got, "strict") is not None) == right


SOLVES = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, a, b):
        return torch.linalg.solve(a, b)

def get_inputs():
    a = torch.randn(64, 64)
    return [a + 16 * torch.eye(64), torch.randn(64, 4)]

def get_init_inputs():
    return []
"""


def by_qr(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    q, r = torch.linalg.qr(a)
    return torch.linalg.solve_triangular(r, q.mT @ b, upper=True)


def test_another_algorithm_may_be_exact_to_the_scale_of_the_whole_matrix(tmp_path: Path) -> None:
    (tmp_path / "problem.py").write_text(SOLVES)
    reference = Reference(instantiate(problems.load(tmp_path / "problem.py")), 0)
    a, b = reference.instance.inputs(1)
    for scales in (torch.ones(64, 1), 2.0 ** torch.randint(-8, 9, (64, 1)), 10.0 ** torch.randint(-12, 5, (64, 1))):
        truth = reference.truth([a * scales, b])
        output = by_qr(a * scales, b)
        right = isinstance(compare(truth, output, "strict", ""), Agreement)
        assert right or excused(reference, truth, output, "strict") == "ill_conditioned"
    truth = reference.truth([a, b])
    rough = torch.linalg.solve(a.bfloat16().float(), b)
    assert isinstance(compare(truth, rough, "strict", ""), Mismatch)
    assert excused(reference, truth, rough, "strict") is None


UNITS = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, a, b):
        return torch.linalg.solve(a, b)

def get_inputs():
    rows, columns = torch.logspace(0, {rows}, 32)[:, None], torch.logspace(0, {columns}, 32)
    a = torch.randn(16, 32, 32, dtype={dtype}) + 12 * torch.eye(32)
    return [rows * a * columns, rows * torch.randn(16, 32, 4, dtype={dtype})]

def get_init_inputs():
    return []
"""


def by_diagonal(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """One step of Jacobi's iteration."""
    return b / a.diagonal(dim1=-2, dim2=-1).unsqueeze(-1)


@pytest.mark.parametrize(("rows", "columns"), [(-8, 0), (0, -8), (-8, -8)])
def test_rows_and_columns_in_other_units_make_no_matrix_singular(tmp_path: Path, rows: int, columns: int) -> None:
    (tmp_path / "problem.py").write_text(UNITS.format(rows=rows, columns=columns, dtype="torch.float32"))
    reference = Reference(instantiate(problems.load(tmp_path / "problem.py")), 0)
    a, b = reference.instance.inputs(1)
    truth = reference.truth([a, b])
    for wrong in (torch.zeros_like(b), by_diagonal(a, b)):
        assert excused(reference, truth, wrong, "strict") is None


def test_beside_a_matrix_that_counts_as_singular_the_others_are_judged(tmp_path: Path) -> None:
    (tmp_path / "problem.py").write_text(UNITS.format(rows=0, columns=0, dtype="torch.float32"))
    reference = Reference(instantiate(problems.load(tmp_path / "problem.py")), 0)
    a, b = reference.instance.inputs(1)
    units = torch.logspace(0, -8, 32)[:, None].flip(0)
    a[3], b[3] = units * a[3], units * b[3]
    truth = reference.truth([a, b])
    output = by_qr(a, b)
    assert isinstance(compare(truth, output, "strict", ""), Mismatch)
    assert excused(reference, truth, output, "strict") == "ill_conditioned"
    output[4] = by_diagonal(a, b)[4]
    assert excused(reference, truth, output, "strict") is None


def test_complex_solutions_are_excused_as_real_ones_are(tmp_path: Path) -> None:
    (tmp_path / "problem.py").write_text(UNITS.format(rows=-3, columns=0, dtype="torch.complex64"))
    reference = Reference(instantiate(problems.load(tmp_path / "problem.py")), 0)
    a, b = reference.instance.inputs(1)
    truth = reference.truth([a, b])
    q, r = torch.linalg.qr(a.flip(-2))
    output = torch.linalg.solve_triangular(r, q.mH @ b.flip(-2), upper=True)
    assert isinstance(compare(truth, output, "strict", "", local=True), Mismatch)
    assert excused(reference, truth, output, "strict", local=True) == "ill_conditioned"
    for wrong in (torch.zeros_like(b), by_diagonal(a, b), output.conj()):
        assert excused(reference, truth, wrong, "strict", local=True) is None


FLIPS = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x, weight):
        return torch.remainder(torch.floor(x.to(torch.float32) @ weight.to(torch.float32) * {fine}), 4.0)

def get_inputs():
    return [torch.randn(256, 64), torch.randn(64, 256)]

def get_init_inputs():
    return []
"""


@pytest.mark.parametrize("fine", [32, 2048])
def test_a_step_that_flips_frees_no_other_element(tmp_path: Path, fine: int) -> None:
    """Without fp64 the worst element that moved limited all of them."""
    (tmp_path / "problem.py").write_text(FLIPS.format(fine=fine))
    reference = Reference(instantiate(problems.load(tmp_path / "problem.py")), 0)
    truth = reference.truth(reference.instance.inputs(1))
    assert not reference.exact_is_fp64
    assert excused(reference, truth, torch.ones_like(truth.own), "strict") is None
    assert excused(reference, truth, (truth.own + 1) % 4, "strict") is None


def test_a_matrix_that_is_hardly_definite_is_seen(tmp_path: Path) -> None:
    """There another program may have no result, where torch has one by luck."""
    solves = SOLVES.replace("torch.linalg.solve(a, b)", "torch.linalg.cholesky(a @ a.mT + 1e-1 * torch.eye(64)) @ b")
    (tmp_path / "problem.py").write_text(solves)
    reference = Reference(instantiate(problems.load(tmp_path / "problem.py")), 0)
    a, b = reference.instance.inputs(1)
    assert not fails_nearby(reference, [a, b])
    assert fails_nearby(reference, [3e4 * torch.ones(64, 64) + 100 * a[:, :1], b])


def test_a_reference_that_fails_in_single_precision_is_seen(tmp_path: Path) -> None:
    """In double precision it has a result, so the case was not dropped before."""
    solves = SOLVES.replace("torch.linalg.solve(a, b)", "torch.linalg.cholesky(a @ a.mT + 1e-1 * torch.eye(64)) @ b")
    (tmp_path / "problem.py").write_text(solves)
    reference = Reference(instantiate(problems.load(tmp_path / "problem.py")), 0)
    assert fails_nearby(reference, [1e6 * torch.ones(64, 64), reference.instance.inputs(1)[1]])


def test_a_tensor_beside_a_solution_is_as_exact_as_without_it(tmp_path: Path) -> None:
    both = SOLVES.replace("torch.linalg.solve(a, b)", "torch.linalg.solve(a, b[:, :4]), torch.floor(12 * b.mT @ a)")
    (tmp_path / "problem.py").write_text(both.replace("torch.randn(64, 4)", "torch.randn(64, 256)"))
    reference = Reference(instantiate(problems.load(tmp_path / "problem.py")), 0)
    a, b = reference.instance.inputs(1)
    scales = 10.0 ** torch.randint(-12, 5, (64, 1), generator=torch.Generator().manual_seed(1))
    truth = reference.truth([a * scales, b])
    solution, features = by_qr(a * scales, b[:, :4]), truth.own[1]
    assert excused(reference, truth, (solution, features), "strict") == "ill_conditioned"
    assert excused(reference, truth, (solution, torch.zeros_like(features)), "strict") is None


@pytest.mark.parametrize("after", ["", ".mul(0) + torch.nn.functional.normalize(torch.linalg.solve(a, b), dim=0)"])
def test_a_direction_of_a_solution_depends_on_it(tmp_path: Path, after: str) -> None:
    (tmp_path / "problem.py").write_text(SOLVES.replace("torch.linalg.solve(a, b)", f"torch.linalg.solve(a, b){after}"))
    reference = Reference(instantiate(problems.load(tmp_path / "problem.py")), 0)
    a, b = reference.instance.inputs(1)
    truth = reference.truth([a * 10.0 ** torch.randint(-12, 5, (64, 1)), b])
    output = by_qr(truth.inputs[0], b)
    output = torch.nn.functional.normalize(output, dim=0) if after else output
    right = isinstance(compare(truth, output, "strict", ""), Agreement)
    assert right or excused(reference, truth, output, "strict") == "ill_conditioned"


def reference_of(folder: Path, body: str, inputs: str) -> Reference:
    source = (
        "import torch\nfrom torch import nn\n\nclass Model(nn.Module):\n    def forward(self, x):\n"
        f"        return {body}\n\ndef get_inputs():\n    return [{inputs}]\n\ndef get_init_inputs():\n    return []\n"
    )
    (folder / "problem.py").write_text(source)
    return Reference(instantiate(problems.load(folder / "problem.py")), 0)


def test_an_element_that_rounding_explains_hides_no_wrong_part(tmp_path: Path) -> None:
    body = "torch.cat([torch.sin(1e5 * x[:, :4]), 0.02 * torch.lgamma(x + 1)], -1)"
    reference = reference_of(tmp_path, body, "torch.rand(256, 64)")
    inputs = reference.instance.inputs(1)
    truth = reference.truth(inputs)
    steep = int((torch.cos(1e5 * inputs[0][:, 0]).abs() * inputs[0][:, 0]).argmax())
    output = truth.own.clone()
    output[steep, 0] -= 0.045 * output[steep, 0].sign()
    assert isinstance(compare(truth, output, "strict", ""), Mismatch)
    assert excused(reference, truth, output, "strict", local=True) == "ill_conditioned"
    output[:, 4:] = 0
    assert excused(reference, truth, output, "strict", local=True) is None


def test_components_that_are_well_determined_are_judged_beside_others(tmp_path: Path) -> None:
    """Six samples determine six of sixteen directions; every rotation of the others is as good."""
    body = "torch.linalg.eigh(x.mT @ x).eigenvectors.square()"
    reference = reference_of(tmp_path, body, "torch.randn(8, 6, 16)")
    inputs = reference.instance.inputs(1)
    truth = reference.truth(inputs)
    _, _, rotated = torch.linalg.svd(inputs[0])
    output = rotated.mT.flip(-1).square()

    def is_right(output: torch.Tensor) -> bool:
        within = isinstance(compare(truth, output, "strict", "", local=True), Agreement)
        return within or excused(reference, truth, output, "strict", local=True) is not None

    assert is_right(output)
    for wrong in (0.0, 0.1, 1e3, 1e6):
        assert not is_right(torch.full_like(output, wrong))


@pytest.mark.parametrize("body", ["torch.linalg.det(x)", "torch.linalg.det(x).sum()"])
def test_one_number_for_a_singular_matrix_has_a_limit(tmp_path: Path, body: str) -> None:
    reference = reference_of(tmp_path, body, "torch.ones(8, 16, 16) + 1e-7 * torch.randn(8, 16, 16)")
    truth = reference.truth(reference.instance.inputs(1))
    assert excused(reference, truth, torch.full_like(truth.own, 1e6), "strict", local=True) is None
