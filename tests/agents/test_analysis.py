import json

from kforge.agents import AnalysisAgent, Analyst, Tried
from kforge.records import Usage


def test_it_reads_the_profile_and_gives_one_recommendation(
    scripted, platform, problem, workload, candidate, profile, recommendation, asked
):
    agent: Analyst = AnalysisAgent(scripted(recommendation.to_json()), platform)
    advice = agent.recommend(problem, workload, candidate, profile)
    assert advice.recommendation == recommendation
    assert advice.usage == Usage(requests=1)
    (identity,) = advice.requests
    request = asked(identity)
    assert request["agent"] == "analysis"
    system, user = request["messages"]
    assert "exactly one recommendation" in system["text"]
    assert profile.digest_text in user["text"]
    assert profile.digest_text not in user["fingerprint"]


def test_it_is_told_what_was_tried(scripted, platform, problem, workload, candidate, profile, recommendation, asked):
    tried = [Tried(recommendation=recommendation, outcome="0.97x")]
    agent = AnalysisAgent(scripted(recommendation.to_json()), platform)
    (identity,) = agent.recommend(problem, workload, candidate, profile, tried).requests
    assert "fuse the passes (0.97x)" in asked(identity)["messages"][1]["text"]


def test_an_unreadable_answer_is_asked_for_once_more(
    scripted, platform, problem, workload, candidate, profile, recommendation, asked
):
    agent = AnalysisAgent(scripted('{"action": "fuse"}', recommendation.to_json()), platform)
    advice = agent.recommend(problem, workload, candidate, profile)
    assert advice.recommendation == recommendation
    assert advice.usage == Usage(requests=2)
    first, second = advice.requests
    said = asked(second)["messages"]
    assert said[:2] == asked(first)["messages"]
    assert (said[2]["role"], said[2]["text"]) == ("assistant", '{"action": "fuse"}')
    assert "it lacks bottleneck, rationale, evidence, expected_gain" in said[3]["text"]


def test_prose_given_twice_is_taken_and_labelled(scripted, platform, problem, workload, candidate, profile):
    model = scripted("Fuse it.", "<think>no JSON</think>As I said: fuse the loops.")
    recommendation = AnalysisAgent(model, platform).recommend(problem, workload, candidate, profile).recommendation
    assert recommendation.bottleneck == "unstructured answer"
    assert recommendation.action == "As I said: fuse the loops."
    assert "could not be read" in recommendation.evidence


def test_prose_of_the_first_answer_counts_when_the_second_is_empty(
    scripted, platform, problem, workload, candidate, profile
):
    advice = AnalysisAgent(scripted("Fuse it.", ""), platform).recommend(problem, workload, candidate, profile)
    assert advice.recommendation.action == "Fuse it."


def test_two_empty_answers_are_said_openly(scripted, platform, problem, workload, candidate, profile):
    advice = AnalysisAgent(scripted("", " "), platform).recommend(problem, workload, candidate, profile)
    assert advice.recommendation.action.startswith("none given")
    assert json.loads(advice.to_json())["recommendation"]["bottleneck"] == "unstructured answer"
