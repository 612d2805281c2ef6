"""Problem files as text: static checks and overrides."""

from __future__ import annotations

import ast
import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kforge.errors import ProblemError
from kforge.problems import load

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Write = Callable[..., Path]

DEFINITIONS = "\nclass Model: pass\ndef get_inputs(): ...\ndef get_init_inputs(): ...\n"


def one_line(error: pytest.ExceptionInfo[ProblemError]) -> str:
    message = str(error.value)
    assert "\n" not in message
    return message


def test_the_source_is_the_file(write: Write) -> None:
    path = write()
    problem = load(path)
    assert problem.source == path.read_text()
    assert problem.name == "small"
    assert problem.overrides == ()
    assert problem.state_path is None


def test_a_file_called_problem_is_named_after_its_folder(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(name="softmax/problem.py")
    assert load(path).name == "softmax"
    monkeypatch.chdir(path.parent)
    assert load(path.relative_to(path.parent)).name == "softmax"


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ProblemError) as error:
        load(tmp_path / "absent.py")
    assert one_line(error).endswith("absent.py: no such file")


def test_a_directory_or_a_pipe_is_not_a_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    for path in (tmp_path, tmp_path / "pipe.py"):
        with pytest.raises(ProblemError, match="is not a file"):
            load(path)


def test_text_that_is_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "latin.py"
    path.write_bytes(b"# caf\xe9\n")
    with pytest.raises(ProblemError) as error:
        load(path)
    assert "is not UTF-8 text (byte 5)" in one_line(error)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x = 1\ndef f(:\n", "line 2"),
        ("x = '\0'", "null bytes"),
        ("(" * 400 + ")" * 400, "too many nested parentheses"),
    ],
)
def test_text_that_is_not_python(write: Write, text: str, says: str) -> None:
    with pytest.raises(ProblemError) as error:
        load(write(text))
    assert "is not valid Python" in one_line(error)
    assert says in one_line(error)


@pytest.mark.parametrize("name", ["Model", "get_inputs", "get_init_inputs"])
def test_a_missing_name(write: Write, name: str) -> None:
    text = write().read_text().replace(f"class {name}", "class Other").replace(f"def {name}(", "def other(")
    with pytest.raises(ProblemError, match=f"does not define {name} at module level"):
        load(write(text))


def test_names_inside_other_scopes_do_not_count(write: Write) -> None:
    with pytest.raises(ProblemError, match="Model or get_inputs or get_init_inputs"):
        load(write("class A:\n    Model = 1\ndef f():\n    get_inputs = 2\nget_init_inputs: int\n"))


def test_names_in_blocks_and_imports_count(write: Write) -> None:
    text = "if 1:\n    class Model: pass\nfrom x import f as get_inputs\nwith y as get_init_inputs: pass\n"
    assert load(write(text)).source == text


def test_overrides_change_the_values_and_nothing_else(write: Write) -> None:
    path = write()
    problem = load(path, ["ROWS = 16", "PAIR=(3,4)", "COLUMNS=0x20"])
    expected = (
        path.read_text()
        .replace("ROWS = 4  #", "ROWS = 16  #")
        .replace("COLUMNS: int = ROWS * 2", "COLUMNS: int = 32")
        .replace("(1,\n        2)", "(3, 4)")
    )
    assert problem.source == expected
    assert problem.overrides == (("COLUMNS", "0x20"), ("PAIR", "(3,4)"), ("ROWS", "16"))


def test_overrides_enter_the_hash(write: Write) -> None:
    path = write()
    assert len({load(path).digest, load(path, ["ROWS=5"]).digest, load(path, ["ROWS=6"]).digest}) == 3


def test_other_line_ends_and_characters_survive(write: Write) -> None:
    text = "# é 漢\r\nS = 'é'; N = 1 # ü\f\u2028\r\nM = (\r\n  2 )" + DEFINITIONS
    assert load(write(text), ["N=7", "M=-1"]).source == text.replace("N = 1", "N = 7").replace("2 )", "-1 )")


@pytest.mark.parametrize("value", ["1 # why", "(1,\n2)", "1, 2", "1e999", "'a b'", "{'k': [1, 2.5]}", "-3", "b'x'"])
def test_every_literal_can_be_set(write: Write, value: str) -> None:
    path = write("N: object = 0; M = N" + DEFINITIONS)
    scope: dict[str, object] = {}
    exec(load(path, [f"N={value}"]).source, scope)
    assert scope["M"] == ast.literal_eval(value)


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["WIDTH=3"], "has no module-level constant WIDTH; those that can be set: COLUMNS, PAIR, ROWS"),
        (["Model=3"], "has no module-level constant Model"),
        (["ROWS=four"], "ROWS=four: the value is not a Python literal"),
        (["ROWS=1; import os"], "the value is not a Python literal"),
        (["ROWS=\n\n("], "the value is not a Python literal"),
        (["ROWS="], "the value is not a Python literal"),
        (["ROWS"], "'ROWS' is not of the form NAME=VALUE"),
        (["=3"], "is not of the form NAME=VALUE"),
        (["ROWS=1", "ROWS=2"], "ROWS is set twice"),
    ],
)
def test_overrides_that_cannot_be(write: Write, overrides: list[str], says: str) -> None:
    with pytest.raises(ProblemError) as error:
        load(write(), overrides)
    assert says in one_line(error)


