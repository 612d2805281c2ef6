"""Programs that rely on what never varied: one row, integers, zeros, weights, the order of calls, random numbers."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from kforge import platforms, problems
from kforge.evaluation import Judge
from kforge.records import Candidate, Correct, Evaluation, EvaluationLimits, EvaluationPolicy, Mismatch, Rejected

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.evaluation.untimed import UntimedJudge

HEAD = """
import torch
from torch import nn

class {name}(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(32, 32))
        self.bias = nn.Parameter(torch.zeros(32))
        self.kept, self.seen = None, []
        {more}

    def forward(self, x, which):
"""
TAIL = """

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return []
"""
FLOATS = "torch.randn(64, 32), torch.randint(0, 32, (64,))"


@pytest.fixture
def evaluate(untimed_judge: UntimedJudge, tmp_path: Path) -> Evaluate:
    return Evaluate(untimed_judge, tmp_path)


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]}
    with Judge(
        platforms.find("null"),
        EvaluationPolicy(compile_baseline=False),
        cache=tmp_path_factory.mktemp("cache"),
        environment=environment,
        limits=EvaluationLimits(timing_seconds=0.05, timing_cap=0.1),
    ) as judge:
        yield judge


@pytest.fixture
def evaluate_and_time(judge: Judge, tmp_path: Path) -> Evaluate:
    """Where timed calls are judged in a way of their own: what the reference draws, remembers or indexes with."""
    return Evaluate(judge, tmp_path)


class Evaluate:
    def __init__(self, judge: Judge | UntimedJudge, folder: Path) -> None:
        self.judge = judge
        self.path = folder / "problem.py"

    def __call__(self, reference: str, program: str, inputs: str = FLOATS, more: str = "") -> Evaluation:
        """The program's forward on a problem with the reference's; lines are put apart by semicolons.

        `more`: what both constructors make besides.
        """
        self.path.write_text(HEAD.format(name="Model", more=more) + _lines(reference) + TAIL.format(inputs=inputs))
        source = HEAD.format(name="ModelNew", more=more) + _lines(program)
        return self.judge.evaluate(problems.load(self.path), Candidate(source=source, platform="null"))


def _lines(body: str) -> str:
    return "".join(f"        {line.strip()}\n" for line in body.split(";"))


PRODUCT = "return torch.relu(x @ self.weight + self.bias)"


@pytest.mark.parametrize(
    "kept",
    [
        "self.kept = self.weight.clone() if self.kept is None else self.kept",
        "w = self.weight; new = self.kept is None or float(self.kept[0, 0]) != float(w[0, 0]); "
        "self.kept = w.clone() if new else self.kept",
    ],
)
def test_weights_that_were_folded_for_ever_are_a_mismatch(evaluate: Evaluate, kept: str) -> None:
    verdict = evaluate(PRODUCT, f"{kept}; return torch.relu(x @ self.kept + self.bias)").verdict
    assert isinstance(verdict, Mismatch)


def test_a_program_that_notices_new_weights_is_correct(evaluate: Evaluate) -> None:
    noticed = (
        "v = self.weight._version; self.kept = self.kept if self.kept and self.kept[0] == v else (v, self.weight.T)"
    )
    evaluation = evaluate(PRODUCT, f"{noticed}; return torch.relu(x @ self.kept[1].T + self.bias)")
    assert isinstance(evaluation.verdict, Correct)
    assert evaluation.verdict.cases == 30
    assert "fixed_integers" not in evaluation.labels


def test_a_program_that_writes_to_its_weights_is_rejected(evaluate: Evaluate) -> None:
    verdict = evaluate(
        PRODUCT, "out = torch.relu(x @ self.weight + self.bias); self.bias[3].add_(5e-8); return out"
    ).verdict
    assert isinstance(verdict, Rejected)
    assert verdict.rule == "state_modified"


def test_sniffing_a_row_does_not_tell_what_the_others_are(evaluate: Evaluate) -> None:
    exact = "return torch.softmax(x, -1)"
    sniffing = (
        "y = x if float(x[0].abs().max()) < 20 else x - x.amax(-1, True); y = y.exp(); return y / y.sum(-1, True)"
    )
    assert isinstance(evaluate(exact, sniffing).verdict, Mismatch)
    looking = sniffing.replace("x[0].abs()", "x.abs()")
    assert isinstance(evaluate(exact, looking).verdict, Correct)


def test_integers_of_the_first_call_are_not_those_of_all(evaluate: Evaluate) -> None:
    labels = f"torch.randn(64, 32), torch.tensor({[(5 * n + n // 3) % 32 for n in range(64)]})"
    reference = "return x.gather(1, which[:, None]) * 2"
    memorised = (
        "self.kept = which.clone() if self.kept is None else self.kept; return x.gather(1, self.kept[:, None]) * 2"
    )
    assert isinstance(evaluate(reference, memorised, labels).verdict, Mismatch)
    evaluation = evaluate(reference, "return 2 * x.take_along_dim(which[:, None], 1)", labels)
    assert isinstance(evaluation.verdict, Correct)


UNIT = "torch.rand(64, 32), torch.randint(0, 32, (64,))"


@pytest.mark.parametrize(
    ("reference", "wrong", "right", "inputs"),
    [
        ("return torch.relu(x)", "return x.clone()", "return x.clamp(min=0)", UNIT),
        ("return torch.sqrt(x).clamp(max=2)", "return x.sqrt()", "return x.clamp(max=4).sqrt()", UNIT),
        ("return torch.sin(x)", "return torch.sin(x.clamp(-9e4, 9e4)) * (x.abs() > 1e-9)",
         "return torch.sin(x.clamp(-9e4, 9e4))", FLOATS),
        ("return nn.functional.cross_entropy(x, which)",
         "return -x.log_softmax(-1).gather(1, which.clamp(min=0)[:, None]).mean()",
         "return nn.functional.nll_loss(x.log_softmax(-1), which)", FLOATS),
    ],
)  # fmt: skip
def test_a_program_must_be_right_beyond_the_given_values_where_the_reference_is(
    evaluate: Evaluate, reference: str, wrong: str, right: str, inputs: str
) -> None:
    assert isinstance(evaluate(reference, wrong, inputs).verdict, Mismatch)
    assert isinstance(evaluate(reference, right, inputs).verdict, Correct)


def test_integers_that_are_structure_stay_and_are_labelled(evaluate: Evaluate) -> None:
    positions = "torch.randn(64, 32), torch.arange(64)"
    evaluation = evaluate("return x[which] * which[:, None]", "return x * torch.arange(64)[:, None]", positions)
    assert isinstance(evaluation.verdict, Correct)
    assert "fixed_integers" in evaluation.labels


def test_zeros_that_are_the_same_for_every_seed_may_be_relied_on(evaluate: Evaluate) -> None:
    triangular = "torch.randn(32, 32).tril(), torch.randint(0, 32, (64,))"
    halves = "return torch.cat([x[:16, :16] @ self.weight[:16], x[16:] @ self.weight])"
    assert isinstance(evaluate("return x @ self.weight", halves, triangular).verdict, Correct)
    random = "torch.randn(32, 32) * (torch.rand(32, 32) < 0.05), torch.randint(0, 32, (64,))"
    few = "v, i = x.abs().topk(8, 1); return torch.zeros_like(x).scatter_(1, i, x.gather(1, i)) @ self.weight"
    assert isinstance(evaluate("return x @ self.weight", few, random).verdict, Mismatch)


def test_a_random_reference_is_judged_under_the_same_random_numbers(evaluate_and_time: Evaluate) -> None:
    reference = "return nn.functional.dropout(x @ self.weight, 0.4, True)"
    evaluation = evaluate_and_time(
        reference, "y = x @ self.weight; return y * torch.empty_like(y).bernoulli_(0.6) / 0.6"
    )
    assert isinstance(evaluation.verdict, Correct)
    assert "random_reference" in evaluation.labels
    assert "no_fp64_reference" not in evaluation.labels
    verdict = evaluate_and_time(
        reference, "torch.manual_seed(3); return nn.functional.dropout(x @ self.weight, 0.4, True)"
    ).verdict
    assert isinstance(verdict, Mismatch)
    evaluation = evaluate_and_time("return x * torch.rand_like(x)", "return torch.rand_like(x) * x")
    assert isinstance(evaluation.verdict, Correct)
    assert {"random_reference", "no_fp64_reference"} <= set(evaluation.labels)


def test_a_step_that_the_reference_takes_with_a_parameter_is_output(evaluate_and_time: Evaluate) -> None:
    reference = "self.bias.sub_(x.mean(0), alpha=0.1); return torch.tanh(x)"
    verdict = evaluate_and_time(reference, "return torch.tanh(x)").verdict
    assert isinstance(verdict, Mismatch)
    assert "state bias" in verdict.case
    evaluation = evaluate_and_time(reference, "self.bias.add_(x.sum(0), alpha=-0.1 / 64); return torch.tanh(x)")
    assert isinstance(evaluation.verdict, Correct)


def test_a_module_that_remembers_its_calls_is_judged_in_sequence(evaluate_and_time: Evaluate) -> None:
    reference = "self.seen = [*self.seen[-2:], x.mean(0)]; return torch.tanh(x) + sum(self.seen)"
    evaluation = evaluate_and_time(reference, "self.seen.append(x.mean(0)); return torch.tanh(x) + sum(self.seen[-3:])")
    assert isinstance(evaluation.verdict, Correct)
    assert "has_history" in evaluation.labels
    verdict = evaluate_and_time(reference, "return torch.tanh(x) + x.mean(0)").verdict
    assert isinstance(verdict, Mismatch)


def test_integers_grow_up_to_what_the_reference_takes_or_are_labelled(evaluate_and_time: Evaluate) -> None:
    few = "torch.randn(64, 32), torch.randint(0, 8, (64,))"
    verdict = evaluate_and_time("return x[which]", "return x[which.clamp(max=7)]", few).verdict
    assert isinstance(verdict, Mismatch)
    assert verdict.case == "larger_integers"
    evaluation = evaluate_and_time("return x[which]", "return x.index_select(0, which)", few)
    assert isinstance(evaluation.verdict, Correct)
    assert "integers_within_range" not in evaluation.labels
    evaluation = evaluate_and_time("return x * which[:, None]", "return which[:, None] * x", few)
    assert "integers_within_range" in evaluation.labels


def test_complex_numbers_vary_and_strings_are_labelled(evaluate: Evaluate) -> None:
    number = "torch.randn(64, 32), 0.6 + 0.8j"
    assert isinstance(evaluate("return x * which", "return x * (0.6 + 0.8j)", number).verdict, Mismatch)
    evaluation = evaluate("return x * which", "return which * x", number)
    assert isinstance(evaluation.verdict, Correct)
    assert "fixed_scalars" not in evaluation.labels
    name = "torch.randn(64, 32), 'relu'"
    evaluation = evaluate("return x.relu() if which == 'relu' else x.tanh()", "return x.relu()", name)
    assert "fixed_scalars" in evaluation.labels


def test_python_numbers_have_either_sign_or_are_labelled(evaluate: Evaluate) -> None:
    reference, number = "return (x * which).relu()", "torch.randn(64, 32), 1.5"
    assert isinstance(evaluate(reference, "return x.relu() * which", number).verdict, Mismatch)
    honest = evaluate(reference, "return (x if which > 0 else -x).relu() * abs(which)", number)
    assert isinstance(honest.verdict, Correct)
    assert "fixed_signs" not in honest.labels
    root = "return x * which ** 0.5 if which >= 0 else x / 0"
    assert "fixed_signs" in evaluate(root, root, number).labels


def test_limits_may_be_applied_in_either_order(evaluate: Evaluate) -> None:
    limits = "torch.randn(64, 32), (-0.5, 2.0)"
    evaluation = evaluate("return x.clamp(*which)", "return x.clamp(max=which[1]).clamp(min=which[0])", limits)
    assert isinstance(evaluation.verdict, Correct)


def test_each_of_several_flags_is_turned_alone(evaluate: Evaluate) -> None:
    flags = "torch.randn(64, 32), (False, False)"
    reference = "return (x.tanh() if which[0] else x) * (2 if which[1] else 1)"
    verdict = evaluate(reference, "return x.tanh() * 2 if which[0] else x * 1", flags).verdict
    assert isinstance(verdict, Mismatch)
    assert isinstance(evaluate(reference, reference, flags).verdict, Correct)


def test_ascending_buffers_are_shuffled_or_labelled(evaluate: Evaluate) -> None:
    more = "self.register_buffer('levels', torch.linspace(-2.0, 2.0, 16))"
    reference = "return (x[..., None] - self.levels).abs().amin(-1)"
    halves = "between = (self.levels[1:] + self.levels[:-1]) / 2; "
    halves += "return (x - self.levels[torch.bucketize(x, between)]).abs()"
    assert isinstance(evaluate(reference, halves, more=more).verdict, Mismatch)
    honest = evaluate(reference, "return torch.stack([(x - each).abs() for each in self.levels]).amin(0)", more=more)
    assert isinstance(honest.verdict, Correct)
    assert "fixed_buffers" not in honest.labels
    looked_up = evaluate(halves, halves, more=more)
    assert isinstance(looked_up.verdict, Correct)
    assert "fixed_buffers" in looked_up.labels


@pytest.mark.parametrize("dtype", ["", ".bool()"])
def test_drawn_masks_of_the_state_have_other_numbers_of_marks(evaluate: Evaluate, dtype: str) -> None:
    drawn = "torch.zeros(32).index_fill(0, torch.randperm(32)[:8], 1.0)"
    more = f"self.register_buffer('keep', {drawn}{dtype})"
    reference = "return (x * self.keep) @ self.weight"
    places = "places = self.keep.nonzero()[:{}, 0]; return x[:, places] @ self.weight[places]"
    assert isinstance(evaluate(reference, places.format(8), more=more).verdict, Mismatch)
    honest = evaluate(reference, places.format(32), more=more)
    assert isinstance(honest.verdict, Correct)
    assert "fixed_buffers" not in honest.labels


def test_an_input_that_is_infinite_throughout_has_ordinary_numbers(evaluate: Evaluate) -> None:
    limits = "torch.randn(32, 32), torch.full((32, 32), float('inf'))"
    assert isinstance(evaluate("return torch.minimum(x, which)", "return x * 1", limits).verdict, Mismatch)
    least = "return torch.where(x < which, x, which)"
    assert isinstance(evaluate("return torch.minimum(x, which)", least, limits).verdict, Correct)


def test_inputs_that_share_memory_are_labelled(evaluate: Evaluate) -> None:
    expanded = "torch.randn(64, 32), torch.randn(1, 32).expand(64, 32)"
    evaluation = evaluate("return x + which.sort(-1).values", "return x + which[:1].sort(-1).values", expanded)
    assert isinstance(evaluation.verdict, Correct)
    assert "shared_inputs" in evaluation.labels
    evaluation = evaluate("return torch.relu(x)", "return x.clamp(min=0)")
    assert "shared_inputs" not in evaluation.labels


def test_weights_may_be_far_larger_than_drawn(evaluate: Evaluate) -> None:
    reference = "return x @ torch.softmax(self.weight, -1)"
    verdict = evaluate(reference, "e = self.weight.exp(); return x @ (e / e.sum(-1, True))").verdict
    assert isinstance(verdict, Mismatch)
    assert verdict.case == "large_weights"
    stable = "e = (self.weight - self.weight.amax(-1, True)).exp(); return x @ (e / e.sum(-1, True))"
    assert isinstance(evaluate(reference, stable).verdict, Correct)


def test_each_weight_is_far_larger_alone_where_all_of_them_together_cannot_be(evaluate: Evaluate) -> None:
    more = "self.one, self.other = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1))"
    added, multiplied = "return x + self.one + self.other", "return x * self.one * self.other"
    together, alone = (evaluate(each, each, more=more).verdict for each in (added, multiplied))
    assert isinstance(together, Correct)
    assert isinstance(alone, Correct)
    assert alone.cases == together.cases + 2


def test_a_parameter_that_must_not_be_negative_keeps_no_other_one_from_being_so(evaluate: Evaluate) -> None:
    more = "self.slope, self.variance = nn.Parameter(torch.rand(32)), nn.Parameter(torch.ones(32))"
    reference = "return x * self.slope.clamp(min=0) / self.variance.sqrt()"
    assert isinstance(evaluate(reference, "return x * self.slope / self.variance.sqrt()", more=more).verdict, Mismatch)
    honest = evaluate(reference, "return x * self.slope.relu() * self.variance.rsqrt()", more=more)
    assert isinstance(honest.verdict, Correct)
    assert "fixed_signs" in honest.labels
    taken = "return x * self.slope.clamp(min=0) / (1 + self.variance ** 2)"
    assert "fixed_signs" not in evaluate(taken, taken, more=more).labels


def test_ones_of_a_buffer_become_zeros_or_are_labelled(evaluate: Evaluate) -> None:
    more = "self.register_buffer('keep', torch.ones(32))"
    reference = "return x.masked_fill(self.keep == 0, 5.0)"
    assert isinstance(evaluate(reference, "return x * 1", more=more).verdict, Mismatch)
    honest = evaluate(reference, "return torch.where(self.keep != 0, x, 5.0)", more=more)
    assert isinstance(honest.verdict, Correct)
    assert "fixed_buffers" not in honest.labels
    divided = "return x / self.keep"
    assert "fixed_buffers" in evaluate(divided, divided, more=more).labels


@pytest.mark.parametrize("made", ["torch.full((32,), float('inf'))", "torch.tensor(1e30)"])
def test_limits_of_the_state_that_bound_nothing_become_ordinary(evaluate: Evaluate, made: str) -> None:
    more = f"self.register_buffer('limit', {made})"
    reference = "return torch.minimum(x, self.limit)"
    assert isinstance(evaluate(reference, "return x * 1", more=more).verdict, Mismatch)
    honest = evaluate(reference, "return torch.where(x < self.limit, x, self.limit)", more=more)
    assert isinstance(honest.verdict, Correct)
    assert "fixed_buffers" not in honest.labels
    more = f"self.limit = nn.Parameter({made})"
    assert isinstance(evaluate(reference, "return x * 1", more=more).verdict, Mismatch)


def test_rows_of_a_drawn_buffer_with_one_mark_get_several(evaluate: Evaluate) -> None:
    more = "self.register_buffer('bucket', nn.functional.one_hot(torch.randint(32, (32,)), 32).float())"
    reference = "return x @ self.bucket"
    one = "return torch.zeros(64, 32).index_add_(1, self.bucket.argmax(1), x)"
    assert isinstance(evaluate(reference, one, more=more).verdict, Mismatch)
    assert isinstance(evaluate(reference, "return (self.bucket.mT @ x.mT).mT", more=more).verdict, Correct)


def test_what_a_mask_fills_in_stays_and_is_labelled(evaluate: Evaluate) -> None:
    more = "self.register_buffer('filled_in', torch.tensor(-1e30))"
    reference = "return torch.where(torch.arange(32) > 3, self.filled_in, x).softmax(-1)"
    skipping = "return torch.cat([x[:, :4].softmax(-1), torch.zeros(64, 28)], 1)"
    found = evaluate(reference, skipping, more=more)
    assert isinstance(found.verdict, Correct)
    assert "fixed_buffers" in found.labels


@pytest.mark.parametrize("watched", ["self.weight._version", "self.scale._version"])
def test_what_is_made_of_two_entries_is_old_when_either_changes(evaluate: Evaluate, watched: str) -> None:
    more = "self.register_buffer('scale', torch.randn(32))"
    packed = "v = {}; self.kept = self.kept if self.kept and self.kept[0] == v else (v, self.weight * self.scale); "
    packed += "return x @ self.kept[1]"
    reference = "return x @ (self.weight * self.scale)"
    assert isinstance(evaluate(reference, packed.format(watched), more=more).verdict, Mismatch)
    both = packed.format("(self.weight._version, self.scale._version)")
    assert isinstance(evaluate(reference, both, more=more).verdict, Correct)


def test_zeros_of_a_drawn_buffer_change_and_those_of_a_fixed_one_are_labelled(evaluate: Evaluate) -> None:
    reference, relying = "return x @ self.mixing", "return x @ self.mixing.tril()"
    drawn, fixed = (
        f"self.register_buffer('mixing', torch.{made}.tril())" for made in ("randn(32, 32)", "ones(32, 32)")
    )
    assert isinstance(evaluate(reference, relying, more=drawn).verdict, Mismatch)
    honest = evaluate(reference, reference, more=drawn)
    assert isinstance(honest.verdict, Correct)
    assert "fixed_buffers" not in honest.labels
    labelled = evaluate(reference, relying, more=fixed)
    assert isinstance(labelled.verdict, Correct)
    assert "fixed_buffers" in labelled.labels


def test_an_output_that_overflows_hides_no_other_one(evaluate: Evaluate) -> None:
    reference = "return torch.exp(x @ self.weight), torch.logsumexp(x, -1)"
    found = evaluate(reference, "return torch.exp(x @ self.weight), x.exp().sum(-1).log()").verdict
    assert isinstance(found, Mismatch)
    assert "output[1]" in found.reason
    assert isinstance(evaluate(reference, reference).verdict, Correct)


def test_a_copy_is_right_where_torch_gives_nan_and_double_precision_infinity(evaluate: Evaluate) -> None:
    reference = "return (x.exp() * (-x.flip(0)).exp()).mean() + 0 * self.bias"
    assert isinstance(evaluate(reference, reference).verdict, Correct)


@pytest.mark.parametrize(
    "more",
    ["self.scale = nn.Parameter(torch.full((32,), 1e-9))", "self.register_buffer('scale', torch.full((32,), 1e-9))"],
)
def test_a_block_that_begins_next_to_nothing_is_not_left_out(evaluate: Evaluate, more: str) -> None:
    """As LayerScale: what a tiny entry multiplies shows where it is an ordinary one."""
    reference = "return x.cos() + 2 + self.scale * (x.sin() @ self.weight)"
    assert isinstance(evaluate(reference, "return x.cos() + 2", more=more).verdict, Mismatch)
    assert isinstance(evaluate(reference, reference, more=more).verdict, Correct)


def test_a_change_of_some_rows_of_a_long_table_is_seen(evaluate: Evaluate) -> None:
    inputs, more = (
        "torch.randn(4, 4), torch.randint(0, 20000, (512,))",
        "self.table = nn.Parameter(torch.randn(20000, 4))",
    )
    packed = (
        "now = (float(self.table[0, 0]), self.weight.clone()); old = self.kept; "
        "new = old is None or old[0][0] != now[0] or not torch.equal(old[0][1], now[1]); "
        "self.kept = (now, self.table.detach() * 2) if new else old; return self.kept[1][which] + self.weight[0, 0]"
    )
    reference = "return (self.table * 2)[which] + self.weight[0, 0]"
    assert isinstance(evaluate(reference, packed, inputs, more).verdict, Mismatch)
    assert isinstance(evaluate(reference, reference, inputs, more).verdict, Correct)


def test_rows_of_a_long_table_may_be_far_larger_than_drawn(evaluate: Evaluate) -> None:
    inputs, more = (
        "torch.randn(4, 4), torch.randint(0, 20000, (512,))",
        "self.table = nn.Parameter(torch.rand(20000, 4))",
    )
    reference = "return self.table[which].clamp(max=10)"
    assert isinstance(evaluate(reference, "return self.table[which]", inputs, more).verdict, Mismatch)
    assert isinstance(evaluate(reference, reference, inputs, more).verdict, Correct)


def test_signed_integers_reach_the_ends_of_their_dtype(evaluate: Evaluate) -> None:
    inputs = "torch.randn(4, 4), torch.randint(-60, 60, (64, 32), dtype=torch.int8)"
    reference = "return (which.int() + which.int().flip(0)).clamp(-128, 127).to(torch.int8)"
    assert isinstance(evaluate(reference, "return which + which.flip(0)", inputs).verdict, Mismatch)
    assert isinstance(evaluate(reference, reference, inputs).verdict, Correct)
    wide = "torch.randn(4, 4), torch.randint(-60, 60, (64, 32))"
    assert "integers_within_range" in evaluate(reference, reference, wide).labels


def test_inputs_in_order_are_shuffled_where_the_reference_sorts_them(evaluate: Evaluate) -> None:
    inputs = "torch.rand(16, 32).cumsum(-1), torch.randint(0, 32, (64,))"
    reference = "return x.sort(-1).values.diff(dim=-1)"
    assert isinstance(evaluate(reference, "return x.diff(dim=-1)", inputs).verdict, Mismatch)
    honest = evaluate(reference, reference, inputs)
    assert isinstance(honest.verdict, Correct)
    assert "ordered_inputs" not in honest.labels
    edges = "return torch.searchsorted(x, x + 0.5)"
    assert "ordered_inputs" in evaluate(edges, edges, inputs).labels
    assert "ordered_inputs" not in evaluate(reference, reference).labels


def test_a_program_may_fail_on_odd_timed_rows_where_the_reference_fails(evaluate: Evaluate) -> None:
    inputs = "torch.randn(16, 32), torch.randint(0, 32, (64,))"
    reference = "assert bool((x != 0).any(-1).all()); return x @ self.weight"
    assert isinstance(evaluate(reference, reference, inputs).verdict, Correct)
    program = "assert bool((x.abs() < 100).all()); return x @ self.weight"
    assert not isinstance(evaluate("return x @ self.weight", program, inputs).verdict, Correct)


def test_a_symmetric_input_is_asymmetric_where_the_reference_takes_its_symmetric_part(evaluate: Evaluate) -> None:
    inputs = "(lambda g: g @ g.mT + torch.eye(32))(torch.randn(32, 32)), torch.randint(0, 32, (64,))"
    reference = "return (x + x.mT) @ self.weight / 2"
    assert isinstance(evaluate(reference, "return x @ self.weight", inputs).verdict, Mismatch)
    honest = evaluate(reference, "return x.add(x.mT).mul(0.5) @ self.weight", inputs)
    assert isinstance(honest.verdict, Correct)
    assert "symmetric_inputs" not in honest.labels
    factor = evaluate("return torch.linalg.cholesky(x)", "return torch.linalg.cholesky(x.mT)", inputs)
    assert isinstance(factor.verdict, Correct)
    assert "symmetric_inputs" in factor.labels


def test_fixed_zeros_are_filled_where_the_reference_ignores_their_places(evaluate: Evaluate) -> None:
    inputs = "torch.randn(32, 32).tril(), torch.randint(0, 32, (64,))"
    reference = "return x.tril() @ self.weight"
    assert isinstance(evaluate(reference, "return x @ self.weight", inputs).verdict, Mismatch)
    honest = evaluate(reference, reference, inputs)
    assert isinstance(honest.verdict, Correct)
    assert "fixed_zeros" not in honest.labels
    relying = evaluate("return x @ self.weight", reference, inputs)
    assert isinstance(relying.verdict, Correct)
    assert "fixed_zeros" in relying.labels


def test_inputs_vary_beside_one_that_the_reference_checks(evaluate: Evaluate) -> None:
    inputs = "torch.randn(64, 32), torch.full((64,), 3.0)"
    check = "assert bool((which == 3).all())"
    reference = f"{check}; return torch.softmax(x, -1) * which[:, None]"
    unstable = f"{check}; y = x.exp(); return y / y.sum(-1, True) * which[:, None]"
    assert isinstance(evaluate(reference, unstable, inputs).verdict, Mismatch)
    honest = evaluate(reference, reference, inputs)
    assert isinstance(honest.verdict, Correct)
    assert "fixed_floats" in honest.labels
    assert (
        "fixed_floats"
        not in evaluate(reference.replace(check, "y = x"), reference.replace(check, "y = x"), inputs).labels
    )


def test_tensors_leave_their_intervals_singly_where_one_must_not(evaluate: Evaluate) -> None:
    inputs = "[torch.rand(32), torch.rand(32), torch.rand(32), torch.rand(64, 32)], torch.randint(0, 32, (64,))"
    reference = "return torch.relu(x[3]) / torch.sqrt(x[0] + 1e-5) * x[1] + x[2]"
    assert isinstance(evaluate(reference, reference.replace("torch.relu(x[3])", "x[3]"), inputs).verdict, Mismatch)
    assert isinstance(evaluate(reference, reference, inputs).verdict, Correct)


def test_integers_in_order_are_shuffled_or_said_to_be_in_order(evaluate: Evaluate) -> None:
    inputs = "torch.randn(4, 4), torch.randint(0, 5000, (512,)).sort().values"
    reference = "return torch.unique(which, return_inverse=True)[1]"
    relying = "return torch.cat([which[:1] * 0, (which[1:] != which[:-1]).cumsum(0)])"
    assert isinstance(evaluate(reference, relying, inputs).verdict, Mismatch)
    honest = evaluate(reference, reference, inputs)
    assert isinstance(honest.verdict, Correct)
    assert "ordered_inputs" not in honest.labels
    assert "ordered_inputs" in evaluate("return which + 1", "return which + 1", inputs).labels
