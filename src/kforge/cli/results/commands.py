"""The commands of this folder. Each one imports what it needs when it runs, so that `kforge --help` answers at once."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path  # noqa: TC003 - typer reads the annotations at run time
from typing import Annotated, Optional

import typer

from kforge.cli.options import AllowedPlatformDirs, Json, Permission, RunsFolder, Trust, finite


class ExportFormat(StrEnum):
    """The formats of `export`, as in `kforge.export.FORMATS`, which is not imported here, so that `kforge --help`
    answers at once."""

    PACKAGE = "package"
    KERNELBENCH = "kernelbench"
    FLASHINFER = "flashinfer"
    GPUMODE = "gpumode"
    HF_KERNELS = "hf-kernels"


class StoryChoice(StrEnum):
    """The values of `--stories`, as in `kforge.report.writing.Stories`, which is not imported here."""

    AUTO = "auto"
    ALL = "all"
    BEST = "best"
    NONE = "none"


def export(
    run: Annotated[str, typer.Argument(help="A run with a correct program: as `kforge runs` names it, or its folder.")],
    folder: Annotated[Path, typer.Option("-o", "--output", help="Folder to write into; it must be new or empty.")],
    form: Annotated[
        ExportFormat,
        typer.Option(
            "--as", help="package: an installable Python package. The others are the formats of those suites and hubs."
        ),
    ] = ExportFormat.PACKAGE,
    trust: Trust = False,
    platform_dirs: AllowedPlatformDirs = None,
    json: Json = False,
) -> int:
    """Write the best program of a run as files that work without kforge.

    Exit status: 0 it was written, 1 the run has no correct program.
    """
    from kforge.cli.results import exporting

    return exporting.export(run, folder, form.value, Permission(trust=trust, platform_dirs=platform_dirs), json=json)


def compare(
    first: Annotated[str, typer.Argument(help="A run: as `kforge runs` names it, or its folder.")],
    second: Annotated[str, typer.Argument(help="Another run.")],
    measure: Annotated[
        bool, typer.Option("--measure", help="Time the two best programs against each other, in one session.")
    ] = False,
    trust: Trust = False,
    output: RunsFolder = None,
    json: Json = False,
) -> int:
    """Show two runs side by side: state, best, speedups, cost, and what the best programs differ in.

    Says whether a difference in speed was measured head to head.
    """
    from kforge.cli.results import comparing

    return comparing.compare((first, second), root=output, measure=measure, trust=trust, json=json)


def clean(
    days: Annotated[
        float, typer.Option("--older-than", min=0, callback=finite, help="Days since the last change.")
    ] = 30.0,
    runs: Annotated[bool, typer.Option("--runs/--no-runs", help="Remove finished runs and suites.")] = True,
    cache: Annotated[bool, typer.Option("--cache/--no-cache", help="Remove cached builds.")] = True,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Remove without a question.")] = False,
    output: RunsFolder = None,
    json: Json = False,
) -> int:
    """Remove old runs and cached builds, after showing which. A run that waits, runs or was interrupted is kept."""
    from kforge.cli.results import cleaning

    return cleaning.clean(days=days, root=output, with_runs=runs, with_cache=cache, yes=yes, json=json)


def report(
    names: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Argument(
            metavar="[RUN|SUITE]...", help="As `kforge runs` names them, or their folders. Default: the latest."
        ),
    ] = None,
    output: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("-o", "--output", help="File to write: .html (one offline page), .md or .csv."),
    ] = None,
    figures: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--figures", help="Folder to write the figures into, as SVG for papers."),
    ] = None,
    stories: Annotated[
        StoryChoice,
        typer.Option("--stories", help="What a page holds of each problem: all attempts with prompts, the best, none."),
    ] = StoryChoice.AUTO,
    title: Annotated[str, typer.Option("--title", help="Title of the report.")] = "",
    runs: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--runs", help="Folder of runs. Default: the one that kforge writes into."),
    ] = None,
    json: Json = False,
) -> int:
    """Summarize runs and suites in one report: an offline page, Markdown, CSV, and figures for papers.

    Without -o and --figures the summary is printed.
    """
    from kforge.cli.results import reporting

    request = reporting.ReportRequest(tuple(names or ()), output, figures, stories.value, title)
    return reporting.report(request, root=runs, json=json)
