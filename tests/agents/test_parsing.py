import json
import random
import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kforge.agents.parsing import FIELDS, LONGEST, parse_program, parse_recommendation
from kforge.records import GenerationFailure, Recommendation

PROGRAM = '''\
import torch
import torch.nn as nn

SOURCE = r"""
extern "C" void add(float *x) { x[0] += 1; }
"""


class ModelNew(nn.Module):
    def forward(self, x):
        return x + 1
'''
WITH_FENCES = '''\
import torch.nn as nn


class ModelNew(nn.Module):
    """Adds one.

    ```
    ModelNew()(x)
    ```

    ```python
    ModelNew()(x)
    ```
    """

    def forward(self, x):
        return x + 1
'''
OTHER = PROGRAM.replace("x + 1", "x + 2")
INDENTED = textwrap.indent(PROGRAM.replace('\n"""\n', '\n    """\n'), "   ")


def block(code: str, info: str = "python", fence: str = "```") -> str:
    return f"{fence}{info}\n{code.rstrip()}\n{fence}\n"


READABLE = {
    "a fence with its language": block(PROGRAM),
    "another name for it": block(PROGRAM, "Python3"),
    "a fence with attributes": block(PROGRAM, 'python title="kernel.py"'),
    "a fence without a language": block(PROGRAM, ""),
    "a fence with the wrong language": block(PROGRAM, "cpp"),
    "tildes": block(PROGRAM, "python", "~~~"),
    "a long fence": block(PROGRAM, "python", "`````"),
    "prose around": f"Here it is.\n\n{block(PROGRAM)}\nIt adds one.",
    "a fence behind prose": f"Here it is: {block(PROGRAM)}",
    "a closing fence behind code": f"```python\n{PROGRAM.rstrip()}```\nDone.",
    "Windows newlines": block(PROGRAM).replace("\n", "\r\n"),
    "old Mac newlines": block(PROGRAM).replace("\n", "\r"),
    "a byte-order mark": "\ufeff" + block(PROGRAM),
    "a list item": f"1. The file:\n\n   ```python\n{INDENTED.rstrip()}\n   ```\n",
    "an indented block": f"   ```python\n{INDENTED.rstrip()}\n   ```",
    "a block in a block": f"````markdown\n{block(PROGRAM)}````\n",
    "a block in a block of equal fences": f"```markdown\n{block(PROGRAM)}```\n",
    "thinking before": f"<think>\nmaybe {block(OTHER)}</think>\n{block(PROGRAM)}",
    "thinking of another name": f"<thinking>{block(OTHER)}</thinking>{block(PROGRAM)}",
    "thinking whose beginning was not sent": f"maybe {block(OTHER)} no\n</think>\n\n{block(PROGRAM)}",
    "several blocks, the last that defines it": block("pip install x", "bash")
    + block(OTHER)
    + block(PROGRAM)
    + block("print(ModelNew())"),
    "an unclosed fence around a whole program": f"So:\n```python\n{PROGRAM}",
    "bare code": PROGRAM,
    "bare code after prose": f"Here is the program:\n\n{PROGRAM}",
    "bare code before prose": f"{PROGRAM}\nThis adds one to x, and that's all.\n",
    "bare code with a heading": f"# Solution\n\nHere it is.\n\n{PROGRAM}\nIt's done.\n\nReally, it is.\n",
    "JSON": json.dumps({"thoughts": "hm", "code": PROGRAM}),
    "JSON in a block": block(json.dumps({"answer": {"files": [PROGRAM]}}), "json"),
    "JSON with a fenced program": json.dumps({"code": block(PROGRAM)}),
    "JSON after prose": "Sure: " + json.dumps({"code": PROGRAM}),
}


@pytest.mark.parametrize("name", READABLE)
def test_a_program_is_read(name):
    source = parse_program(READABLE[name])
    assert isinstance(source, str), source
    assert source.replace('    """', '"""') == PROGRAM


@pytest.mark.parametrize("fence", ["```", "~~~", "````"])
def test_fences_inside_a_program_do_not_end_it(fence):
    assert parse_program(f"Look:\n{block(WITH_FENCES, 'python', fence)}\nDone.") == WITH_FENCES


def test_a_program_that_does_not_parse_is_still_a_program():
    broken = PROGRAM.replace("return x + 1", "return x +")
    assert parse_program(block(OTHER) + block(broken)) == broken


def test_odd_escapes_in_a_program_are_no_matter():
    odd = PROGRAM.replace('r"""', '"""\\d')
    assert parse_program(block(odd)) == odd


UNREADABLE = {
    "the answer is empty": ("", "stop"),
    "nothing but thinking": (f"<think>I wonder {block(PROGRAM)}", "stop"),
    "no code block and no class ModelNew": ("I cannot do that.", "stop"),
    "no code block of the answer defines": (block("print(1)"), "stop"),
    "does not parse as Python": ("class ModelNew(nn.Module: oh", "stop"),
    "cut off at its length limit": (f"```python\n{PROGRAM}", "length"),
    "cut off before": (f"```python\n{PROGRAM[:-20]}", "stop"),
    "content filter": ("I was", "content_filter"),
    "longer than": ("a" * (LONGEST + 1), "stop"),
}