@pytest.mark.parametrize("second", ["N = 2", "N += 1", "for N in (): pass", "def N(): ...", "import x as N"])
def test_a_name_bound_twice_cannot_be_set(write: Write, second: str) -> None:
    with pytest.raises(ProblemError, match=r"N is bound more than once \(lines 1 and 2\)"):
        load(write(f"N = 1\n{second}{DEFINITIONS}"), ["N=3"])


def test_a_name_of_another_scope_does_not_stop_an_override(write: Write) -> None:
    text = "N = 1\nL = [N for N in ()]\ndef f():\n    N = 2\n" + DEFINITIONS
    assert load(write(text), ["N=3"]).source == text.replace("N = 1", "N = 3")


@pytest.mark.parametrize(
    ("written", "overrides", "becomes"),
    [
        ("BATCH, FEATURES = 256, 4096", ["BATCH=64"], "BATCH, FEATURES = 64, 4096"),
        ("BATCH, FEATURES = 256, 4096", ["FEATURES=8", "BATCH=64"], "BATCH, FEATURES = 64, 8"),
        ("(BATCH, FEATURES) = (256, 4096)  # both", ["FEATURES=8"], "(BATCH, FEATURES) = (256, 8)  # both"),
        ("[A, (B, C)] = 1, (2,\n 3)", ["C=(7, 8)"], "[A, (B, C)] = 1, (2,\n (7, 8))"),
        ("BATCH: int = 256", ["BATCH=64"], "BATCH: int = 64"),
        ("BATCH = (256)", ["BATCH=64"], "BATCH = (64)"),
        ("A = B = 4  # both", ["A=8"], "A = B = 4; A = 8  # both"),
        ("A = B = 4;", ["A=8", "B=9"], "A = B = 4; A = 8; B = 9;"),
        ("A = (B, C) = 1, 2", ["B=9"], "A = (B, C) = 1, 2; B = 9"),
        ("SHAPE = 1, 2\nA, B = SHAPE", ["B=9"], "SHAPE = 1, 2\nA, B = SHAPE; B = 9"),
        ("REST = [2]\nA, B = 1, *REST", ["A=9"], "REST = [2]\nA, B = 1, *REST; A = 9"),
        ("A = 2\nB = A * 2", ["B=9"], "A = 2\nB = 9"),
    ],
)
def test_each_kind_of_assignment_can_be_set(write: Write, written: str, overrides: list[str], becomes: str) -> None:
    problem = load(write(written + DEFINITIONS), overrides)
    assert problem.source == becomes + DEFINITIONS
    scope: dict[str, object] = {}
    exec(problem.source, scope)
    for name, _, value in (override.partition("=") for override in overrides):
        assert scope[name] == ast.literal_eval(value)


def test_a_constant_in_terms_of_one_that_is_set_follows_it(write: Write) -> None:
    scope: dict[str, object] = {}
    exec(load(write("A, B = 2, 3\nC = A * B" + DEFINITIONS), ["A=5"]).source, scope)
    assert (scope["A"], scope["B"], scope["C"]) == (5, 3, 15)


@pytest.mark.parametrize("name", ["A", "REST"])
def test_names_unpacked_with_a_star_cannot_be_set(write: Write, name: str) -> None:
    with pytest.raises(ProblemError) as error:
        load(write("N = 1\nA, *REST = 1, 2, 3" + DEFINITIONS), [f"{name}=4"])
    assert f"line 2 unpacks {name} with a star, so it cannot be set" in one_line(error)


LITERALS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.tuples(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=LITERALS.filter(lambda value: "inf" not in repr(value)), before=LITERALS)
def test_a_set_value_is_the_value(write: Write, value: object, before: object) -> None:
    text = f"A = 1; N = {ascii(before).replace('inf', '1e999')}; B = 2  # end{DEFINITIONS}"
    scope: dict[str, object] = {}
    problem = load(write(text), [f"N={value!r}"])
    exec(problem.source, scope)
    assert scope["N"] == value
    assert problem.source.startswith("A = 1; N = ")
    assert problem.source.endswith("; B = 2  # end" + DEFINITIONS)
