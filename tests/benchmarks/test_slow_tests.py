"""The list of slow tests: how it is read from pytest's report, and that it names tests of today."""

from __future__ import annotations

from benchmarks import slow_tests


def test_only_calls_that_take_long_are_slow() -> None:
    report = """
12.50s setup    tests/a.py::test_made_by_a_fixture
9.10s call     tests/b.py::test_long[with spaces, 1]
3.00s call     tests/a.py::test_long
1.49s call     tests/a.py::test_short
"""
    assert slow_tests.slow_tests(report) == ["tests/a.py::test_long", "tests/b.py::test_long[with spaces, 1]"]


def test_a_log_without_durations_is_told(tmp_path, capsys) -> None:
    log = tmp_path / "test.log"
    log.write_text("3 passed in 1.0s")
    assert slow_tests.main(str(log)) == 2
    assert "--durations" in capsys.readouterr().err


def test_the_list_names_tests_that_exist() -> None:
    gone = []
    for line in slow_tests.LIST.read_text(encoding="utf-8").splitlines():
        path, _, name = line.partition("::")
        file = slow_tests.LIST.parent.parent / path
        if not file.exists() or f"def {name.partition('[')[0].rpartition('::')[2]}(" not in file.read_text(
            encoding="utf-8"
        ):
            gone.append(line)
    assert gone == []
