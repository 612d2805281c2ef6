"""Writes tests/slow_tests.txt: the tests that `make test` leaves to `make test-ci`.

    make test-ci PYTEST_ARGS=--durations=600 | tee test-ci.log
    python benchmarks/slow_tests.py test-ci.log

A test is slow if its own call took at least SECONDS. The time of its fixtures is not counted, because without the test
other tests would have to make them. Measure on a quiet machine.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

LIST = Path(__file__).resolve().parent.parent / "tests" / "slow_tests.txt"
SECONDS = 1.5
"""Seconds of a test's call from which on it is slow. One test in eighteen is; together these take two thirds of the
time."""
CALL = re.compile(r"^([\d.]+)s call +(\S.*)$", re.MULTILINE)


def slow_tests(report: str) -> list[str]:
    """Return the names of the slow tests in alphabetical order, from the output of pytest with `--durations`."""
    return sorted(name for seconds, name in CALL.findall(report) if float(seconds) >= SECONDS)


def main(log: str) -> int:
    names = slow_tests(Path(log).read_text(encoding="utf-8"))
    if not names:
        print(f"{log} has no durations of tests: run pytest with --durations=600", file=sys.stderr)
        return 2
    LIST.write_text("".join(f"{name}\n" for name in names), encoding="utf-8")
    print(f"{len(names)} slow tests in {LIST.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
