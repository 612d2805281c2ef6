"""The commands. Each one imports what it needs when it runs, so that `kforge --help` answers at once."""

from __future__ import annotations

import math
import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Optional

import typer

from kforge import __version__

app = typer.Typer(
    name="kforge",
    help="Turn a PyTorch module into a verified, faster kernel for the accelerator at hand.",
    no_args_is_help=False,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class Seed(StrEnum):
    """What a model may start from."""

    SMITH = "smith"


class Track(StrEnum):
    """Whose kernels may do the work."""

    LIBRARY = "library"
    CUSTOM = "custom"


class CompileMode(StrEnum):
    """Modes of torch.compile, by its own names."""

    DEFAULT = "default"
    REDUCE_OVERHEAD = "reduce-overhead"
    MAX_AUTOTUNE = "max-autotune"
    MAX_AUTOTUNE_NO_CUDAGRAPHS = "max-autotune-no-cudagraphs"


class Precision(StrEnum):
    """How exact a program must be; declared, never sneaked in."""

    STRICT = "strict"
    TF32 = "tf32"
    HALF = "half"


Problem = Annotated[Path, typer.Argument(help="A file with Model, get_inputs and get_init_inputs.")]
Candidate = Annotated[Path, typer.Argument(help="A Python file with a ModelNew.")]
PlatformName = Annotated[
    str, typer.Option("-p", "--platform", help="The accelerator to write for. Default: the best one usable here.")
]
PlatformDirs = Annotated[
    Optional[list[Path]],  # noqa: UP045 - typer reads the annotation at run time
    typer.Option("--platform-dir", help="A folder of further platforms. Repeatable."),
]
Sets = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option("--set", help="NAME=VALUE: override a module-level constant of the problem. Repeatable."),
]
PrecisionOption = Annotated[Precision, typer.Option("--precision", help="What counts as the same number.")]
TrackOption = Annotated[Track, typer.Option("--track", help="custom: a library may not do the work; library: it may.")]
CompileBaseline = Annotated[
    bool, typer.Option("--compile-baseline/--no-compile-baseline", help="Compare with torch.compile as well.")
]
CompileModeOption = Annotated[CompileMode, typer.Option("--compile-mode", help="How torch.compile is called for that.")]
Memory = Annotated[
    str, typer.Option("--memory", help="Let an evaluation use so much in all its processes, such as 24GB.")
]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on standard output and nothing else.")]
Unsafe = Annotated[
    bool, typer.Option("--unsafe", help="Run programs even where no sandbox works; results are labelled unsafe.")
]
Trust = Annotated[
    bool, typer.Option("--trust", help="Run the code of a run, suite or receipt that others made, with your rights.")
]
SameProblem = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option("--problem", help="Your own file of the problem: one that others made runs if it is the same."),
]
Run = Annotated[str, typer.Argument(help="As `kforge runs` names it, or a run's or suite's folder.")]

MODEL_HELP = (
    "builtin (no model), replay:DIR, exchange, scripted:FILE, or PROVIDER:MODEL[@URL]. "
    "Default: KFORGE_MODEL, the config file, or builtin."
)


def finite(value: float) -> float:
    """Raises BadParameter, which typer turns into one line about the option."""
    if math.isinf(value):
        raise typer.BadParameter("leave it out when there is no limit")
    return value


def needed(mode: CompileMode, compile_baseline: bool) -> str:
    """Raises BadParameter for a mode of what is not measured."""
    if mode is not CompileMode.DEFAULT and not compile_baseline:
        raise typer.BadParameter("--compile-mode is for a baseline that --no-compile-baseline leaves out")
    return mode.value


def writable(folder: Path | None) -> Path | None:
    """Raises BadParameter for a folder that no run can be kept in, before anything else takes its time."""
    if folder is not None:
        there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
        if not there.is_dir():
            raise typer.BadParameter(f"{folder}: {there} is not a folder")
        if not os.access(there, os.W_OK | os.X_OK):
            raise typer.BadParameter(f"{folder}: {there} cannot be written")
    return folder


