"""A prompt is shortened step by step, and says what it lacks."""

from __future__ import annotations

import pytest

from kforge.agents import AnalysisAgent, Briefing, GenerationAgent
from kforge.agents.sizing import MOST_TOKENS, STEPS, fitted
from kforge.agents.unasked import Unasked, question
from kforge.cli.options import PROMPT_TOKENS
from kforge.models.tokens import likely_tokens
from kforge.prompts import Rendered
from kforge.records import CompilationFailure


def drawn(facts):
    text = "".join(str(facts.get(fact)) for _, fact, _ in STEPS)
    return [Rendered(text + str(facts["left_out"]), "")]


FACTS = {
    "differences": ["d" * 3000],
    "remembered": ["r" * 3000],
    "history": ["h" * 300] * 20,
    "log_lines": 40,
    "operators": ["o" * 900],
    "profile_lines": 110,
    "last_correct": "c" * 3000,
}


@pytest.mark.parametrize(
    ("most", "left_out"),
    [(100_000, 0), (4500, 1), (3500, 2), (2400, 3), (1500, 7), (1, 7)],
)
def test_parts_go_in_order_until_it_fits(most, left_out):
    (message,) = fitted(drawn, FACTS, most)
    assert message.text.endswith(str([name for name, _, _ in STEPS[:left_out]]))


def test_what_is_not_there_is_not_said_to_be_left_out():
    (message,) = fitted(drawn, {**dict.fromkeys(FACTS, ()), "last_correct": "c" * 3000}, 1)
    assert message.text.endswith("['the last correct program']")


def test_a_long_log_is_cut_and_the_prompt_says_so(platform, problem, workload, candidate):
    verdict = CompilationFailure(reason="error", log="\n".join(f"kernel.cpp:{n}: {'x' * 80}" for n in range(60)))
    asked = [
        question(
            lambda most=most: GenerationAgent(Unasked(), platform, briefing=Briefing(most_tokens=most)).repair(
                problem, workload, candidate, verdict
            )
        )
        for most in (MOST_TOKENS, 2500)
    ]
    assert "left out: most of the log" not in asked[0].messages[1].text
    assert "To keep this prompt short, left out: most of the log." in asked[1].messages[1].text
    assert likely_tokens(asked[1]) < likely_tokens(asked[0])
    assert asked[0].identity == asked[1].identity, "a recording replays where another machine's log is longer"


def test_a_long_profile_is_cut(platform, problem, workload, candidate, profile):
    long = profile.model_copy(update={"digest_text": "\n".join(f"row {n} {'x' * 90}" for n in range(105))})
    agent = AnalysisAgent(Unasked(), platform, briefing=Briefing(most_tokens=2500))
    text = question(lambda: agent.recommend(problem, workload, candidate, long)).messages[1].text
    assert "left out: parts of the profile" in text


def test_the_command_lines_default_is_the_agents():
    assert PROMPT_TOKENS == MOST_TOKENS
