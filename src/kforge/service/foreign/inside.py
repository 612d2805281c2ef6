"""The program in a cell: judges programs for one foreign reference. Requests and answers are lines of JSON.

The reference runs here with the rights of the cell, so it can forge every answer. An answer is only as trustworthy as
the client's own reference. It says nothing about any other problem, and no other reference runs in the same cell.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from kforge import platforms
from kforge.errors import EvaluationError, InputError
from kforge.evaluation import Judge
from kforge.evaluation.requests import CandidateRequest
from kforge.records import Evaluation, EvaluationLimits, EvaluationPolicy, Record

if TYPE_CHECKING:
    from typing import TextIO


class CellSetup(Record):
    """The first line that a cell reads: how it judges programs."""

    platform: str
    """The platform's folder."""
    policy: EvaluationPolicy
    limits: EvaluationLimits
    environment: dict[str, str]
    """The variables that compilers and runtimes need."""


class CellAnswer(Record):
    """A cell's answer to one request: an evaluation, bad input, or a failure of the evaluator."""

    evaluation: Evaluation | None = None
    bad_input: str | None = None
    failure: str | None = None


def serve(requests: TextIO, answers: TextIO) -> None:
    """Read the setup, then answer each request line with one line, until EOF."""
    setup = CellSetup.from_json(requests.readline())
    platform = platforms.load_folder(Path(setup.platform))
    cache = Path.cwd() / "cache"
    with Judge(platform, setup.policy, cache=cache, environment=setup.environment, limits=setup.limits) as judge:
        judge.warm()
        for line in requests:
            request = CandidateRequest.from_json(line)
            try:
                answer = CellAnswer(evaluation=judge.evaluate(request.problem, request.candidate))
            except InputError as error:
                answer = CellAnswer(bad_input=str(error))
            except EvaluationError as error:
                answer = CellAnswer(failure=str(error))
            answers.write(answer.to_json() + "\n")
            answers.flush()


if __name__ == "__main__":
    serve(sys.stdin, sys.stdout)
