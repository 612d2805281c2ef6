"""`#include <kforge/math.h>` where the compiler has no path to it."""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from kforge.inline import CompileError, headers

if TYPE_CHECKING:
    from pathlib import Path


def test_the_header_is_put_into_the_source_and_lines_keep_their_numbers() -> None:
    text = headers.expanded('// one\n  # include "kforge/math.h" // two\nint three;\n', "kernel.cu")
    assert text.startswith('// one\n#line 1 "kforge/math.h"\n')
    assert text.endswith('\n#line 3 "kernel.cu"\nint three;\n')
    assert "KFORGE(tanh)" in text, "the headers that it includes are there as well"
    assert not re.search(r"^#include <kforge", text, re.MULTILINE)


def test_a_source_without_our_header_stays_as_it_is() -> None:
    source = "#include <cmath>\n// #include <kforge/math.h>\n#include <kforge_other.h>\n"
    assert headers.expanded(source, "kernel.cu") == source
    assert headers.included(source) == ""


@pytest.mark.parametrize("name", ["kforge/maths.h", "kforge/functions.h"])
def test_another_header_of_ours_is_an_error_with_its_line(name: str) -> None:
    with pytest.raises(CompileError) as raised:
        headers.expanded(f"\n\n#include <{name}>\n", "kernel.cl")
    assert str(raised.value) == f"kernel.cl:3: error: there is no header <{name}>; kforge has <kforge/math.h>"


def test_a_cache_key_has_the_texts_of_all_headers() -> None:
    assert "KFORGE(tanh)" in headers.included("#include <kforge/math.h>\n")
    assert headers.included("#include <kforge/other.h>\n") == ""


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_a_compiler_names_the_lines_of_the_source(tmp_path: Path) -> None:
    (tmp_path / "a.cpp").write_text(headers.expanded("\n#include <kforge/math.h>\nint wrong = x;\n", "kernel.cpp"))
    ran = subprocess.run(["g++", "-fsyntax-only", "a.cpp"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert re.search(r"^kernel\.cpp:3:\d+: error: ", ran.stderr, re.MULTILINE)
