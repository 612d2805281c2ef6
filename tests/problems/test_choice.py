"""Which problems of a suite are worked on, and what is said when there are none."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kforge.errors import ProblemError
from kforge.problems import ProblemChoice
from kforge.problems.readers import Entry

ENTRIES = [Entry(name=f"norms/n{i}", variants=(), tags=frozenset({"even"} if i % 2 == 0 else ())) for i in range(1, 21)]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"levels": "one"}, "--levels takes numbers separated by commas, such as 1,2; not 'one'"),
        ({"levels": "²"}, "--levels takes numbers"),
        ({"numbers": "1-"}, "--range takes numbers and ranges, such as 1-20,35; not '1-'"),
        ({"numbers": "9-2"}, "--range 9-2: the range ends before it begins"),
        ({"numbers": "7" * 5000}, "--range takes numbers"),
        ({"levels": "1"}, "suite ours: no level 1; it has no levels"),
        ({"tags": "odd"}, "suite ours: no problem has the tag 'odd'; there are: even, norms"),
        ({"numbers": "40-50"}, "suite ours: no problem matches --range 40-50; the first of 20 is norms/n1"),
    ],
)
def test_a_wrong_choice_is_told_in_one_line(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ProblemError) as caught:
        ProblemChoice.parsed(**options).of(ENTRIES, "ours")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


NAMED = [Entry(name=name, variants=()) for name in ("norms/layer_norm", "norms/rms_norm", "algebra/matmul", "softmax")]


@pytest.mark.parametrize(
    ("only", "options", "said"),
    [
        ("layernorm", {}, "no problem matches 'layernorm'; did you mean 'norms/layer_norm'?"),
        ("norms/layer_nrm", {}, "did you mean 'norms/layer_norm'"),
        ("Softmax", {}, "did you mean 'softmax'?"),
        ("algebra/matmull*", {}, "did you mean 'algebra/matmul'?"),
        ("zebra, matnul", {}, "did you mean 'algebra/matmul'?"),
        ("layernorm", {"tags": "algebra"}, "no problem matches 'layernorm' --tags algebra; the first of 4 is norms/"),
        ("zebra", {}, "no problem matches 'zebra'; the first of 4 is norms/layer_norm"),
    ],
)
def test_a_pattern_that_matches_nothing_names_the_problems_that_are_like_it(
    only: str, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(ProblemError) as caught:
        ProblemChoice.parsed(**options).of(NAMED, "ours", only)
    assert said in str(caught.value)
    assert str(caught.value).count("did you mean") == said.count("did you mean")


def test_a_problem_without_a_number_counts_by_its_place() -> None:
    chosen = ProblemChoice.parsed(numbers="3,19-20", tags="even,norms").of(ENTRIES, "ours")
    assert [entry.name for entry in chosen] == ["norms/n3", "norms/n19", "norms/n20"]


@given(st.integers(0, 25), st.integers())
def test_a_sample_is_repeatable_and_in_order(size: int, seed: int) -> None:
    choice = ProblemChoice(sample=size, seed=seed)
    chosen = choice.of(ENTRIES, "ours")
    assert chosen == choice.of(ENTRIES, "ours")
    assert len(chosen) == (size if 0 < size < 20 else 20)
    assert chosen == [entry for entry in ENTRIES if entry in chosen]


def test_another_seed_draws_another_sample() -> None:
    drawn = {tuple(entry.name for entry in ProblemChoice(sample=3, seed=seed).of(ENTRIES, "ours")) for seed in range(8)}
    assert len(drawn) > 1
