import json
import pickle

import pytest

from kforge.agents import AnalysisAgent, Analyst, Tried
from kforge.models import Image, open_model
from kforge.roles import NothingWorthTrying


@pytest.fixture
def ask(scripted, platform, problem, workload, candidate, profile, asked):
    """Asks an agent with these answers; returns its advice, and the last message of each question."""

    def recommend(*answers, **facts):
        advice = AnalysisAgent(scripted(*answers), platform, **facts).recommend(problem, workload, candidate, profile)
        return advice, [asked(identity)["messages"][1] for identity in advice.requests]

    return recommend


def test_it_reads_the_profile_and_gives_one_recommendation(
    scripted, platform, problem, workload, candidate, profile, recommendation, asked
):
    agent: Analyst = AnalysisAgent(scripted(recommendation.to_json()), platform)
    advice = agent.recommend(problem, workload, candidate, profile)
    assert advice.recommendation == recommendation
    assert advice.usage.requests == 1
    (identity,) = advice.requests
    request = asked(identity)
    assert request["agent"] == "analysis"
    system, user = request["messages"]
    assert "give one recommendation" in system["text"]
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
    assert advice.usage.requests == 2
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


def test_evidence_that_is_not_in_the_profile_is_flagged(ask, recommendation):
    invented = recommendation.model_copy(update={"evidence": "aten::add 100 %, L2 hit rate 37 %, 2.0 us a call"})
    advice, _ = ask(invented.to_json())
    assert advice.remarks == ("the recommendation's evidence names 37 %, which is not in the profile",)


def test_evidence_of_a_recording_is_not_held_to_this_profile(
    scripted, platform, problem, workload, candidate, profile, recommendation, tmp_path
):
    elsewhere = recommendation.model_copy(update={"evidence": "37 % in aten::add"})
    AnalysisAgent(scripted(elsewhere.to_json()), platform).recommend(problem, workload, candidate, profile)
    model = open_model(f"replay:{tmp_path / 'exchange'}", exchange=tmp_path / "again", keys={})
    assert AnalysisAgent(model, platform).recommend(problem, workload, candidate, profile).remarks == ()


UNREADABLE = {
    "the answer is empty": "",
    "nothing but thinking": "<think>Let me see",
    "it lacks bottleneck": "Fuse it.",
    "it lacks rationale": '{"bottleneck": "b", "action": "a", "evidence": "e", "expected_gain": "g"}',
    "its JSON is invalid: expecting ',' delimiter": '{"bottleneck": "b" "action": "a"}',
    "its JSON is invalid: expecting property name": "{'bottleneck': 'b'}",
    "its JSON is invalid: unterminated string": '```json\n{"bottleneck": "mem',
    "it gives 4 recommendations": "[{}, {}, {}, {}]",
    "cut off at its length limit": {"text": '{"bottleneck": "mem', "finish": "length"},
    "it lacks action": '{"bottleneck": "b", "action": "", "rationale": "r", "evidence": "e", "expected_gain": "g"}',
}


@pytest.mark.parametrize("reason", UNREADABLE)
def test_an_unreadable_answer_is_told_as_what_it_is(ask, recommendation, asked, reason):
    advice, _ = ask(UNREADABLE[reason], recommendation.to_json())
    assert advice.recommendation == recommendation
    assert reason in asked(advice.requests[1])["messages"][3]["text"]
    (remark,) = [each for each in advice.remarks if "asked again" in each]
    assert reason in remark


# --- images -----------------------------------------------------------------------------------------------

REFUSAL = {"text": "tiny: image input is not supported", "finish": "images_refused"}
SCREENSHOT = Image.of(b"\xff\xd8\xff a screenshot")


@pytest.mark.parametrize(("form", "has_text", "drawn"), [("text", True, 0), ("image", False, 1), ("both", True, 1)])
def test_the_profile_is_shown_as_it_was_asked_for(ask, profile, recommendation, form, has_text, drawn, tmp_path):
    advice, (said,) = ask(recommendation.to_json(), profile_as=form)
    assert (advice.recommendation, advice.labels) == (recommendation, ())
    assert (profile.digest_text in said["text"]) == has_text
    assert [image["measured"] for image in said["images"]] == [True] * drawn
    assert len(list((tmp_path / "exchange").glob("*.image-1.png"))) == drawn


