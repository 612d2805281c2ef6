import dataclasses

import pytest

from kforge.agents import Answer, GenerationAgent, Generator, NoAnalysis, ReferenceProgram
from kforge.errors import RecordingExhausted
from kforge.platforms.concepts import Concepts
from kforge.records import GenerationFailure, Mismatch, RuntimeFailure, Usage


@pytest.fixture
def answer(program):
    return f"Here it is.\n```python\n{program}```\n"


def test_it_writes_a_program(scripted, platform, problem, workload, answer, program, asked):
    agent: Generator = GenerationAgent(scripted(answer), platform)
    written = agent.write(problem, workload)
    assert written.candidate is not None
    assert (written.candidate.source, written.candidate.platform) == (program, "null")
    assert written.failure is None
    assert written.usage.requests == 1
    (identity,) = written.requests
    request = asked(identity)
    assert request["agent"] == "generation"
    system, user = request["messages"]
    assert platform.manifest.facts[0] in system["text"]
    assert platform.example.kernel.strip() in system["text"]
    assert problem.source.strip() in user["text"]
    assert "Reference implementation" not in user["text"]


def test_a_reference_implementation_goes_along(scripted, platform, problem, workload, answer, candidate, asked):
    agent = GenerationAgent(scripted(answer, answer), platform, reference=ReferenceProgram("kernel void add() {}"))
    written = agent.write(problem, workload)
    repaired = agent.repair(problem, workload, candidate, RuntimeFailure(fault="died", reason="SIGSEGV"))
    for identity in (*written.requests, *repaired.requests):
        assert "kernel void add() {}" in asked(identity)["messages"][1]["text"]


def test_terms_of_a_known_platform_are_translated(scripted, platform, problem, workload, answer, asked):
    there = platform.manifest.model_copy(
        update={"title": "Looms", "concepts": Concepts(group="warp and weft", barrier="full_stop()")}
    )
    here = dataclasses.replace(
        platform, manifest=platform.manifest.model_copy(update={"concepts": Concepts(group="threadgroup")})
    )
    agent = GenerationAgent(scripted(answer), here, reference=ReferenceProgram("kernel void add() {}", there))
    text = asked(agent.write(problem, workload).requests[0])["messages"][1]["text"]
    assert "another accelerator: Looms" in text
    assert "| warp and weft | threadgroup |" in text
    assert "- wait for the whole group (full_stop())" in text


def test_an_answer_without_a_program_is_a_generation_failure(scripted, platform, problem, workload):
    answers = scripted("I would rather not.", "Really, no.")
    written = GenerationAgent(answers, platform).write(problem, workload)
    assert written.candidate is None
    assert written.failure == GenerationFailure(reason="the answer has no code block and no class ModelNew")
    assert written.usage.requests == 2
    (remark,) = written.remarks
    assert remark.startswith("the generation agent was asked again")


def test_a_cut_off_answer_is_a_generation_failure(scripted, platform, problem, workload, program):
    cut = {"text": f"```python\n{program}", "finish": "length"}
    model = scripted(cut, cut)
    failure = GenerationAgent(model, platform).write(problem, workload).failure
    assert failure is not None
    assert "length limit" in failure.reason


def test_a_repair_shows_the_program_and_what_went_wrong(
    scripted, platform, problem, workload, candidate, answer, asked
):
    verdict = Mismatch(kind="numerical", reason="element 7 is wrong", max_error=0.5, tolerance=1e-5)
    repaired = GenerationAgent(scripted(answer), platform).repair(problem, workload, candidate, verdict)
    text = asked(repaired.requests[0])["messages"][1]["text"]
    assert candidate.source.strip() in text
    assert "element 7 is wrong" in text


def test_a_repair_of_no_program_says_why_there_was_none(scripted, platform, problem, workload, answer, asked):
    failure = GenerationFailure(reason="the answer is empty")
    repaired = GenerationAgent(scripted(answer), platform).repair(problem, workload, None, failure)
    text = asked(repaired.requests[0])["messages"][1]["text"]
    assert "the answer is empty" in text
    assert "Your last program" not in text


def test_the_same_failure_again_is_another_question(scripted, platform, problem, workload, candidate, answer):
    agent = GenerationAgent(scripted(answer, "second thoughts", "third thoughts"), platform)
    verdict = RuntimeFailure(fault="died", reason="SIGSEGV")
    first = agent.repair(problem, workload, candidate, verdict)
    cached = agent.repair(problem, workload, candidate, RuntimeFailure(fault="died", reason="signal 11"))
    again = agent.repair(problem, workload, candidate, verdict, repeats=1)
    assert first == cached
    assert set(again.requests).isdisjoint(first.requests)
    assert again.failure is not None


