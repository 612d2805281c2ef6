"""`kforge openenv` with OpenEnv's own client."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from openenv.core import GenericEnvClient
from tests.service.conftest import RIGHT, UNCHANGED, WRONG
from tests.service.test_mcp import http_server
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

if TYPE_CHECKING:
    from pathlib import Path


def talk(url: str, *messages: str, **options: Any) -> list[dict[str, Any]]:
    """The data of the answers to raw messages."""
    with connect(url.replace("http", "ws") + "/ws", **options) as wire:
        answers = []
        for message in messages:
            wire.send(message)
            answers.append(json.loads(wire.recv())["data"])
        return answers


@pytest.mark.slow
def test_a_trainer(problems: Path, clean_environment: dict[str, str], tmp_path: Path) -> None:
    command = [
        "-m", "kforge", "openenv", "--problems", str(problems), "-p", "null", "--no-compile-baseline", "--steps", "3",
    ]  # fmt: skip
    with http_server(command, clean_environment, tmp_path) as url:
        with GenericEnvClient(base_url=url).sync() as env:
            begun = env.reset(problem="tiny", episode_id="one")
            assert (begun.done, begun.observation["problem"]) == (False, "tiny")
            assert "class Model(nn.Module)" in begun.observation["prompt"]

            wrong = env.step({"source": WRONG})
            assert (wrong.reward, wrong.observation["state"], wrong.done) == (0.0, "mismatch", False)
            right = env.step({"source": RIGHT})
            assert right.observation["state"] == "correct"
            doubts = right.observation.get("doubts", {})
            low = right.observation["speedup"]["eager"]["low"]
            assert right.reward == (0.0 if "eager" in doubts else low)
            copied = env.step({"source": UNCHANGED})
            assert (copied.reward, copied.observation["reward_reason"]) == (0.0, "the original module, unchanged")
            assert copied.done
            state = env.state()
            assert (state["episode_id"], state["step_count"], state["done"]) == ("one", 3, True)
            with pytest.raises(RuntimeError, match="had its 3 steps"):
                env.step({"source": RIGHT})
            assert env.reset(seed=1).observation["problem"] == "tiny"
            empty = env.step({"source": "", "metadata": {"any": 1}})
            assert (empty.reward, empty.observation["state"]) == (0.0, "generation_failure")

        said = talk(
            url, "{", "[]", '{"type": "nothing"}', '{"type": "step", "data": {"source": "x"}}',
            '{"type": "step", "data": {"code": "x"}}', '{"type": "reset", "data": {"problem": "../tiny"}}',
            '{"type": "reset", "data": {"options": "x"}}', '{"type": "step", "data": {"source": "\\ud800"}}',
        )  # fmt: skip
        assert [each["code"] for each in said] == [
            "INVALID_JSON", "INVALID_JSON", "UNKNOWN_TYPE", "EXECUTION_ERROR", "VALIDATION_ERROR", "EXECUTION_ERROR",
            "EXECUTION_ERROR", "EXECUTION_ERROR",
        ]  # fmt: skip
        assert all("\n" not in each["message"] for each in said)
        with pytest.raises(InvalidStatus):
            talk(url, '{"type": "state"}', origin="http://web.example")
