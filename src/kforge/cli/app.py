"""The commands. Each one imports what it needs when it runs, so that `kforge --help` answers at once."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads the annotations at run time
from typing import Annotated, Optional

import typer

from kforge import __version__
from kforge.cli.agents import commands
from kforge.cli.options import (
    Candidate,
    CrewSize,
    EarlierSuite,
    Exports,
    Growth,
    Json,
    Limits,
    Material,
    Memory,
    Output,
    Permission,
    PlatformDirs,
    PlatformName,
    Problem,
    ReportOptions,
    Rules,
    Run,
    RunsFolder,
    SameProblem,
    Selection,
    Sets,
    Target,
    Trust,
    Unsafe,
    Workers,
    grouped,
)
from kforge.cli.output.verbosity import with_verbosity
from kforge.cli.results import commands as results
from kforge.cli.results import experiments
from kforge.cli.serving import commands as serving

app = typer.Typer(
    name="kforge",
    help="Turn a PyTorch module into a verified, faster kernel for the accelerator at hand.",
    no_args_is_help=False,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> int:
    if version:
        typer.echo(f"kforge {__version__}")
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())
    return 0


@app.command()
@with_verbosity
@grouped
def forge(
    problem: Problem,
    target: Target,
    growth: Growth,
    material: Material,
    rules: Rules,
    sets: Sets = None,
    output: Output = None,
    json: Json = False,
) -> int:
    """Take a problem to a verified, timed kernel with both agents.

    Exit status: 0 a correct program that is not slower was found, 1 it was not, 75 waiting for replies.
    """
    from kforge import settings
    from kforge.cli import forging

    chosen = settings.load(memory=rules.memory)
    options = forging.options(chosen, target, growth, rules.policy, material, output)
    return forging.begin(
        problem, options, chosen, overrides=sets or [], platform_dirs=target.folders, root=output, json=json
    )


@app.command()
@with_verbosity
@grouped
def suite(
    selection: Selection,
    target: Target,
    growth: Growth,
    rules: Rules,
    earlier: EarlierSuite,
    crew: CrewSize,
    output: Output = None,
    json: Json = False,
) -> int:
    """Forge every problem of a suite; budgets are for each problem."""
    from kforge import settings
    from kforge.cli import forging, suites

    if (selection.name is None) == (earlier.going_on is None):
        raise typer.BadParameter("give a folder, the name of a suite, or --resume with a suite's folder")
    if earlier.going_on is not None:
        allowed = Permission(
            trust=earlier.trust, unsafe=rules.unsafe, platform_dirs=target.platform_dirs, model=growth.model,
            analyst=growth.analyst,
        )  # fmt: skip
        return suites.resume(earlier.going_on, allowed, root=output, crew=crew, json=json)
    chosen = settings.load(memory=rules.memory)
    options = forging.options(chosen, target, growth, rules.policy)
    return suites.begin(selection, options, chosen, platform_dirs=target.folders, root=output, crew=crew, json=json)


@app.command()
@with_verbosity
@grouped
def resume(
    run: Run,
    limits: Limits,
    allowed: Permission,
    output: RunsFolder = None,
    workers: Workers = 1,
    json: Json = False,
) -> int:
    """Continue a run or a suite that was interrupted or waits for replies. Its options are those it was begun with.

    A run that has spent its budget needs a larger one: --budget-usd, --budget-tokens or --budget-minutes; 0 removes the
    limit.

    A run made by others needs your permission: --trust for its code, and --unsafe, --platform-dir, -m and --analyst for
    what its options ask for.
    """
    from kforge.cli import forging

    return forging.resume(run, allowed, limits, root=output, workers=workers, json=json)


@app.command()
@with_verbosity
@grouped
def transfer(
    run: Annotated[str, typer.Argument(help="A run with a correct program: as `kforge runs` names it, or its folder.")],
    growth: Growth,
    to: Annotated[str, typer.Option("--to", help="Platforms to write programs for, separated by commas.")],
    compare: Annotated[
        bool,
        typer.Option(
            "--compare/--no-compare",
            help="For each platform, also forge without the run's program, to see what it is worth.",
        ),
    ] = True,
    platform_dirs: PlatformDirs = None,
    trust: Trust = False,
    output: Output = None,
    json: Json = False,
) -> int:
    """Forge the problem of a run for other platforms, and show the agents the run's best program as the reference.

    Prints for each platform how many programs were needed until one was correct, with the reference and without it. The
    same command continues an interrupted transfer. Exit status: 0 with the reference a correct program was found for
    every platform, 1 for some none was found, 75 waiting for replies.
    """
    from kforge.cli import transferring

    allowed = Permission(trust=trust, platform_dirs=platform_dirs)
    return transferring.transfer(run, to, growth, allowed, compare=compare, root=output, json=json)


@app.command("eval")
@with_verbosity
@grouped
def evaluate(
    problem: Problem,
    candidate: Candidate,
    target: Target,
    rules: Rules,
    report: ReportOptions,
    sets: Sets = None,
    sanitize: Annotated[
        bool,
        typer.Option("--sanitize", help="Run it under the platform's sanitizer, if it is correct or crashes."),
    ] = False,
) -> int:
    """Verify and time one candidate."""
    from kforge.cli import evaluating

    return evaluating.evaluate(problem, candidate, target, rules, report, overrides=sets or [], sanitize=sanitize)


@app.command()
@with_verbosity
@grouped
def verify(
    receipt: Annotated[str, typer.Argument(help="A file of `eval --receipt`, or a run: its best attempt is verified.")],
    platform_dirs: PlatformDirs = None,
    trust: Trust = False,
    problem: SameProblem = None,
    memory: Memory = "",
    json: Json = False,
) -> int:
    """Repeat the measurement of a receipt. Exit status: 0 agrees, 1 does not agree, 3 cannot be compared."""
    from kforge.cli import verifying

    return verifying.verify(receipt, platform_dirs or [], trust=trust, problem=problem, memory=memory, json=json)


@app.command()
@with_verbosity
@grouped
def profile(
    problem: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Argument(help="A file with Model, get_inputs and get_init_inputs. Optional with --import."),
    ] = None,
    candidate: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Argument(help="A Python file with a ModelNew. Optional with --import."),
    ] = None,
    *,
    target: Target,
    exports: Exports,
    image_out: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--image-out", help="Draw the profile into this PNG file as well."),
    ] = None,
    unsafe: Unsafe = False,
    sets: Sets = None,
    json: Json = False,
) -> int:
    """Profile one candidate and print the page the analysis agent reads."""
    from kforge.cli import profiling

    return profiling.profile(
        problem, candidate, target, exports, overrides=sets or [], unsafe=unsafe, image_out=image_out, json=json
    )


@app.command()
def show(
    run: Annotated[
        Optional[str],  # noqa: UP045
        typer.Argument(help="As `kforge runs` names it, or a run's or suite's folder. Default: the latest."),
    ] = None,
    diff: Annotated[bool, typer.Option("--diff", help="Also what each program changed.")] = False,
    output: RunsFolder = None,
    json: Json = False,
) -> int:
    """Show one run: its attempts, recommendations and best kernel; or one suite.

    On a terminal the timing samples of the best program are drawn, too.
    """
    from kforge.cli import inspecting

    return inspecting.show(run, root=output, diff=diff, json=json)


@app.command()
def runs(output: RunsFolder = None, json: Json = False) -> int:
    """List the runs."""
    from kforge.cli import inspecting

    return inspecting.runs(root=output, json=json)


@app.command()
def platforms(platform_dirs: PlatformDirs = None, json: Json = False) -> int:
    """List the platforms and say why one is unavailable."""
    from kforge.cli import inspecting

    return inspecting.platforms(platform_dirs or [], json=json)


@app.command("new-platform")
def new_platform(
    name: Annotated[str, typer.Argument(help="Name of the new platform, as other commands take it with -p.")],
    into: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            "--into", help="Folder in which the platform's folder is made. Default: ~/.config/kforge/platforms."
        ),
    ] = None,
    requires: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            "--requires", help="Import name of a Python package without which the platform is unavailable. Repeatable."
        ),
    ] = None,
    json: Json = False,
) -> int:
    """Write the files of a new platform. Its example works at once, in plain PyTorch; put your kernel in its place."""
    from kforge.cli.new_platform import new_platform

    return new_platform(name, into, requires or [], json=json)


@app.command()
@with_verbosity
@grouped
def doctor(
    names: Annotated[Optional[list[str]], typer.Argument(help="Platforms to check. Default: all.")] = None,  # noqa: UP045
    platform: Annotated[str, typer.Option("-p", "--platform", help="The same as naming the platform.")] = "",
    calibrate: Annotated[bool, typer.Option("--calibrate", help="Measure the device's peaks again.")] = False,
    unsafe: Unsafe = False,
    platform_dirs: PlatformDirs = None,
    json: Json = False,
) -> int:
    """Build, run and verify each platform's single-shot example."""
    from kforge.cli.doctor import examine

    named = [*(names or []), *([platform] if platform else [])]
    return examine(named, platform_dirs or [], calibrate=calibrate, unsafe=unsafe, json=json)


@app.command()
def warm(platform: PlatformName = "", platform_dirs: PlatformDirs = None, json: Json = False) -> int:
    """Keep torch in memory until Ctrl-C, so that your other commands need not import it."""
    from kforge.cli import warming

    return warming.serve(platform, platform_dirs or [], json=json)


app.add_typer(commands.exchange, name="exchange")
app.command()(commands.mcp)
app.command()(commands.openenv)
app.command()(commands.trajectories)
app.command()(experiments.experiment)
app.command()(commands.prompts)
app.command()(results.export)
app.command()(results.compare)
app.command()(results.clean)
app.command()(results.report)
app.command()(serving.serve)
