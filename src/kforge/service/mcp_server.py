"""An MCP server: the tools by which a coding agent drives kforge. Needs the extra `mcp`.

Every tool answers with a JSON document, or with an error of one line. The SDK runs the tools in threads;
`EvaluationService` lets one of them use the device at a time.
"""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any

from kforge import __version__, documents, platforms
from kforge.errors import InputError, KforgeError, NothingLeft
from kforge.records import Recommendation, as_json
from kforge.service.submissions import Submissions

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mcp.server import MCPServer

    from kforge.service.evaluations import EvaluationService

CLIENT = "mcp"
"""Name of the model in the runs of this server."""
LOOPBACK = ("127.0.0.1", "::1", "localhost")
"""Addresses at which a server may listen. For these the SDK refuses requests of web pages (DNS rebinding)."""
LARGEST_REQUEST = 4 * 2**20
"""Most bytes of an HTTP request."""
INSTRUCTIONS = """\
kforge judges kernels: programs that replace a PyTorch module. Ask list_problems for the problems and task_prompt for a
problem's task. Send whole Python files with a class ModelNew. evaluate gives the verdict, profile says where a correct
program's time goes, recommend gives one thing to change. submit keeps a program as an attempt of a run; with
final=true it ends the run, and its best program is evaluated again. history lists what was submitted."""


def tools(service: EvaluationService, submissions: Submissions) -> list[Callable[..., dict[str, Any]]]:
    """Return the tools of a server. Their signatures are the schemas, and their docstrings the descriptions."""

    def list_problems(contains: str = "") -> dict[str, Any]:
        """List the problems by name. `contains`: only names that contain this text."""
        return {"problems": [name for name in service.problems if contains in name]}

    def list_platforms() -> dict[str, Any]:
        """List the platforms, whether each can be used here, and which one this server judges for."""
        extra = (*service.settings.platform_dirs, *service.options.platform_dirs)
        found = [documents.platform(each) for each in platforms.available(extra)]
        return {"platform": service.platform.name, "platforms": found}

    def task_prompt(problem: str) -> dict[str, Any]:
        """Return the task: the module to replace, its inputs, the rules of the platform and an example."""
        return {"problem": problem, "platform": service.platform.name, "prompt": service.task_prompt(problem)}

    def evaluate(problem: str, source: str) -> dict[str, Any]:
        """Verify and time a program. Nothing is recorded."""
        return documents.evaluation(service.evaluate(problem, source))

    def profile(problem: str, source: str) -> dict[str, Any]:
        """Return where the time of a correct program goes."""
        return dict(as_json(service.profile(problem, source)))

    def recommend(problem: str, source: str) -> dict[str, Any]:
        """Return one recommendation for a correct program; or, where this server has no model for that, the prompt of
        the performance analysis agent, for you to answer; or why nothing is left worth trying."""
        try:
            found = service.recommend(problem, source)
        except NothingLeft as end:
            return {"nothing_left": str(end)}
        return {"recommendation": as_json(found)} if isinstance(found, Recommendation) else {"prompt": found}

    def submit(problem: str, source: str, final: bool = False) -> dict[str, Any]:
        """Verify and time a program under the sanitizers too, and keep it as an attempt of a run. `final`: end the run;
        its best program is evaluated again and reported only if it stays correct."""
        run, attempt = submissions.submit(problem, source)
        if final:
            submissions.finish(problem)
            return documents.run(run, run.outcome())
        best = run.best()
        is_best = {"best": best.index} if best is not None else {}
        return {"run": str(run.path), **documents.attempt(attempt), **is_best}

    def history(problem: str) -> dict[str, Any]:
        """Return the open run of a problem with all its attempts."""
        return submissions.history(problem)

    return [list_problems, list_platforms, task_prompt, evaluate, profile, recommend, submit, history]


def server(service: EvaluationService, root: Path) -> MCPServer[Any]:
    """Return an MCP server with the tools. `root`: the folder of runs. Raises InputError without the extra."""
    check_installed()
    from mcp.server import MCPServer

    made: MCPServer[Any] = MCPServer(
        "kforge", title="kforge", instructions=INSTRUCTIONS, version=__version__, log_level="WARNING"
    )
    for tool in tools(service, Submissions(service, root, CLIENT)):
        made.tool()(_told_in_one_line(tool))
    return made


def serve(
    service: EvaluationService, root: Path, *, address: tuple[str, int] | None, ready: Callable[[str], None]
) -> None:
    """Serve until the client leaves or Ctrl-C: on standard input and output, or by HTTP at an address of this machine.

    `ready` gets the URL before the first request is taken. Raises InputError for an address that others can reach.
    """
    made = server(service, root)
    if address is None:
        made.run("stdio")
        return
    host, port = address
    must_be_loopback(host)
    ready(f"{url_of(host, port)}/mcp")
    made.run("streamable-http", host=host, port=port, max_request_body_size=LARGEST_REQUEST)


def check_installed() -> None:
    """Raise InputError where the extra `mcp` is not installed."""
    try:
        import mcp.server  # noqa: F401
    except ImportError:
        raise InputError("an MCP server needs the package mcp: pip install 'kforge[mcp]'") from None


def must_be_loopback(host: str) -> None:
    """Raise InputError for an address that other machines can reach: a server of kforge has no login."""
    if host not in LOOPBACK:
        raise InputError(
            f"--host {host}: only this machine may connect, because there is no login; use an SSH tunnel to it"
        )


def url_of(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _told_in_one_line(tool: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """Return the tool with kforge's errors turned into the SDK's ToolError, which reach the client as one line."""
    from mcp.server.mcpserver.exceptions import ToolError

    @functools.wraps(tool)
    def told(**arguments: Any) -> dict[str, Any]:
        try:
            return tool(**arguments)
        except KforgeError as error:
            raise ToolError(" ".join(str(error).split())) from error

    told.__signature__ = inspect.signature(tool, eval_str=True)  # type: ignore[attr-defined]
    return told
