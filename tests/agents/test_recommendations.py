import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kforge.agents.recommendations import FIELDS, NothingToTry, Unreadable, parse_recommendations
from kforge.records import Recommendation


def block(code: str, info: str = "json") -> str:
    return f"```{info}\n{code.rstrip()}\n```\n"


RECOMMENDATION = {
    "bottleneck": "memory",
    "action": "fuse the passes",
    "rationale": "fewer bytes",
    "evidence": "41 % of the roof",
    "expected_gain": "1.8x",
}
READABLE_ADVICE = {
    "a JSON block": block(json.dumps(RECOMMENDATION, indent=1), "json"),
    "bare JSON": json.dumps(RECOMMENDATION),
    "JSON in prose": f"I think:\n{json.dumps(RECOMMENDATION)}\nGood luck {{you}}.",
    "JSON after other braces": f"The set {{a, b}} says: {json.dumps(RECOMMENDATION)}",
    "one in a list": json.dumps([RECOMMENDATION]),
    "one in an envelope": json.dumps({"recommendation": RECOMMENDATION}),
    "one in a list in an envelope": json.dumps({"recommendations": [RECOMMENDATION]}),
    "keys in other clothes": json.dumps(
        {key.replace("_", " ").title(): value for key, value in RECOMMENDATION.items()}
    ),
    "more keys than asked": json.dumps({**RECOMMENDATION, "confidence": 0.9}),
    "literal newlines": '{\n"bottleneck": "memory", "action": "fuse\nthe passes", "rationale": "fewer bytes",'
    '"evidence": "41 % of the roof", "expected_gain": "1.8x"}',
    "lines": "\n".join(f"{key}: {value}" for key, value in RECOMMENDATION.items()),
    "bold lines": "\n".join(f"- **{key.replace('_', ' ').title()}:** {value}" for key, value in RECOMMENDATION.items()),
    "bold names": "\n".join(f"**{key.replace('_', '-')}**: {value}" for key, value in RECOMMENDATION.items()),
    "headings": "\n".join(f"## {key}:\n{value}\n" for key, value in RECOMMENDATION.items()),
    "lines that go on": "\n".join(f"{key}:\n  {value}" for key, value in RECOMMENDATION.items()),
    "thinking first": f"<think>{json.dumps({**RECOMMENDATION, 'action': 'no'})}</think>{json.dumps(RECOMMENDATION)}",
    "Windows newlines": block(json.dumps(RECOMMENDATION, indent=1), "json").replace("\n", "\r\n"),
}


@pytest.mark.parametrize("name", READABLE_ADVICE)
def test_a_recommendation_is_read(name):
    assert parse_recommendations(READABLE_ADVICE[name]) == (Recommendation(**RECOMMENDATION),)


def test_numbers_and_lists_become_words():
    (read,) = parse_recommendations(json.dumps({**RECOMMENDATION, "expected_gain": 1.8, "evidence": ["a", "b"]}))
    assert (read.expected_gain, read.evidence) == ("1.8", "a; b")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        ("Make it faster.", "lacks bottleneck, action, rationale, evidence, expected_gain"),
        (json.dumps({**RECOMMENDATION, "evidence": " "}), "lacks evidence"),
        (json.dumps({**RECOMMENDATION, "action": None}), "lacks action"),
        (json.dumps([RECOMMENDATION] * 4), "gives 4 recommendations, and one to 3 are asked for"),
        ("[]", "gives 0 recommendations"),
        (json.dumps([{"action": "fuse"}, RECOMMENDATION]), "lacks bottleneck, rationale, evidence, expected_gain"),
        (json.dumps({"nothing_left": "it is at the roof"}), "nothing is left worth trying, and lacks evidence"),
        (json.dumps(RECOMMENDATION).replace(", ", " "), "its JSON is invalid: expecting ',' delimiter, at line 1"),
        (json.dumps(RECOMMENDATION)[:-1] + ",}", "its JSON is invalid"),
        (str(RECOMMENDATION), "its JSON is invalid: expecting property name enclosed in double quotes, at line 1"),
        (block(json.dumps(RECOMMENDATION, indent=1)[:90]), "its JSON is invalid"),
    ],
)
def test_what_is_no_recommendation_says_why(text, reason):
    read = parse_recommendations(text)
    assert isinstance(read, Unreadable)
    assert reason in read


@given(st.fixed_dictionaries({field: st.text(alphabet=st.characters(codec="utf-8"), min_size=1) for field in FIELDS}))
def test_any_recommendation_comes_out_as_it_went_in(fields):
    words = {field: " ".join(value.split()) or "x" for field, value in fields.items()}
    order = list(words)
    random.Random(0).shuffle(order)
    read = parse_recommendations(block(json.dumps({field: words[field] for field in order}), "json"))
    assert read == (Recommendation(**words),)


@pytest.mark.parametrize("text", ["", block(json.dumps(RECOMMENDATION)[:60]), "<think>It may be that"])
def test_an_answer_cut_off_at_its_length_limit_says_so(text):
    assert "cut off at its length limit" in parse_recommendations(text, "length")


def test_a_whole_recommendation_counts_although_the_answer_was_cut_off_after_it():
    cut = block(json.dumps(RECOMMENDATION)) + "This will help becau"
    assert parse_recommendations(cut, "length") == (Recommendation(**RECOMMENDATION),)


def test_up_to_three_ideas_keep_their_order():
    ideas = [{**RECOMMENDATION, "action": action} for action in ("fuse", "tile", "unroll")]
    read = parse_recommendations(block(json.dumps(ideas)))
    assert [idea.action for idea in read] == ["fuse", "tile", "unroll"]
    read = parse_recommendations(json.dumps({"ideas": [ideas[0], {"action": "tile"}, "unroll"]}))
    assert [idea.action for idea in read] == ["fuse"], "a second idea that cannot be read costs nothing"


@pytest.mark.parametrize(
    "text",
    [
        block(json.dumps({"nothing_left": "it is at the roof", "evidence": "98 % of the roofline"})),
        json.dumps([{"Nothing left": "it is at the roof", "evidence": ["98 % of the roofline"]}]),
        "nothing_left: it is at the roof\nevidence: 98 % of the roofline",
        json.dumps({"nothing_left": "it is at the roof", "action": "", "evidence": "98 % of the roofline"}),
    ],
)
def test_nothing_left_is_read_with_its_evidence(text):
    assert parse_recommendations(text) == NothingToTry("it is at the roof", "98 % of the roofline")


def test_a_recommendation_beside_an_empty_nothing_left_counts():
    text = json.dumps({**RECOMMENDATION, "nothing_left": ""})
    assert parse_recommendations(text) == (Recommendation(**RECOMMENDATION),)