def test_an_optimization_carries_the_recommendation_and_the_programs_speed(
    scripted, platform, problem, workload, candidate, correct, recommendation, answer, asked
):
    optimized = GenerationAgent(scripted(answer), platform).optimize(
        problem, workload, candidate, correct, recommendation
    )
    text = asked(optimized.requests[0])["messages"][1]["text"]
    assert all(part in text for part in ("fuse the passes", "It takes 2 µs a call", "1.50", candidate.source.strip()))


def test_without_an_analysis_agent_the_prompt_has_no_recommendation(
    scripted, platform, problem, workload, candidate, correct, profile, answer, asked
):
    advice = NoAnalysis().at(3).recommend(problem, workload, candidate, profile)
    assert (advice.requests, advice.usage) == ((), Usage())
    optimized = GenerationAgent(scripted(answer), platform).optimize(
        problem, workload, candidate, correct, advice.recommendation
    )
    text = asked(optimized.requests[0])["messages"][1]["text"]
    assert "It was not profiled" in text
    assert "Recommendation" not in text
    assert "performance analysis agent" not in text


def test_what_the_model_raises_comes_through(scripted, platform, problem, workload):
    with pytest.raises(RecordingExhausted):
        GenerationAgent(scripted(), platform).write(problem, workload)


def test_an_answer_has_one_outcome(candidate):
    with pytest.raises(ValueError, match="not both"):
        Answer(requests=("x",), usage=Usage())
    with pytest.raises(ValueError, match="not both"):
        Answer(candidate=candidate, failure=GenerationFailure(reason="no"), requests=("x",), usage=Usage())


UNREADABLE = {
    "the answer is empty": "",
    "nothing but thinking": "<think>Which loop is it?",
    "no code block and no class ModelNew": "I cannot see the file.",
    "no code block of the answer defines the class ModelNew": "```cpp\nvoid add() {}\n```",
    "cut off at its length limit": {"text": "```python\nimport torch\nclass ModelNew(nn", "finish": "length"},
    "content filter": {"text": "", "finish": "content_filter"},
    "invalid JSON": '{"code": "import torch" "notes": ""}',
    "edit 1 cannot be applied": "<<<<<<< SEARCH\nreturn x + 2\n=======\nreturn x\n>>>>>>> REPLACE",
    "leaves code out": "```python\nclass ModelNew:\n    # ... same as before\n    pass\n```",
    "either edits or one whole file": "```python\nclass ModelNew: pass\n```\n"
    "<<<<<<< SEARCH\nreturn x + 2\n=======\nreturn x\n>>>>>>> REPLACE",
}


@pytest.mark.parametrize("reason", UNREADABLE)
def test_an_unreadable_answer_is_told_as_what_it_is_and_asked_for_once_more(
    scripted, platform, problem, workload, candidate, correct, recommendation, answer, program, asked, reason
):
    model = scripted(UNREADABLE[reason], answer)
    written = GenerationAgent(model, platform).optimize(problem, workload, candidate, correct, recommendation)
    assert written.candidate is not None
    assert written.candidate.source == program
    assert written.usage.requests == 2
    assert reason in written.remarks[0]
    first, second = written.requests
    said = asked(second)["messages"]
    assert said[:2] == asked(first)["messages"]
    assert said[2]["role"] == "assistant"
    assert said[2]["text"].strip()
    assert reason in said[3]["text"]


def test_a_long_answer_that_was_cut_off_is_not_sent_back_whole(scripted, platform, problem, workload, answer, asked):
    model = scripted({"text": "I think. " * 20_000, "finish": "length"}, answer)
    written = GenerationAgent(model, platform).write(problem, workload)
    assert len(asked(written.requests[1])["messages"][2]["text"]) < 7000


def test_edits_are_applied_to_the_program_of_the_question(
    scripted, platform, problem, workload, candidate, correct, recommendation, program
):
    edit = "<<<<<<< SEARCH\n        return x + 1\n=======\n        return 1 + x\n>>>>>>> REPLACE"
    agent = GenerationAgent(scripted(edit, edit), platform)
    for written in (
        agent.repair(problem, workload, candidate, RuntimeFailure(fault="died", reason="SIGSEGV")),
        agent.optimize(problem, workload, candidate, correct, recommendation),
    ):
        assert written.candidate is not None
        assert written.candidate.source == program.replace("x + 1", "1 + x")
        assert written.remarks == ()


def test_two_programs_in_one_answer_leave_a_remark(scripted, platform, problem, workload, answer, program):
    other = answer.replace("x + 1", "x + 2")
    written = GenerationAgent(scripted(other + answer), platform).write(problem, workload)
    assert written.candidate is not None
    assert written.candidate.source == program
    assert written.remarks == ("the answer holds 2 different programs, and the last one was taken",)
