import json
import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kforge.agents.markdown import LONGEST
from kforge.agents.parsing import ReadProgram, parse_program
from kforge.agents.recommendations import parse_recommendations
from kforge.records import GenerationFailure

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
    read = parse_program(READABLE[name])
    assert isinstance(read, ReadProgram), read
    assert read.source.replace('    """', '"""') == PROGRAM
    assert bool(read.remark) == name.startswith("several")


@pytest.mark.parametrize("fence", ["```", "~~~", "````"])
def test_fences_inside_a_program_do_not_end_it(fence):
    assert parse_program(f"Look:\n{block(WITH_FENCES, 'python', fence)}\nDone.") == ReadProgram(WITH_FENCES)


def test_a_program_that_does_not_parse_is_still_a_program():
    broken = PROGRAM.replace("return x + 1", "return x +")
    read = parse_program(block(OTHER) + block(broken))
    assert read == ReadProgram(broken, "the answer holds 2 different programs, and the last one was taken")


def test_odd_escapes_in_a_program_are_no_matter():
    odd = PROGRAM.replace('r"""', '"""\\d')
    assert parse_program(block(odd)) == ReadProgram(odd)


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
    "invalid JSON (expecting property name": ("{'code': 'class ModelNew: pass'}", "stop"),
    "invalid JSON (expecting ',' delimiter": (json.dumps({"code": PROGRAM, "n": 1}).replace(', "n"', ' "n"'), "stop"),
    "leaves code out, at the line '# ... rest of the module unchanged": (
        block(PROGRAM.replace("    def forward", "    # ... rest of the module unchanged\n    def forward")),
        "stop",
    ),
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
    assert parse_program(f"{block(PROGRAM)}\nThis program is so good becau", "length") == ReadProgram(PROGRAM)


def test_bare_code_cut_off_in_a_body_is_not_taken_for_whole():
    cut = PROGRAM + "\n    def other(self, x):\n        return (x +"
    assert isinstance(parse_program(cut), GenerationFailure)


FENCES = ["```", "```python", "~~~", "````", "<think>", "</think>", "\n", "\r\n"]
EDITS = ["<<<<<<< SEARCH\n", "=======\n", ">>>>>>> REPLACE\n", "        return x + 1\n"]
PIECES = ["class ModelNew:\n", "    x = 1\n", "import a\n", "# a\n", "(((((", "'''", '"""', "{", "}", "[", '"code": "']
ODDITIES = ["\x00", "\ud800", "\ue000", "bottleneck: b\n"]
FRAGMENTS = st.sampled_from([*FENCES, *PIECES, *EDITS, *ODDITIES])
MESS = st.lists(st.one_of(FRAGMENTS, st.text(max_size=10)), max_size=40).map("".join)


@given(MESS, st.sampled_from(["stop", "length", "content_filter", "unknown"]), st.sampled_from([None, PROGRAM]))
def test_no_text_makes_the_parser_raise(text, finish, base):
    program = parse_program(text, finish, base)
    if isinstance(program, ReadProgram):
        assert program.source.encode().endswith(b"\n")
    else:
        assert program.reason
    read = parse_recommendations(text)
    assert read


@pytest.mark.parametrize(
    "piece",
    ["```a\n", "```\n", "[", "{", '{"a":', "(", "-", "<think>", "class ModelNew:\n", "~~~\n```\n", "<<<<<<< SEARCH\n"],
)
def test_a_flood_of_one_piece_is_survived(piece):
    flood = piece * (20_000 // len(piece))
    assert isinstance(parse_program(flood), (ReadProgram, GenerationFailure))
    assert isinstance(parse_program(f"```python\nclass ModelNew: pass\n{flood}"), (ReadProgram, GenerationFailure))
    assert isinstance(parse_recommendations(flood), (str, tuple))


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
    assert parse_program(answer, finish) == ReadProgram(program)