def test_images_of_the_user_come_after_the_drawn_profile(ask, recommendation):
    _, (said,) = ask(recommendation.to_json(), profile_as="both", images=[SCREENSHOT])
    assert [image["media_type"] for image in said["images"]] == ["image/png", "image/jpeg"]
    assert "Image 2 is from the user" in said["text"]
    _, (said,) = ask(recommendation.to_json(), recommendation.to_json(), images=[SCREENSHOT])
    assert "Image 1 is from the user" in said["text"]


def test_an_agent_without_images_asks_as_it_always_did(ask, recommendation):
    _, (said,) = ask(recommendation.to_json())
    assert said["images"] == []
    assert "Image" not in said["text"]


@pytest.mark.parametrize("form", ["text", "image", "both"])
def test_a_model_that_refuses_images_gets_the_text_and_the_advice_a_label(ask, profile, recommendation, form):
    images = [SCREENSHOT] if form == "text" else []
    advice, (first, second) = ask(REFUSAL, recommendation.to_json(), profile_as=form, images=images)
    assert (advice.recommendation, advice.labels) == (recommendation, ("images_not_seen",))
    assert advice.usage.requests == 2
    assert first["images"]
    assert second["images"] == []
    assert profile.digest_text in second["text"]
    assert "Image" not in second["text"]


def test_a_model_that_refused_images_is_not_shown_any_again(
    scripted, platform, problem, workload, candidate, profile, recommendation
):
    answers = (REFUSAL, recommendation.to_json(), recommendation.to_json())
    agent = AnalysisAgent(scripted(*answers), platform, profile_as="both")
    tried = [Tried(recommendation=recommendation, outcome="0.97x")]
    agent.recommend(problem, workload, candidate, profile)
    advice = agent.recommend(problem, workload, candidate, profile, tried)
    assert (len(advice.requests), advice.labels) == (1, ("images_not_seen",))


def test_an_unreadable_answer_about_images_is_asked_for_once_more_with_them(ask, recommendation, asked):
    advice, (first, second) = ask("prose", recommendation.to_json(), profile_as="image")
    assert advice.labels == ()
    assert first == second, "the question is part of the second one"


def test_further_ideas_are_kept_and_what_was_slower_is_not_recommended_again(
    scripted, platform, problem, workload, candidate, profile, recommendation
):
    def idea(action):
        return recommendation.model_copy(update={"action": action})

    answer = json.dumps([json.loads(idea(action).to_json()) for action in ("Fuse  it", "tile it", "unroll it")])
    recommend = AnalysisAgent(scripted(answer, answer, answer), platform).recommend
    advice = recommend(problem, workload, candidate, profile)
    assert (advice.recommendation, advice.others) == (idea("Fuse it"), (idea("tile it"), idea("unroll it")))

    slower = Tried(recommendation=idea("fuse it"), outcome="slower", given_up=True)
    advice = recommend(problem, workload, candidate, profile, [slower])
    assert (advice.recommendation, advice.others) == (idea("tile it"), (idea("unroll it"),))
    undecided = slower.model_copy(update={"given_up": False})
    assert recommend(problem, workload, candidate, profile, [undecided]).recommendation == idea("Fuse it")


def test_nothing_left_worth_trying_ends_with_its_evidence_and_its_cost(
    scripted, platform, problem, workload, candidate, profile
):
    nothing = {"nothing_left": "it is at the roof"}
    model = scripted(json.dumps(nothing), json.dumps({**nothing, "evidence": "98 % of the roofline"}))
    with pytest.raises(NothingWorthTrying, match="nothing left worth trying: it is at the roof") as end:
        AnalysisAgent(model, platform).recommend(problem, workload, candidate, profile)
    assert "98 % of the roofline" in str(end.value)
    assert "98 %, which is not in the profile" in str(end.value), "the number was invented"
    assert (len(end.value.requests), end.value.usage.requests) == (2, 2), "it was asked again for evidence"
    assert str(pickle.loads(pickle.dumps(end.value))) == str(end.value)
