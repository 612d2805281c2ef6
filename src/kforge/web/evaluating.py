"""`POST /evaluate`: judges a program for a reference, as reward servers do, and `GET /health`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from kforge import __version__, documents
from kforge.errors import InputError, ProblemError
from kforge.service.evaluations import LARGEST_SOURCE
from kforge.service.foreign.references import foreign_problem
from kforge.service.rewards import reward

if TYPE_CHECKING:
    from kforge.records import Evaluation, Problem
    from kforge.service.evaluations import EvaluationService

MILLISECONDS = 1e3
"""Milliseconds in a second: the API gives runtimes in milliseconds, as other reward servers do."""
NOT_COMPILED = ("generation_failure", "compilation_failure")
"""States of programs that were not built."""
MOST_TRIALS = 10_000
"""Largest number of trials that a request may name. A larger number is a mistake of the client."""

Code = Annotated[str, Field(min_length=1, max_length=LARGEST_SOURCE)]
Trials = Annotated[int, Field(ge=1, le=MOST_TRIALS)]


class EvaluateRequest(BaseModel):
    """A program and the reference that it replaces."""

    model_config = ConfigDict(extra="forbid", strict=True)

    task_id: Annotated[str, Field(min_length=1, max_length=200)]
    """The client's name for the request, which the answer repeats."""
    reference_code: Code
    """A Python file with Model, get_inputs and get_init_inputs. It is foreign: it runs in a cell of its own."""
    kernel_code: Code
    """A Python file with ModelNew."""
    entry_point: Literal["Model", "ModelNew"] = "Model"
    """Name of the reference's class; the program's class is always ModelNew."""
    backend: Annotated[str, Field(max_length=100)] = ""
    """The platform that the program is for, which must be the server's. Empty means the server's platform."""
    num_correct_trials: Trials | None = None
    """Wanted number of compared cases. The judge chooses its own, and the answer's notes say so."""
    num_perf_trials: Trials | None = None
    """Wanted number of timed runs. The judge times until the result is decided, and the answer's notes say so."""


class BadField(InputError):
    """A field of a request that has a wrong value."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(field, message)
        self.field = field

    def __str__(self) -> str:
        return str(self.args[1])


class Evaluating:
    """The routes of the evaluation API."""

    def __init__(self, service: EvaluationService) -> None:
        self.service = service

    def router(self) -> APIRouter:
        made = APIRouter()
        made.add_api_route("/evaluate", self.evaluate, methods=["POST"], response_model=None)
        made.add_api_route("/health", self.health, response_model=None)
        return made

    def evaluate(self, request: EvaluateRequest) -> dict[str, Any]:
        return judge(self.service, request)

    def health(self) -> dict[str, Any]:
        service = self.service
        return {
            "status": "healthy", "version": __version__, "platform": service.platform.name,
            "requests": service.requests, "most_requests": service.options.waiting + 1,
        }  # fmt: skip


def judge(service: EvaluationService, request: EvaluateRequest) -> dict[str, Any]:
    """Return the answer to a request. Raises BadField for a wrong field, ServiceBusy where too many requests wait, and
    EvaluationError where the evaluator fails or takes too long."""
    if request.backend not in ("", service.platform.name):
        raise BadField("backend", f"this server judges programs for {service.platform.name}")
    try:
        service.candidate(request.kernel_code)
    except InputError as error:
        raise BadField("kernel_code", str(error)) from error
    name = service.known(request.reference_code)
    if name is not None:
        problem, evaluation = service.problem(name), service.evaluate(name, request.kernel_code)
    else:
        problem, evaluation = _judge_foreign(service, request)
    return answer(service, request, problem, evaluation, is_known=name is not None)


def _judge_foreign(service: EvaluationService, request: EvaluateRequest) -> tuple[Problem, Evaluation]:
    try:
        problem = foreign_problem("reference_code", request.reference_code)
        return problem, service.evaluate_foreign(problem, request.kernel_code)
    except ProblemError as error:
        raise BadField("reference_code", str(error)) from error


def answer(
    service: EvaluationService, request: EvaluateRequest, problem: Problem, evaluation: Evaluation, *, is_known: bool
) -> dict[str, Any]:
    """Return an evaluation in the format of other reward servers, with kforge's own verdict beside it.

    `speedup` and the runtimes are null where nothing was measured. `is_known`: the reference is a problem of the
    server.
    """
    correct = evaluation.correct
    timing = correct.timing if correct is not None else None
    eager = timing.comparisons[0] if timing is not None else None
    value, why = reward(problem, service.candidate(request.kernel_code), evaluation)
    document = documents.evaluation(evaluation)
    return {
        "task_id": request.task_id,
        "compiled": evaluation.verdict.state not in NOT_COMPILED,
        "correctness": correct is not None,
        "speedup": eager.speedup.median if eager is not None else None,
        "reference_runtime": eager.seconds * MILLISECONDS if eager is not None else None,
        "kernel_runtime": timing.seconds.median * MILLISECONDS if timing is not None else None,
        **({"speedup_low": eager.speedup.low, "speedup_high": eager.speedup.high} if eager is not None else {}),
        **({"finding": eager.finding} if eager is not None else {}),
        **({"doubt": eager.doubt} if eager is not None and eager.doubt is not None else {}),
        "reward": value,
        "reward_reason": why,
        "state": document["state"],
        **{name: document[name] for name in ("reason", "log", "untimed") if document.get(name)},
        "labels": document["labels"],
        "reference": "problem of the server" if is_known else "foreign",
        "notes": _notes(request, evaluation),
        "evaluation": document,
    }


def _notes(request: EvaluateRequest, evaluation: Evaluation) -> list[str]:
    """Return what the judge did instead of what the request asked for."""
    correct = evaluation.correct
    notes = []
    if request.num_correct_trials is not None and correct is not None:
        notes.append(f"num_correct_trials: the judge chooses its cases itself, and compared {correct.cases}")
    if request.num_perf_trials is not None and correct is not None and correct.timing is not None:
        pairs = correct.timing.pairs
        notes.append(f"num_perf_trials: the judge times until the result is decided, here {pairs} pairs of blocks")
    return notes
