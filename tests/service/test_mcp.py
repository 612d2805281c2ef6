"""`kforge mcp` with the official client, on standard input and output and by HTTP."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters
from tests.service.conftest import RIGHT, WRONG

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import RunKforge

TOOLS = {
    "list_problems", "list_platforms", "task_prompt", "evaluate", "profile", "recommend", "submit", "history",
}  # fmt: skip


def arguments(problems: Path, *more: str) -> list[str]:
    return ["-m", "kforge", "mcp", "--problems", str(problems), "-p", "null", "--no-compile-baseline", *more]


async def call(client: Client, tool: str, **given: Any) -> dict[str, Any]:
    """The document that a tool answers with."""
    result = await client.call_tool(tool, given)
    assert not result.is_error, result.content
    assert isinstance(result.structured_content, dict)
    return result.structured_content


async def refusal(client: Client, tool: str, **given: Any) -> str:
    """What a tool says to bad input."""
    result = await client.call_tool(tool, given)
    assert result.is_error
    (content,) = result.content
    return str(content.text)


@pytest.mark.slow
def test_a_coding_agent_by_standard_input_and_output(
    problems: Path, clean_environment: dict[str, str], tmp_path: Path, kforge_in_process: RunKforge
) -> None:
    runs = tmp_path / "runs"
    command = StdioServerParameters(
        command=sys.executable, args=arguments(problems, "-o", str(runs)), env=clean_environment, cwd=str(tmp_path)
    )

    async def work() -> dict[str, Any]:
        async with Client(command) as client:
            listed = await client.list_tools()
            assert {tool.name for tool in listed.tools} == TOOLS
            assert (await call(client, "list_problems"))["problems"] == ["tiny"]
            assert (await call(client, "list_problems", contains="nothing"))["problems"] == []
            platforms = await call(client, "list_platforms")
            assert platforms["platform"] == "null"
            assert "null" in {each["name"] for each in platforms["platforms"] if each["available"]}
            prompt = (await call(client, "task_prompt", problem="tiny"))["prompt"]
            assert "class Model(nn.Module)" in prompt
            assert "ModelNew" in prompt

            wrong = await call(client, "evaluate", problem="tiny", source=WRONG)
            assert wrong["state"] == "mismatch"
            right = await call(client, "evaluate", problem="tiny", source=RIGHT)
            assert (right["state"], "eager" in right["speedup"]) == ("correct", True)
            profile = await call(client, "profile", problem="tiny", source=RIGHT)
            assert profile["hot_spots"]
            assert "correct program" in await refusal(client, "profile", problem="tiny", source=WRONG)
            advice = await call(client, "recommend", problem="tiny", source=RIGHT)
            assert "recommendation" in advice["prompt"], "the built-in analyst knows only programs of its own"

            assert (await call(client, "history", problem="tiny"))["attempts"] == []
            first = await call(client, "submit", problem="tiny", source=WRONG)
            assert (first["index"], first["state"]) == (0, "mismatch")
            assert "best" not in first
            last = await call(client, "submit", problem="tiny", source=RIGHT, final=True)
            assert (last["stopped"], last["best"]["attempt"]) == ("ended by the client", 1)
            assert len(last["replication"]) == 3

            for bad, said in (
                ({"problem": "../tiny", "source": RIGHT}, "there is no problem '../tiny'"),
                ({"problem": "tiny\n\u202e", "source": RIGHT}, "there is no problem"),
                ({"problem": "tiny", "source": " \n"}, "the source is empty"),
                ({"problem": "tiny", "source": "x" * (2**20 + 1)}, "at most 1048576 are read"),
            ):
                message = await refusal(client, "evaluate", **bad)
                assert said in message
                assert "\n" not in message
            assert await refusal(client, "evaluate", problem="tiny")
            assert await refusal(client, "no_such_tool")
            return {"run": last["run"], "right": right}

    ended = anyio.run(work)

    # the command line says the same, and knows the run
    (tmp_path / "right.py").write_text(RIGHT)
    options = ("-p", "null", "--no-compile-baseline", "--json")
    by_hand = json.loads(kforge_in_process("eval", problems / "tiny.py", tmp_path / "right.py", *options).stdout)
    assert by_hand.keys() == ended["right"].keys()
    assert (by_hand["state"], by_hand["receipt"]["candidate"]) == ("correct", ended["right"]["receipt"]["candidate"])
    shown = json.loads(kforge_in_process("show", ended["run"], "--json").stdout)
    assert (shown["status"], shown["model"], len(shown["attempts"])) == ("finished", "mcp", 2)
    assert "signed" not in shown, "the user made all of it"


@contextmanager
def http_server(command: list[str], environment: dict[str, str], cwd: Path) -> Iterator[str]:
    """A server in its own process; its URL. It is ready when it takes connections."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with subprocess.Popen(
        [sys.executable, *command, "--port", str(port), "--json"], env=environment, cwd=cwd, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        try:
            said = ""
            while not said.rstrip().endswith("}"):
                line = process.stdout.readline()
                assert line, "the server ended"
                said += line
            while True:
                assert process.poll() is None
                try:
                    socket.create_connection(("127.0.0.1", port), timeout=5).close()
                    break
                except OSError:
                    continue
            yield json.loads(said)["url"]
        finally:
            process.terminate()
            process.wait()


def test_a_coding_agent_by_http(problems: Path, clean_environment: dict[str, str], tmp_path: Path) -> None:
    async def limited(url: str) -> None:
        async with Client(url) as client:
            hanging = RIGHT.replace("return (", "import time; time.sleep(30); return (")
            said = await refusal(client, "evaluate", problem="tiny", source=hanging)
            assert said.endswith("stopped: the request took longer than 6 s")
            assert (await call(client, "list_problems"))["problems"] == ["tiny"]

    with http_server(arguments(problems, "--http", "--seconds", "6"), clean_environment, tmp_path) as url:
        anyio.run(limited, url)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--http", "--host", "0.0.0.0"), "only this machine may connect"),
        (("--http", "--host", "kforge.example"), "only this machine may connect"),
        (("--http", "--host", "127.0.0.2"), "only this machine may connect"),
        (("--json",), "--json is for --http"),
        (("--problems", "no/such/folder"), "no/such/folder"),
        (("-p", "nothing"), "nothing"),
    ],
)
def test_a_server_that_cannot_start_says_why_in_one_line(
    kforge_in_process: RunKforge, given: tuple[str, ...], said: str
) -> None:
    ran = kforge_in_process("mcp", *given)
    assert (ran.status, ran.stdout, ran.stderr.count("\n")) == (2, "", 1), ran
    assert said in ran.stderr


@pytest.mark.parametrize(("command", "module"), [("mcp", "mcp.server"), ("openenv", "uvicorn")])
def test_a_server_without_its_extra_names_the_extra(
    kforge_in_process: RunKforge, monkeypatch: pytest.MonkeyPatch, command: str, module: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    ran = kforge_in_process(command)
    assert (ran.status, ran.stdout, ran.stderr.count("\n")) == (2, "", 1), ran
    assert f"pip install 'kforge[{command}]'" in ran.stderr