ModelName = Annotated[str, typer.Option("-m", "--model", help=MODEL_HELP)]
Analyst = Annotated[str, typer.Option("--analyst", help="Model of the analysis agent. Default: --model.")]
SeedOption = Annotated[
    Optional[Seed],  # noqa: UP045
    typer.Option("--seed", help="smith: start from the built-in brain's program, and let the model go on."),
]
Iterations = Annotated[int, typer.Option("-n", "--iterations", min=1, help="At most this many attempts.")]
TargetSpeedup = Annotated[
    float,
    typer.Option(
        "--target-speedup", min=0, callback=finite, help="Stop at this speedup over eager, once it is proven."
    ),
]
BudgetUsd = Annotated[float, typer.Option("--budget-usd", min=0, callback=finite, help="Stop when this much is spent.")]
BudgetMinutes = Annotated[float, typer.Option("--budget-minutes", min=0, callback=finite, help="Stop after this long.")]
Replications = Annotated[
    int, typer.Option("--replications", min=0, help="Evaluate the best this many times more, by fresh processes.")
]
Sanitize = Annotated[
    bool,
    typer.Option(
        "--sanitize/--no-sanitize",
        help="Run what would be best under the platform's sanitizers: on some devices half a minute each time.",
    ),
]
Output = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option("-o", "--output", callback=writable, help="Folder for runs. Default: kforge-runs."),
]
RunsFolder = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option("-o", "--output", help="Folder of the runs, as `forge -o` took it. Default: kforge-runs."),
]


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
def forge(
    problem: Problem,
    platform: PlatformName = "",
    model: ModelName = "",
    analyst: Analyst = "",
    iterations: Iterations = 5,
    seed: SeedOption = None,
    reference: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--reference", help="A reference implementation from another accelerator."),
    ] = None,
    target_speedup: TargetSpeedup = 0.0,
    budget_usd: BudgetUsd = 0.0,
    budget_minutes: BudgetMinutes = 0.0,
    replications: Replications = 3,
    sanitize: Sanitize = True,
    precision: PrecisionOption = Precision.STRICT,
    track: TrackOption = Track.LIBRARY,
    compile_baseline: CompileBaseline = True,
    compile_mode: CompileModeOption = CompileMode.DEFAULT,
    unsafe: Unsafe = False,
    memory: Memory = "",
    sets: Sets = None,
    platform_dirs: PlatformDirs = None,
    output: Output = None,
    json: Json = False,
) -> int:
    """Take a problem to a verified, timed kernel with both agents.

    Exit status: 0 a correct program that is not slower was found, 1 it was not, 75 waiting for replies.
    """
    from kforge import settings
    from kforge.cli import forging

    chosen = settings.load(memory=memory)
    options = forging.options(
        chosen, platform_dirs or [], platform=platform, model=model, analyst=analyst, iterations=iterations,
        target_speedup=target_speedup, budget_minutes=budget_minutes, budget_usd=budget_usd,
        replications=replications, sanitize=sanitize, precision=precision.value, track=track.value,
        compile_baseline=compile_baseline, compile_mode=needed(compile_mode, compile_baseline), unsafe=unsafe,
        seed=seed.value if seed else "", reference=forging.read_text(reference) if reference else "",
    )  # fmt: skip
    return forging.begin(
        problem, options, chosen, overrides=sets or [], platform_dirs=platform_dirs or [], root=output, json=json
    )


@app.command()
def suite(
    name: Annotated[
        Optional[str],  # noqa: UP045
        typer.Argument(metavar="PATH_OR_NAME", help="A folder of problems, or a suite that comes with kforge: core."),
    ] = None,
    platform: PlatformName = "",
    model: ModelName = "",
    analyst: Analyst = "",
    iterations: Iterations = 5,
    workload: Annotated[
        str, typer.Option("--workload", help="small, large or held_out, of core. Default: as the files say.")
    ] = "",
    only: Annotated[
        str, typer.Option("--only", help="Only problems whose name matches, such as 'norms/*,softmax'.")
    ] = "",
    target_speedup: TargetSpeedup = 0.0,
    budget_usd: BudgetUsd = 0.0,
    budget_minutes: BudgetMinutes = 0.0,
    replications: Replications = 3,
    sanitize: Sanitize = True,
    precision: PrecisionOption = Precision.STRICT,
    track: TrackOption = Track.LIBRARY,
    compile_baseline: CompileBaseline = True,
    compile_mode: CompileModeOption = CompileMode.DEFAULT,
    unsafe: Unsafe = False,
    memory: Memory = "",
    platform_dirs: PlatformDirs = None,
    output: Output = None,
    going_on: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--resume", help="Go on with this suite's folder, as it was begun; what is finished stays."),
    ] = None,
    ahead: Annotated[
        int, typer.Option("--ahead", min=0, help="First build what can be built, in this many processes at once.")
    ] = 0,
    trust: Trust = False,
    json: Json = False,
) -> int:
    """Forge every problem of a suite; budgets are for each problem."""
    from kforge import settings
    from kforge.cli import forging, suites, trusting

    if (name is None) == (going_on is None):
        raise typer.BadParameter("give a folder, the name of a suite, or --resume with a suite's folder")
    if going_on is not None:
        said = trusting.consent(None, trust=trust, unsafe=unsafe, platform_dirs=platform_dirs, models=(model, analyst))
        return suites.resume(going_on, said, root=output, builders=ahead, json=json)
    assert name is not None
    chosen = settings.load(memory=memory)
    options = forging.options(
        chosen, platform_dirs or [], platform=platform, model=model, analyst=analyst, iterations=iterations,
        target_speedup=target_speedup, budget_minutes=budget_minutes, budget_usd=budget_usd,
        replications=replications, sanitize=sanitize, precision=precision.value, track=track.value,
        compile_baseline=compile_baseline, compile_mode=needed(compile_mode, compile_baseline), unsafe=unsafe,
    )  # fmt: skip
    return suites.begin(
        name, options, chosen, workload=workload, only=only, platform_dirs=platform_dirs or [], root=output,
        builders=ahead, json=json,
    )  # fmt: skip


