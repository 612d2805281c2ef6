"""Imports of the runtime lead to its copy, and nothing else in a source changes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kforge.errors import InputError
from kforge.export.imports import rewritten, uses_runtime


@pytest.mark.parametrize(
    ("before", "beside", "elsewhere"),
    [
        ("from kforge import inline", "from . import inline", "import copied as inline"),
        ("from kforge import inline as i", "from . import inline as i", "import copied as i"),
        ("import kforge.inline as i", "from . import inline as i", "import copied as i"),
        ("from kforge.inline import compile", "from .inline import compile", "from copied import compile"),
        (
            "from kforge.inline.errors import (\n    CompileError as C,\n    LaunchError,\n)",
            "from .inline.errors import CompileError as C, LaunchError",
            "from copied.errors import CompileError as C, LaunchError",
        ),
        ("import re, kforge.inline as i", "import re; from . import inline as i", "import re; import copied as i"),
        ("import torch", "import torch", "import torch"),
        ("from kforges import inline", "from kforges import inline", "from kforges import inline"),
    ],
)  # fmt: skip
def test_an_import_leads_to_the_copy(before: str, beside: str, elsewhere: str) -> None:
    assert rewritten(before, ".inline") == beside
    assert rewritten(before, "copied") == elsewhere
    assert uses_runtime(before) == (before != beside)


def test_a_plain_import_of_the_runtime_still_binds_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    # `json` stands for the copy
    names: dict[str, object] = {}
    exec(rewritten("import kforge.inline\nfound = kforge.inline.dumps([1])\n", "json"), names)
    assert names["found"] == "[1]"


def test_all_other_text_stays_as_it_is() -> None:
    source = '# é: kforge.inline\r\nif True: from kforge import inline; x = "from kforge import inline"  # é\r\ny = 1'
    expected = source.replace("from kforge import inline;", "from . import inline;")
    assert rewritten(source, ".inline") == expected


@given(
    st.sampled_from(["import torch", "x = 'é'", "from kforge import inline", "def f():\n    from kforge import inline"])
)
def test_a_rewritten_source_imports_nothing_of_kforge(source: str) -> None:
    once = rewritten(source, ".inline")
    assert "kforge" not in once
    assert rewritten(once, ".inline") == once


@pytest.mark.parametrize("source", ["import kforge", "from kforge import forge", "from kforge.records import Problem"])
def test_a_program_that_needs_more_of_kforge_is_refused(source: str) -> None:
    with pytest.raises(InputError, match="the program imports kforge"):
        rewritten(source, ".inline")


def test_no_python_is_one_clear_line() -> None:
    with pytest.raises(InputError, match="not valid Python"):
        rewritten("def", ".inline")
