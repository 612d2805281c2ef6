"""`POST /evaluate`: the verdict in the words of reward servers, and one clear line for each wrong field."""

from __future__ import annotations

import json
import re
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from tests.service.conftest import PROBLEM, RIGHT, WRONG
from tests.service.test_evaluations import busy

if TYPE_CHECKING:
    from pathlib import Path

    from tests.web.conftest import Served

REQUEST: dict[str, Any] = {"task_id": "one", "reference_code": PROBLEM, "kernel_code": RIGHT}


def test_a_program_for_a_problem_of_the_server(open_server: Served) -> None:
    asked = {**REQUEST, "entry_point": "Model", "backend": "null", "num_correct_trials": 5, "num_perf_trials": 100}
    said = open_server.ask("/evaluate", asked).document
    assert (said["task_id"], said["compiled"], said["correctness"], said["state"]) == ("one", True, True, "correct")
    assert said["reference"] == "problem of the server"
    timing = said["evaluation"]
    assert said["speedup"] == timing["speedup"]["eager"]["median"]
    assert said["speedup_low"] == timing["speedup"]["eager"]["low"]
    assert said["reference_runtime"] == pytest.approx(timing["baselines"]["eager"]["seconds"] * 1e3)
    assert said["kernel_runtime"] == pytest.approx(timing["seconds"]["median"] * 1e3)
    assert said["reward"] == (0.0 if "doubt" in said else said["speedup_low"])
    assert [note.partition(":")[0] for note in said["notes"]] == ["num_correct_trials", "num_perf_trials"]

    wrong = open_server.ask("/evaluate", {**REQUEST, "kernel_code": WRONG}).document
    assert (wrong["compiled"], wrong["correctness"], wrong["state"], wrong["reward"]) == (True, False, "mismatch", 0.0)
    assert wrong["speedup"] is wrong["reference_runtime"] is wrong["kernel_runtime"] is None
    assert "speedup_low" not in wrong
    no_python = open_server.ask("/evaluate", {**REQUEST, "kernel_code": "def ("}).document
    assert (no_python["compiled"], no_python["correctness"]) == (False, False)


@pytest.mark.slow
def test_the_example_of_the_docs_is_judged_in_a_cell(open_server: Served, root: Path) -> None:
    page = (root / "docs" / "dashboard.md").read_text()
    example = next(block for block in re.findall(r"```sh\n(.*?)```", page, re.DOTALL) if block.startswith("curl"))
    command = example.replace("http://127.0.0.1:8765", open_server.url)
    said = json.loads(subprocess.run(["bash", "-c", command], capture_output=True, check=True, timeout=240).stdout)
    assert (said["task_id"], said["correctness"], said["reference"]) == ("relu-1", True, "foreign")
    broken = PROBLEM.replace("return [torch.randn(16, 32)]", "raise ValueError('<b>no</b>')")
    refused = open_server.ask("/evaluate", {**REQUEST, "reference_code": broken})
    assert refused.status == 422
    assert "<b>no</b>" in refused.document["fields"]["reference_code"]
    assert refused.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    ("change", "field", "said"),
    [
        ({"task_id": None}, "task_id", "must be text"),
        ({"task_id": "x" * 201}, "task_id", "must have a length of at most 200, not 'xxx"),
        ({"kernel_code": ""}, "kernel_code", "must have a length of at least 1, not ''"),
        ({"kernel_code": " \n"}, "kernel_code", "the source is empty"),
        ({"kernel_code": "\ud800"}, "kernel_code", "is not valid Unicode"),
        ({"kernel_code": "x" * (2**20 + 1)}, "kernel_code", "must have a length of at most 1048576"),
        ({"reference_code": "x = 1"}, "reference_code", "reference_code does not define Model or"),
        ({"entry_point": "Net"}, "entry_point", "must be 'Model' or 'ModelNew', not 'Net'"),
        ({"backend": "tpu"}, "backend", "this server judges programs for null"),
        ({"num_correct_trials": 0}, "num_correct_trials", "must be at least 1, not 0"),
        ({"num_perf_trials": "5"}, "num_perf_trials", "must be a whole number, not '5'"),
        ({"unsafe": True}, "unsafe", "is not a field of this request"),
        ({"platform_dirs": ["/tmp"]}, "platform_dirs", "is not a field of this request"),
    ],
)
def test_each_wrong_field_is_said(open_server: Served, change: dict[str, Any], field: str, said: str) -> None:
    refused = open_server.ask("/evaluate", REQUEST | change)
    assert refused.status == 422
    assert refused.document["error"] == "the request has wrong fields"
    assert refused.document["fields"][field].startswith(said)


def test_missing_fields_are_all_said_at_once(open_server: Served) -> None:
    refused = open_server.ask("/evaluate", {"task_id": "one"})
    assert refused.document["fields"] == {"reference_code": "is missing", "kernel_code": "is missing"}
    assert open_server.ask("/evaluate").status == 405


def test_one_request_too_many_is_told_to_come_later(open_server: Served) -> None:
    service = open_server.dashboard.service
    with busy(service), service._place():
        refused = open_server.ask("/evaluate", REQUEST)
        health = open_server.ask("/health").document
    assert (refused.status, refused.headers["retry-after"]) == (429, "5")
    assert "busy: 1 requests wait already" in refused.document["error"]
    assert (health["requests"], health["most_requests"]) == (2, 2)
    assert open_server.ask("/health").document["requests"] == 0
