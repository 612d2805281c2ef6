"""The commands of this folder. Each one imports what it needs when it runs, so that `kforge --help` answers at once."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads the annotations at run time
from typing import Annotated, Optional

import typer

from kforge.cli.options import (
    Asking,
    Json,
    Output,
    Problem,
    Rules,
    Run,
    RunsFolder,
    Serving,
    Sets,
    Target,
    grouped,
    writable,
)

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


@grouped
def mcp(
    target: Target,
    rules: Rules,
    limits: Serving,
    analyst: Annotated[
        str, typer.Option("--analyst", help="Model that recommends. Default: builtin, for its own programs only.")
    ] = "",
    http: Annotated[bool, typer.Option("--http", help="Serve by HTTP and not on standard input and output.")] = False,
    output: Output = None,
    json: Json = False,
) -> int:
    """Serve coding agents by the Model Context Protocol: evaluate, profile, recommend, submit.

    Serves on standard input and output, or with --http at an address of this machine. --json prints that address.
    """
    from kforge.cli.agents import serving

    if json and not http:
        raise typer.BadParameter("--json is for --http: on standard output the protocol is spoken")
    return serving.mcp(target, rules, limits, analyst=analyst, http=http, root=output, json=json)


@grouped
def openenv(
    target: Target,
    rules: Rules,
    limits: Serving,
    steps: Annotated[int, typer.Option("--steps", min=1, help="Programs that an episode may have.")] = 5,
    json: Json = False,
) -> int:
    """Serve trainers as an OpenEnv environment: the action is a program, the observation its verdict."""
    from kforge.cli.agents import serving

    return serving.openenv(target, rules, limits, steps=steps, json=json)


@grouped
def prompts(
    problem: Problem,
    target: Target,
    rules: Rules,
    asking: Asking,
    sets: Sets = None,
    json: Json = False,
) -> int:
    """Print what the agents would be asked about a problem, without asking a model.

    The program that is shown is the problem's own module. --json prints a list of messages.
    """
    from kforge.cli.agents import prompting

    return prompting.show(problem, target, rules.policy, asking, overrides=sets or [], json=json)


def trajectories(
    names: Annotated[list[str], typer.Argument(metavar="RUN...", help="Finished runs, or suites of them.")],
    to: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--to", help="File to write. Default: standard output."),
    ] = None,
    output: RunsFolder = None,
    json: Json = False,
) -> int:
    """Write the attempts of finished runs as JSON Lines, with rewards, for training.

    --json prints one document that counts what was written.
    """
    from kforge.cli.agents.trajectories import write

    return write(names, to, root=output, json=json)
