"""`serve`: runs the dashboard until Ctrl-C."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from kforge import settings
from kforge.cli.output import documents
from kforge.cli.output.lines import note, say
from kforge.service.evaluations import EvaluationService, ServiceOptions
from kforge.service.mcp_server import url_of
from kforge.smith import NAME as BUILTIN

if TYPE_CHECKING:
    from pathlib import Path

    from kforge.cli.options import Rules, Target
    from kforge.cli.serving.commands import DashboardOptions
    from kforge.web.access import Access


def serve(target: Target, rules: Rules, options: DashboardOptions, *, root: Path | None, json: bool) -> int:
    """Serve the dashboard until Ctrl-C, and return the exit status. Raises InputError if the extra `web` is not
    installed, if the token is invalid, or if the address is in use."""
    from kforge.web import server

    server.check_installed()
    from kforge.web.access import Access
    from kforge.web.application import application
    from kforge.web.control import Dashboard
    from kforge.web.live import Changes
    from kforge.web.run_processes import RunProcesses

    chosen = settings.load(memory=rules.memory)
    place = (root or chosen.runs).absolute()
    access = Access.of(options.host, options.port, options.token)
    models = options.models or list(dict.fromkeys(filter(None, (chosen.model, BUILTIN))))
    service_options = ServiceOptions(
        problems=tuple(options.problems or ("core",)),
        platform=target.platform,
        platform_dirs=tuple(target.folders),
        policy=rules.policy,
        seconds=options.seconds,
        waiting=options.waiting,
    )
    with suppress(KeyboardInterrupt), EvaluationService(service_options, chosen, private=[place]) as service:
        dashboard = Dashboard(service, place, RunProcesses(service, place, models), Changes())
        tell = partial(_tell, access, service, json=json)
        server.serve(application(dashboard, access), access, tell, dashboard.changes.end)
    return 0


def _tell(access: Access, service: EvaluationService, *, json: bool) -> None:
    """Print the address of the dashboard. The token is printed only here."""
    url = url_of(access.host, access.port)
    # the part after # stays in the browser: it is in no request and in no log
    login = f"{url}/login#{access.token}" if access.token else url
    if json:
        token = {"token": access.token, "login": login} if access.token else {}
        documents.print_json({"url": url, **token, "platform": service.platform.name})
        return
    say(f"dashboard on {service.platform.name} at {login}; Ctrl-C ends it")
    if access.token:
        note("what is sent is not encrypted: over a network that you do not trust, use an SSH tunnel instead")