@app.command()
def resume(
    run: Run,
    output: RunsFolder = None,
    trust: Trust = False,
    problem: SameProblem = None,
    unsafe: Annotated[bool, typer.Option("--unsafe", help="Allow a run of others to go without a sandbox.")] = False,
    platform_dirs: Annotated[
        Optional[list[Path]],  # noqa: UP045
        typer.Option("--platform-dir", help="Allow a run of others this folder of platforms. Repeatable."),
    ] = None,
    model: Annotated[str, typer.Option("-m", "--model", help="Allow a run of others to ask this model.")] = "",
    analyst: Annotated[str, typer.Option("--analyst", help="Allow it this model of the analysis agent.")] = "",
    json: Json = False,
) -> int:
    """Go on with a run or a suite that was interrupted, or that waited for replies, as it was begun.

    What others made asks first: its code needs --trust, and what widens its rights the flag that widens them.
    """
    from kforge.cli import forging

    return forging.resume(
        run, root=output, trust=trust, problem=problem, unsafe=unsafe, platform_dirs=platform_dirs,
        models=(model, analyst), json=json,
    )  # fmt: skip


@app.command("eval")
def evaluate(
    problem: Problem,
    candidate: Candidate,
    platform: PlatformName = "",
    precision: PrecisionOption = Precision.STRICT,
    track: TrackOption = Track.LIBRARY,
    compile_baseline: CompileBaseline = True,
    compile_mode: CompileModeOption = CompileMode.DEFAULT,
    unsafe: Unsafe = False,
    memory: Memory = "",
    sets: Sets = None,
    platform_dirs: PlatformDirs = None,
    sanitize: Annotated[
        bool, typer.Option("--sanitize", help="Run a correct candidate under the platform's sanitizer as well.")
    ] = False,
    timings: Annotated[bool, typer.Option("--timings", help="Show where the evaluation's own time went.")] = False,
    receipt: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--receipt", help="Write the evaluation to this file, for `kforge verify`."),
    ] = None,
    json: Json = False,
) -> int:
    """Verify and time one candidate."""
    from kforge.cli import judging

    return judging.evaluate(
        problem, candidate, platform, sets or [], platform_dirs or [],
        precision=precision.value, track=track.value, compile_baseline=compile_baseline,
        compile_mode=needed(compile_mode, compile_baseline), unsafe=unsafe,
        memory=memory, sanitize=sanitize, timings=timings, receipt=receipt, json=json,
    )  # fmt: skip


@app.command()
def verify(
    receipt: Annotated[str, typer.Argument(help="A file of `eval --receipt`, or a run, whose best attempt is meant.")],
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
def profile(
    problem: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Argument(help="A file with Model, get_inputs and get_init_inputs. Optional with --import."),
    ] = None,
    candidate: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Argument(help="A Python file with a ModelNew. Optional with --import."),
    ] = None,
    platform: PlatformName = "",
    imports: Annotated[
        Optional[list[Path]],  # noqa: UP045
        typer.Option(
            "--import", help="An export made elsewhere: ncu --csv --page raw, or nsys stats --format csv. Repeatable."
        ),
    ] = None,
    calls: Annotated[
        int, typer.Option("--calls", min=0, help="How many calls of the module the exports hold. Default: not known.")
    ] = 0,
    unsafe: Unsafe = False,
    sets: Sets = None,
    platform_dirs: PlatformDirs = None,
    json: Json = False,
) -> int:
    """Profile one candidate and print the page the analysis agent reads."""
    from kforge.cli import profiling

    return profiling.profile(
        problem, candidate, platform, sets or [], platform_dirs or [], imports or [],
        calls=calls, unsafe=unsafe, json=json,
    )  # fmt: skip


@app.command()
def show(
    run: Annotated[
        Optional[str],  # noqa: UP045
        typer.Argument(help="As `kforge runs` names it, or a run's or suite's folder. Default: the latest."),
    ] = None,
    output: RunsFolder = None,
    json: Json = False,
) -> int:
    """Show one run: its attempts, recommendations and best kernel; or one suite."""
    from kforge.cli import inspecting

    return inspecting.show(run, root=output, json=json)


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


@app.command()
def doctor(
    names: Annotated[Optional[list[str]], typer.Argument(help="Platforms to check. Default: all.")] = None,  # noqa: UP045
    calibrate: Annotated[bool, typer.Option("--calibrate", help="Measure the device's peaks anew.")] = False,
    unsafe: Unsafe = False,
    platform_dirs: PlatformDirs = None,
    json: Json = False,
) -> int:
    """Build, run and verify each platform's single-shot example."""
    from kforge.cli import checking

    return checking.doctor(names or [], platform_dirs or [], calibrate=calibrate, unsafe=unsafe, json=json)


@app.command()
def warm(platform: PlatformName = "", platform_dirs: PlatformDirs = None, json: Json = False) -> int:
    """Keep torch in memory until Ctrl-C: meanwhile other commands of yours need not import it."""
    from kforge.cli import checking

    return checking.warm(platform, platform_dirs or [], json=json)
