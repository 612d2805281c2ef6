"""The command `experiment`. It imports what it needs when it runs, so that `kforge --help` answers at once."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads the annotations at run time
from typing import Annotated

import typer

from kforge.cli.options import Json, Output, Target, grouped


@grouped
def experiment(
    file: Annotated[Path, typer.Argument(help="A TOML file with the arms, such as those in experiments/.")],
    target: Target,
    model: Annotated[str, typer.Option("-m", "--model", help="Model of the arms that name none.")] = "",
    only: Annotated[str, typer.Option("--only", help="Only problems whose name matches, in place of the file's.")] = "",
    output: Output = None,
    json: Json = False,
) -> int:
    """Run a suite under several sets of options, and say which differences are real.

    Started again, it goes on where it was interrupted. Exit status: 0 all arms came to an end, 75 waiting for replies.
    """
    from kforge.cli.results import experimenting

    return experimenting.experiment(file, target, model=model, only=only, root=output, json=json)
