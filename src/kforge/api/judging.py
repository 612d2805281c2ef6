"""`kforge.evaluate` and `kforge.profile`: judge and profile one program for a problem file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from kforge import problems, settings
from kforge.api.arguments import check_options, known_keywords
from kforge.api.progress import telling
from kforge.errors import InputError
from kforge.problems.source import read_source
from kforge.records import Candidate, EvaluationPolicy
from kforge.session import open_judge, usable_platform

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kforge.records import Evaluation, Problem, Profile

LONGEST_NAME = 60
"""Most characters of a file's name that a message shows."""


@known_keywords
def evaluate(
    problem: str | Path,
    program: str | Path,
    *,
    platform: str = "",
    precision: str = "strict",
    track: str = "library",
    compile_baseline: bool = True,
    overrides: Sequence[str] = (),
    progress: Callable[[str], None] | bool | None = False,
) -> Evaluation:
    """Verify and time a program, as the command `kforge eval` does, and return the verdict with its receipt.

    `problem` is a file with `Model`, `get_inputs` and `get_init_inputs`; `program` is a file with `ModelNew`, or its
    source text: a string with a line break is source text, any other one is a file's name. `overrides` are
    `NAME=VALUE` for constants of the problem. The program runs in a sandbox. A wrong program is no error: the
    evaluation's `verdict` says what is wrong, and `correct` is None.

    Raises InputError if a file, an argument or the platform cannot be used, and EvaluationError if the evaluator fails.
    """
    check_options({"precision": precision, "track": track})
    policy = EvaluationPolicy(precision=precision, track=track, compile_baseline=compile_baseline)
    chosen = settings.load()
    found = usable_platform(platform, chosen)
    posed, candidate = _loaded(problem, program, found.name, overrides)
    with telling(progress) as tell, open_judge(found, chosen, policy) as judge:
        judge.on_stage = tell
        return judge.evaluate(posed, candidate)


@known_keywords
def profile(
    problem: str | Path,
    program: str | Path,
    *,
    platform: str = "",
    overrides: Sequence[str] = (),
    progress: Callable[[str], None] | bool | None = False,
) -> Profile:
    """Profile a program, as the command `kforge profile` does. `digest_text` of the result is the page for people.

    The arguments are those of `evaluate`. Raises InputError as it does, and EvaluationError if the program fails or the
    evaluator does.
    """
    chosen = settings.load()
    found = usable_platform(platform, chosen)
    posed, candidate = _loaded(problem, program, found.name, overrides)
    with telling(progress) as tell, open_judge(found, chosen) as judge:
        judge.on_stage = tell
        return judge.profile(posed, candidate)


def _loaded(
    problem: str | Path, program: str | Path, platform: str, overrides: Sequence[str]
) -> tuple[Problem, Candidate]:
    for name, value in (("problem", problem), ("program", program)):
        if not isinstance(value, str | Path):
            raise InputError(f"{name} must be a file's name, not {type(value).__name__}")
    if isinstance(problem, str) and not _is_name(problem):
        raise InputError("problem must be the name of a file, not source text; write the text into a file")
    source = _source(program)
    return problems.load(Path(problem), list(overrides)), Candidate(source=source, platform=platform)


def _source(program: str | Path) -> str:
    """Return the source of a program. A string with a line break is the source itself, any other one a file's name.

    Raises InputError if there is no such file.
    """
    if isinstance(program, Path):
        return read_source(program)
    if _is_name(program):
        if os.path.exists(program):  # noqa: PTH110 - unlike Path.exists, it takes any string
            return read_source(Path(program))
        shown = program if len(program) <= LONGEST_NAME else f"{program[:LONGEST_NAME]}…"
        raise InputError(
            f"program: no such file: {shown!r}; a string without a line break is a file's name, and one with a line "
            "break is source text"
        )
    return program


def _is_name(text: str) -> bool:
    return "\n" not in text