@pytest.mark.parametrize("reason", UNREADABLE)
def test_what_cannot_be_read_says_why(reason):
    failure = parse_program(*UNREADABLE[reason])
    assert isinstance(failure, GenerationFailure)
    assert reason in failure.reason
    assert "\n" not in failure.reason


def test_a_program_cut_off_by_its_length_is_not_replaced_by_an_earlier_one():
    failure = parse_program(f"Before:\n{block(OTHER)}\nNow:\n```python\n{PROGRAM}", "length")
    assert isinstance(failure, GenerationFailure)


def test_prose_cut_off_after_a_whole_program_does_no_harm():
    assert parse_program(f"{block(PROGRAM)}\nThis program is so good becau", "length") == PROGRAM


def test_bare_code_cut_off_in_a_body_is_not_taken_for_whole():
    cut = PROGRAM + "\n    def other(self, x):\n        return (x +"
    assert isinstance(parse_program(cut), GenerationFailure)


FENCES = ["```", "```python", "~~~", "````", "<think>", "</think>", "\n", "\r\n"]
PIECES = ["class ModelNew:\n", "    x = 1\n", "import a\n", "# a\n", "(((((", "'''", '"""', "{", "}", "[", '"code": "']
ODDITIES = ["\x00", "\ud800", "\ue000", "bottleneck: b\n"]
FRAGMENTS = st.sampled_from([*FENCES, *PIECES, *ODDITIES])
MESS = st.lists(st.one_of(FRAGMENTS, st.text(max_size=10)), max_size=40).map("".join)


@given(MESS, st.sampled_from(["stop", "length", "content_filter", "unknown"]))
def test_no_text_makes_the_parser_raise(text, finish):
    program = parse_program(text, finish)
    if isinstance(program, str):
        assert program.encode().endswith(b"\n")
    else:
        assert program.reason
    read = parse_recommendation(text)
    assert isinstance(read, Recommendation) or read


@pytest.mark.parametrize(
    "piece", ["```a\n", "```\n", "[", "{", '{"a":', "(", "-", "<think>", "class ModelNew:\n", "~~~\n```\n"]
)
def test_a_flood_of_one_piece_is_survived(piece):
    flood = piece * (20_000 // len(piece))
    assert isinstance(parse_program(flood), (str, GenerationFailure))
    assert isinstance(parse_program(f"```python\nclass ModelNew: pass\n{flood}"), (str, GenerationFailure))
    assert isinstance(parse_recommendation(flood), (str, Recommendation))


PROSE = st.text(alphabet=st.characters(codec="utf-8", exclude_characters="`~<>\r\x00"), max_size=80)


@given(
    PROSE,
    PROSE,
    st.sampled_from([PROGRAM, WITH_FENCES, OTHER]),
    st.sampled_from(["```", "~~~", "````", "~~~~~"]),
    st.sampled_from(["", "python", "py", "cpp"]),
    st.sampled_from(["stop", "length", "unknown"]),
)
def test_a_fenced_program_comes_out_as_it_went_in(before, after, program, fence, info, finish):
    answer = f"{before}\n{block(program, info, fence)}\n{after}"
    assert parse_program(answer, finish) == program


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
    assert parse_recommendation(READABLE_ADVICE[name]) == Recommendation(**RECOMMENDATION)


def test_numbers_and_lists_become_words():
    read = parse_recommendation(json.dumps({**RECOMMENDATION, "expected_gain": 1.8, "evidence": ["a", "b"]}))
    assert isinstance(read, Recommendation)
    assert (read.expected_gain, read.evidence) == ("1.8", "a; b")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        ("Make it faster.", "lacks bottleneck, action, rationale, evidence, expected_gain"),
        (json.dumps({**RECOMMENDATION, "evidence": " "}), "lacks evidence"),
        (json.dumps({**RECOMMENDATION, "action": None}), "lacks action"),
        (json.dumps([RECOMMENDATION, RECOMMENDATION]), "gives 2 recommendations"),
    ],
)
def test_what_is_no_recommendation_says_why(text, reason):
    read = parse_recommendation(text)
    assert not isinstance(read, Recommendation)
    assert reason in read


@given(st.fixed_dictionaries({field: st.text(alphabet=st.characters(codec="utf-8"), min_size=1) for field in FIELDS}))
def test_any_recommendation_comes_out_as_it_went_in(fields):
    words = {field: " ".join(value.split()) or "x" for field, value in fields.items()}
    order = list(words)
    random.Random(0).shuffle(order)
    assert parse_recommendation(block(json.dumps({field: words[field] for field in order}), "json")) == Recommendation(
        **words
    )
