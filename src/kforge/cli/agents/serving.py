"""`mcp` and `openenv`: servers for coding agents and for trainers."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from kforge import settings
from kforge.cli.output import documents
from kforge.cli.output.lines import note, say
from kforge.service.evaluations import EvaluationService, ServiceOptions
from kforge.smith import NAME as BUILTIN

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kforge.cli.options import Rules, Serving, Target


def mcp(
    target: Target, rules: Rules, limits: Serving, *, analyst: str, http: bool, root: Path | None, json: bool
) -> int:
    """Serve coding agents until Ctrl-C, or until the agent closes standard input."""
    from kforge.service import mcp_server

    mcp_server.check_installed()
    chosen = settings.load(memory=rules.memory)
    place = root or chosen.runs
    address = (limits.host, limits.port) if http else None
    if address is not None:
        mcp_server.must_be_loopback(limits.host)
    with suppress(KeyboardInterrupt), _service(chosen, target, rules, limits, analyst, place) as service:
        if address is None:
            note(f"{len(service.problems)} problems on {service.platform.name}; MCP on standard input and output")
        mcp_server.serve(service, place, address=address, ready=_ready(service, json=json))
    return 0


def openenv(target: Target, rules: Rules, limits: Serving, *, steps: int, json: bool) -> int:
    """Serve trainers until Ctrl-C."""
    from kforge.service import mcp_server, openenv_server

    openenv_server.check_installed()
    mcp_server.must_be_loopback(limits.host)
    chosen = settings.load(memory=rules.memory)
    with suppress(KeyboardInterrupt), _service(chosen, target, rules, limits, BUILTIN, chosen.runs) as service:
        address = (limits.host, limits.port)
        openenv_server.serve(service, steps, address=address, ready=_ready(service, json=json))
    return 0


def _service(
    chosen: settings.Settings, target: Target, rules: Rules, limits: Serving, analyst: str, root: Path
) -> EvaluationService:
    options = ServiceOptions(
        problems=tuple(limits.problems or ("core",)),
        platform=target.platform,
        platform_dirs=tuple(target.folders),
        policy=rules.policy,
        analyst=analyst or BUILTIN,
        seconds=limits.seconds,
        waiting=limits.waiting,
    )
    return EvaluationService(options, chosen, private=[root])


def _ready(service: EvaluationService, *, json: bool) -> Callable[[str], None]:
    def tell(url: str) -> None:
        if json:
            documents.print_json({"url": url, "platform": service.platform.name, "problems": len(service.problems)})
        else:
            say(f"{len(service.problems)} problems on {service.platform.name} at {url}; Ctrl-C ends it")

    return tell
