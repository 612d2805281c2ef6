"""The command of this folder. It imports what it needs when it runs, so that `kforge --help` answers at once."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Optional

import typer

from kforge.cli.options import Json, Output, Rules, Serving, Target, grouped


@dataclasses.dataclass(frozen=True)
class DashboardOptions(Serving):
    """Command-line options of the dashboard, besides those of every server."""

    host: Annotated[
        str, typer.Option("--host", help="Address to listen at. Other machines than this one need the token.")
    ] = "127.0.0.1"
    token: Annotated[
        Optional[str],  # noqa: UP045 - typer reads the annotation at run time
        typer.Option("--token", help="What clients must send. Default: none on this machine, else a random one."),
    ] = None
    models: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option("--model", "-m", help="A model that runs may use. Repeatable. Default: the configured one."),
    ] = None


@grouped
def serve(target: Target, rules: Rules, options: DashboardOptions, output: Output = None, json: Json = False) -> int:
    """Serve the dashboard: live pages of runs and suites, and an evaluation API for trainers.

    --json prints the address, and the token where there is one.
    """
    from kforge.cli.serving import dashboard

    return dashboard.serve(target, rules, options, root=output, json=json)
