"""Search/replace edits, in the forms in which models send them."""

import pytest

from kforge.agents.parsing import ReadProgram, parse_program
from kforge.records import GenerationFailure

BASE = '''\
import torch.nn as nn

SOURCE = r"""
extern "C" void add(float *x, long n) {
    for (long i = 0; i < n; ++i) x[i] += 1;
    for (long i = 0; i < n; ++i) x[i] *= 2;
}
"""


class ModelNew(nn.Module):
    def forward(self, x):
        y = x.clone()
        y = x.clone()
        return y
'''
EDITED = BASE.replace("x[i] += 1", "x[i] += 1.0f")
LOOP = "    for (long i = 0; i < n; ++i) x[i] += 1;"
EDIT = f"<<<<<<< SEARCH\n{LOOP}\n=======\n{LOOP.replace('1;', '1.0f;')}\n>>>>>>> REPLACE\n"


def edit(search: str, replace: str) -> str:
    return f"<<<<<<< SEARCH\n{search}\n=======\n{replace}\n>>>>>>> REPLACE\n"


READABLE = {
    "bare": EDIT,
    "in a block": f"```\n{EDIT}```\n",
    "in a block of a language": f"Use a float.\n\n```python\n{EDIT}```\nDone.",
    "with prose around": f"The constant is a double.\n\n{EDIT}\nNothing else changes.",
    "after thinking": f"<think>\n{edit('nonsense', '')}</think>\n{EDIT}",
    "of other lengths": EDIT.replace("<<<<<<<", "<<<<<").replace("=======", "=====").replace(">>>>>>>", ">>>>>"),
    "in lower case": EDIT.replace("SEARCH", "search").replace("REPLACE", "replace"),
    "indented in a list": "1. The loop:\n\n" + "".join(f"   {line}\n" for line in EDIT.splitlines()),
    "with Windows newlines": EDIT.replace("\n", "\r\n"),
    "with blanks behind the marks": EDIT.replace("SEARCH", "SEARCH  ").replace("=======", "======= "),
}


@pytest.mark.parametrize("name", READABLE)
def test_an_edit_is_applied(name):
    assert parse_program(READABLE[name], base=BASE) == ReadProgram(EDITED)


def test_edits_are_applied_one_after_the_other():
    both = f"{EDIT}\nand\n\n```\n{edit(LOOP.replace('1;', '1.0f;'), '    // nothing')}```"
    assert parse_program(both, base=BASE) == ReadProgram(BASE.replace(LOOP, "    // nothing"))


def test_an_edit_may_remove_and_add_lines():
    removed = parse_program(edit("        y = x.clone()\n        return y", "        return y"), base=BASE)
    assert removed == ReadProgram(BASE.replace("        y = x.clone()\n        return y", "        return y"))
    longer = parse_program(edit("import torch.nn as nn", "import torch\nimport torch.nn as nn\n"), base=BASE)
    assert isinstance(longer, ReadProgram)
    assert longer.source.startswith("import torch\nimport torch.nn as nn\n\n")


UNREADABLE = {
    "edit 1 cannot be applied: the line 'for (int i' is not in the program": (edit("for (int i", "x"), "stop"),
    "with other spaces, and must be the same to the letter": (edit(LOOP.strip(), "x"), "stop"),
    "edit 2 cannot be applied: the line": (EDIT + EDIT, "stop"),
    "is in the program 2 times (lines 13, 14)": (edit("        y = x.clone()", "        y = x"), "stop"),
    "and not one after the other": (edit(LOOP + "\n}", "x"), "stop"),
    "it has no text to search for": (edit("", "import torch"), "stop"),
    "ends before its line >>>>>>> REPLACE": (EDIT.replace(">>>>>>> REPLACE", ""), "stop"),
    "ends before its line =======": ("<<<<<<< SEARCH\nimport", "stop"),
    "a second SEARCH line": (EDIT.replace(">>>>>>> REPLACE\n", "") + EDIT, "stop"),
    "cut off at its length limit": (EDIT[:60], "length"),
    "either edits or one whole file": (f"{EDIT}\n```python\n{BASE}```", "stop"),
    "the edits change nothing": (edit(LOOP, LOOP), "stop"),
    "no longer defines the class ModelNew": (edit("class ModelNew(nn.Module):", "class Model(nn.Module):"), "stop"),
}


@pytest.mark.parametrize("reason", UNREADABLE)
def test_an_edit_that_does_not_fit_is_told_as_what_it_is(reason):
    text, finish = UNREADABLE[reason]
    failure = parse_program(text, finish, BASE)
    assert isinstance(failure, GenerationFailure)
    assert reason in failure.reason
    assert "\n" not in failure.reason


def test_edits_without_a_last_program_are_told_as_that():
    failure = parse_program(EDIT)
    assert isinstance(failure, GenerationFailure)
    assert "there is no last program to edit" in failure.reason
