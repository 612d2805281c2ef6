"""The commands of this folder. Each one imports what it needs when it runs, so that `kforge --help` answers at once."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads the annotations at run time
from typing import Annotated, Optional

import typer

from kforge.cli.options import Json, Run, RunsFolder, writable

exchange = typer.Typer(help="List, show and answer the questions of runs that wait for replies (-m exchange).")
Question = Annotated[
    str,
    typer.Argument(metavar="[QUESTION]", help="As `kforge exchange list` names it. Default: the only one that waits."),
]


@exchange.command("list")
def exchange_list(
    run: Annotated[
        Optional[str],  # noqa: UP045
        typer.Argument(help="As `kforge runs` names it, or a run's or suite's folder. Default: all that wait."),
    ] = None,
    all_states: Annotated[bool, typer.Option("--all", help="Also the questions that are answered.")] = False,
    output: RunsFolder = None,
    json: Json = False,
) -> int:
    """List the questions that wait for replies."""
    from kforge.cli.agents import exchanging

    return exchanging.list_questions(run, root=output, all_states=all_states, json=json)


@exchange.command("show")
def exchange_show(
    run: Run,
    question: Question = "",
    into: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--into", callback=writable, help="Write all prompts that wait, with images, into this folder."),
    ] = None,
    output: RunsFolder = None,
    json: Json = False,
) -> int:
    """Print the prompt of one question, or write all that wait into a folder."""
    from kforge.cli.agents import exchanging

    return exchanging.show(run, question, root=output, into=into, json=json)


@exchange.command("answer")
def exchange_answer(
    run: Run,
    question: Question = "",
    file: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("-f", "--file", help="The file with the answer; - is standard input."),
    ] = None,
    folder: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--from", help="Take all answers of this folder, named as `exchange show --into` names prompts."),
    ] = None,
    output: RunsFolder = None,
    json: Json = False,
) -> int:
    """Answer one question, or all for which a folder has answers, in any order.

    Exit status: 0 all are answered, 75 others still wait.
    """
    from kforge.cli.agents import exchanging

    return exchanging.answer(run, question, file, root=output, folder=folder, json=json)
