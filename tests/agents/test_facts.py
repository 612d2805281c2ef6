"""What agents are told before the first program."""

from __future__ import annotations

from kforge.agents import Briefing, GenerationAgent, MeasuredFacts
from kforge.agents.facts import rule_facts
from kforge.agents.unasked import Unasked, as_text, question
from kforge.evaluation.correctness import cases as drawn
from kforge.problems.inputs import imposed_structure, in_words, other_ranges, scalars
from kforge.problems.inputs.discrete import DISCRETE
from kforge.problems.inputs.distributions import DISTRIBUTIONS
from kforge.problems.inputs.mark_counts import MARK_COUNTS
from kforge.problems.inputs.odd_rows import ODD
from kforge.records import EvaluationPolicy, HotSpot, TensorSpec

MEASURED = MeasuredFacts(
    device="Cores             2\nCompiler          g++ 12.2.0 with -O3",
    seconds=0.0165,
    operators=(
        HotSpot(name="aten::_softmax", calls=1, seconds=0.01, share=0.62),
        HotSpot(name="aten::copy_", calls=1, seconds=1e-5, share=0.0006),
    ),
)


def asked(platform, problem, workload, briefing=None, attempts=()):
    agent = GenerationAgent(Unasked(), platform, briefing=briefing).at(len(attempts), attempts)
    return question(lambda: agent.write(problem, workload))


def test_the_device_and_eagers_time_and_operators_are_told(platform, problem, workload):
    text = as_text(asked(platform, problem, workload, Briefing(measured=MEASURED)))
    assert "g++ 12.2.0 with -O3" in text
    assert "- PyTorch eager: 16.5 ms a call" in text
    assert "by their share of its time: aten::_softmax: 62%\n" in text
    assert "one call moves at least 8 kB" in text


def test_what_was_measured_is_no_part_of_the_questions_identity(platform, problem, workload):
    told = asked(platform, problem, workload, Briefing(measured=MEASURED))
    assert told.identity == asked(platform, problem, workload).identity


def test_the_rules_of_the_policy_are_told(platform, problem, workload):
    text = as_text(asked(platform, problem, workload, Briefing(EvaluationPolicy(track="custom", precision="half"))))
    assert "a library computes is rejected" in text
    assert "off by 0.008 for float32" in text
    assert "Precision is declared half" in text


def test_parameters_have_their_names(platform, problem, workload):
    named = workload.model_copy(update={"parameters": (TensorSpec(shape=(3,), dtype="float32", name="norm.weight"),)})
    assert "- parameter or buffer norm.weight: float32[3]" in as_text(asked(platform, problem, named))


def test_every_kind_of_case_that_is_drawn_has_its_line():
    kinds = {
        *DISTRIBUTIONS,
        *ODD,
        *DISCRETE,
        *MARK_COUNTS,
        *scalars.SCALARS,
        *(scalars.NEGATED, scalars.TURNED),
        *(imposed_structure.ASYMMETRIC, imposed_structure.FILLED),
        *(other_ranges.OUTSIDE, other_ranges.ENORMOUS, other_ranges.MINUTE, other_ranges.LARGE_WEIGHTS),
        *(drawn.SPECIAL, drawn.LARGER, drawn.COPIED, drawn.UNORDERED, drawn.SPECIAL_FLOATS),
    }
    assert kinds == set(in_words.CASES)
    assert in_words.explained("enormous #2").startswith("enormous #2 (one input is about 2^24")
    assert in_words.explained("seed 1") == "seed 1"


def test_cases_of_integers_are_told_only_where_there_are_integers(workload):
    told = dict(rule_facts(EvaluationPolicy(), workload)["cases"])
    assert "ties" in told
    assert "flipped_masks" not in told
    integers = workload.model_copy(update={"inputs": (TensorSpec(shape=(3,), dtype="int64"),)})
    told = dict(rule_facts(EvaluationPolicy(), integers)["cases"])
    assert "ties" not in told
    assert "flipped_masks" in told
