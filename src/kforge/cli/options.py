"""The options of the commands. Each option is defined once; options that belong together form a group.

A group is a dataclass. A command takes it as one parameter, and `grouped` shows typer the options in it.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional, get_type_hints

import typer

from kforge.choices import CompileMode, FailedState, Precision, ProfileForm, PromptSet, Step, Track

if TYPE_CHECKING:
    from collections.abc import Callable

    from kforge.problems import Suite
    from kforge.records import EvaluationPolicy


class Seed(StrEnum):
    """Sources of a run's first program other than the model."""

    SMITH = "smith"


def finite(value: float | None) -> float | None:
    """Return the value unchanged. Raises BadParameter for infinity; typer prints that as one line about the option."""
    if value is not None and math.isinf(value):
        raise typer.BadParameter("it must be a finite number; leave the option out for no limit")
    return value


def writable(folder: Path | None) -> Path | None:
    """Return the value unchanged. Raises BadParameter if no run can be written in this folder."""
    if folder is not None:
        there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
        if not there.is_dir():
            raise typer.BadParameter(f"{folder}: {there} is not a folder")
        if not os.access(there, os.W_OK | os.X_OK):
            raise typer.BadParameter(f"{folder}: {there} cannot be written")
    return folder


# --- single options -----------------------------------------------------------------------------------------

Problem = Annotated[Path, typer.Argument(help="A file with Model, get_inputs and get_init_inputs.")]
Candidate = Annotated[Path, typer.Argument(help="A Python file with a ModelNew.")]
PlatformName = Annotated[
    str, typer.Option("-p", "--platform", help="The accelerator to write for. Default: the best one usable here.")
]
PlatformDirs = Annotated[
    Optional[list[Path]],  # noqa: UP045 - typer reads the annotation at run time
    typer.Option("--platform-dir", help="A folder of further platforms. Repeatable."),
]
AllowedPlatformDirs = Annotated[
    Optional[list[Path]],  # noqa: UP045
    typer.Option("--platform-dir", help="Allow a run made by others to use the platforms in this folder. Repeatable."),
]
Sets = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option("--set", help="NAME=VALUE: override a module-level constant of the problem. Repeatable."),
]
Memory = Annotated[
    str, typer.Option("--memory", help="Memory limit for all processes of an evaluation together, such as 24GB.")
]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on standard output and nothing else.")]
Unsafe = Annotated[
    bool,
    typer.Option("--unsafe", help="Run programs without a sandbox if none works here; results get the label unsafe."),
]
Trust = Annotated[
    bool,
    typer.Option(
        "--trust", help="Run code of others, with your rights: of a run, suite or receipt that you did not make."
    ),
]
SameProblem = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(
        "--problem", help="Your own copy of the problem: the code of others runs without --trust if it is the same."
    ),
]
Run = Annotated[str, typer.Argument(help="As `kforge runs` names it, or a run's or suite's folder.")]
Output = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option("-o", "--output", callback=writable, help="Folder for runs. Default: kforge-runs."),
]
RunsFolder = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option("-o", "--output", help="Folder of the runs, as `forge -o` took it. Default: kforge-runs."),
]
MODEL_HELP = (
    "builtin (no model), replay:DIR, exchange, scripted:FILE, or PROVIDER:MODEL[@URL]. With commas an ensemble: each "
    "model writes a first program, and the best one is improved. "
    "Default: KFORGE_MODEL, the config file, or builtin."
)


PromptStyle = Annotated[
    PromptSet, typer.Option("--prompts", help="How the agents are asked; zero-shot is plain, for comparison.")
]
PROMPT_TOKENS = 24_000
"""Equal to `kforge.agents.sizing.MOST_TOKENS`, which is not imported here, so that `kforge --help` answers at once."""
PromptTokens = Annotated[
    int, typer.Option("--prompt-tokens", min=1000, help="Leave less important parts out of longer prompts.")
]

# --- groups -------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Target:
    """The accelerator that programs are for."""

    platform: PlatformName = ""
    platform_dirs: PlatformDirs = None

    @property
    def folders(self) -> list[Path]:
        return self.platform_dirs or []


@dataclasses.dataclass(frozen=True)
class Limits:
    """Limits of a run's cost and time. No model call begins that could exceed a limit."""

    budget_usd: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option("--budget-usd", min=0, callback=finite, help="Most US dollars that model calls may cost."),
    ] = None
    budget_tokens: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option("--budget-tokens", min=0, help="Most tokens that model calls may take, in and out."),
    ] = None
    budget_minutes: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(
            "--budget-minutes",
            min=0,
            callback=finite,
            help="Most minutes of the run; an evaluation that has begun is finished.",
        ),
    ] = None

    @property
    def given(self) -> dict[str, float]:
        """Return the limits that the user set, by name."""
        return {name: value for name, value in dataclasses.asdict(self).items() if value is not None}


@dataclasses.dataclass(frozen=True)
class Growth(Limits):
    """The options of a run: its models, how they are asked, its search, and when it stops."""

    model: Annotated[str, typer.Option("-m", "--model", help=MODEL_HELP)] = ""
    analyst: Annotated[
        str, typer.Option("--analyst", help="Model of the analysis agent. Default: the (first) --model.")
    ] = ""
    model_settings: Annotated[
        str,
        typer.Option(
            "--model-settings",
            help="How the model is asked, such as effort=high,temperature=0.2,seed=7,context=128000,max_tokens=16000.",
        ),
    ] = ""
    analyst_settings: Annotated[
        str, typer.Option("--analyst-settings", help="The same for the analysis agent. Default: --model-settings.")
    ] = ""
    profile_as: Annotated[
        ProfileForm,
        typer.Option(
            "--profile-as",
            help="How the analysis agent gets a profile; image and both draw it, none goes without advice.",
        ),
    ] = ProfileForm.TEXT
    prompts: PromptStyle = PromptSet.STRUCTURED
    prompt_tokens: PromptTokens = PROMPT_TOKENS
    search: Annotated[
        str,
        typer.Option(
            "--search",
            metavar="STRATEGY",
            help="Which attempts are continued: linear (the paper), best-of:N, beam:K or tree.",
        ),
    ] = "linear"
    remember: Annotated[
        bool,
        typer.Option("--use-memory/--no-memory", help="Tell the agents which programs were faster in earlier runs."),
    ] = True
    memory_without: Annotated[
        str,
        typer.Option("--memory-without", help="Problems that the memory neither tells nor keeps: 'softmax*,mean'."),
    ] = ""
    rewrites: Annotated[
        bool,
        typer.Option(
            "--rewrites/--no-rewrites", help="Let the built-in generator rewrite a problem by algebraic rules."
        ),
    ] = True
    iterations: Annotated[
        int, typer.Option("-n", "--iterations", min=1, help="Most attempts of a run, first program included.")
    ] = 5
    target_speedup: Annotated[
        float,
        typer.Option(
            "--target-speedup", min=0, callback=finite, help="Stop at this speedup over eager, once it is proven."
        ),
    ] = 0.0
    replications: Annotated[
        int,
        typer.Option(
            "--replications", min=0, help="How often the best program is evaluated again, each time in fresh processes."
        ),
    ] = 3
    sanitize: Annotated[
        bool,
        typer.Option(
            "--sanitize/--no-sanitize",
            help="Run each new best program under the platform's sanitizers: on some devices half a minute each time.",
        ),
    ] = True


@dataclasses.dataclass(frozen=True)
class Asking:
    """The options that choose the prompt to show, and how it is written."""

    step: Annotated[Step, typer.Option("--step", help="The question of the loop that is shown.")] = Step.GENERATE
    state: Annotated[
        FailedState, typer.Option("--state", help="For repair: what became of the program that is repaired.")
    ] = FailedState.MISMATCH
    prompts: PromptStyle = PromptSet.STRUCTURED
    prompt_tokens: PromptTokens = PROMPT_TOKENS


@dataclasses.dataclass(frozen=True)
class Material:
    """Material that the agents get besides the problem: a program to start from, a program to learn from, and
    images."""

    seed: Annotated[
        Optional[Seed],  # noqa: UP045
        typer.Option("--seed", help="smith: the first program is the built-in generator's; the model improves it."),
    ] = None
    reference: Annotated[
        str,
        typer.Option(
            "--reference", help="A program for the same problem on another accelerator: a file, or a run for its best."
        ),
    ] = ""
    reference_platform: Annotated[
        str, typer.Option("--reference-platform", help="The platform that the file of --reference is for.")
    ] = ""
    images: Annotated[
        Optional[list[Path]],  # noqa: UP045
        typer.Option(
            "--image", help="A PNG, JPEG or WebP file for the analysis agent, such as a profiler's screen. Repeatable."
        ),
    ] = None


@dataclasses.dataclass(frozen=True)
class Rules:
    """The rules by which programs are evaluated, and how much memory an evaluation may take."""

    precision: Annotated[Precision, typer.Option("--precision", help="How exact a program must be.")] = Precision.STRICT
    track: Annotated[Track, typer.Option("--track", help="custom: a library may not do the work; library: it may.")] = (
        Track.LIBRARY
    )
    compile_baseline: Annotated[
        bool, typer.Option("--compile-baseline/--no-compile-baseline", help="Compare with torch.compile as well.")
    ] = True
    compile_mode: Annotated[
        CompileMode, typer.Option("--compile-mode", help="The mode of torch.compile for that comparison.")
    ] = CompileMode.DEFAULT
    unsafe: Unsafe = False
    memory: Memory = ""

    @property
    def policy(self) -> EvaluationPolicy:
        """Return the policy. Raises BadParameter for a compile mode without the `torch.compile` baseline."""
        from kforge.records import EvaluationPolicy

        if self.compile_mode is not CompileMode.DEFAULT and not self.compile_baseline:
            raise typer.BadParameter("--compile-mode is for torch.compile, which --no-compile-baseline leaves out")
        return EvaluationPolicy(
            precision=self.precision.value,
            track=self.track.value,
            compile_baseline=self.compile_baseline,
            compile_mode=self.compile_mode.value,
            unsafe=self.unsafe,
        )


@dataclasses.dataclass(frozen=True)
class Selection:
    """The problems of a suite to work on, and the workload."""

    name: Annotated[
        Optional[str],  # noqa: UP045
        typer.Argument(
            metavar="PATH_OR_NAME", help="A folder of problems, a checkout of another suite, or core, kforge's own."
        ),
    ] = None
    workload: Annotated[
        str,
        typer.Option(
            "--workload",
            help="Workloads or groups of them, such as small,large; or all. Default: those that the suite times.",
        ),
    ] = ""
    only: Annotated[
        str, typer.Option("--only", help="Only problems whose name matches, such as 'norms/*,softmax'.")
    ] = ""
    levels: Annotated[str, typer.Option("--levels", help="Only these levels, such as 1,2.")] = ""
    numbers: Annotated[
        str, typer.Option("--range", help="Only problems with these numbers in their level, such as 1-20,35.")
    ] = ""
    tags: Annotated[str, typer.Option("--tags", help="Only problems of these families, categories or tags.")] = ""
    sample: Annotated[
        int, typer.Option("--sample", min=0, help="Use only this many problems, drawn at random. Default: 0, all.")
    ] = 0
    seed: Annotated[int, typer.Option("--seed", help="Number that decides which problems --sample draws.")] = 0
    form: Annotated[str, typer.Option("--format", help="Format of the suite. Default: recognized by its files.")] = ""
    weights: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--weights", help="A TOML file that says how often each workload of a problem is served."),
    ] = None

    def open(self) -> Suite:
        """Return the suite. Raises ProblemError if no suite has this name, or if an option is wrong."""
        from kforge.problems import ProblemChoice, open_suite

        assert self.name is not None
        choice = ProblemChoice.parsed(
            levels=self.levels, numbers=self.numbers, tags=self.tags, sample=self.sample, seed=self.seed
        )
        return open_suite(self.name, choice, form=self.form, weights=self.weights)


Workers = Annotated[
    int, typer.Option("--workers", min=1, help="Work on this many problems of a suite at once; one is timed at a time.")
]


@dataclasses.dataclass(frozen=True)
class CrewSize:
    """The parallelism of a suite: the number of problems that are worked on at once, and of processes that build in
    advance."""

    workers: Workers = 1
    builders: Annotated[
        int, typer.Option("--ahead", min=0, help="Build programs in advance where possible, in this many processes.")
    ] = 0


@dataclasses.dataclass(frozen=True)
class EarlierSuite:
    """The options for continuing an earlier suite: its folder, and whether to trust its code."""

    going_on: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--resume", help="Go on with the suite in this folder, as it was begun; finished problems stay."),
    ] = None
    trust: Trust = False


@dataclasses.dataclass(frozen=True)
class Permission:
    """What the user permits to a run, suite or receipt that others made."""

    trust: Trust = False
    problem: SameProblem = None
    unsafe: Annotated[
        bool, typer.Option("--unsafe", help="Allow it for a run made by others that asks to run without a sandbox.")
    ] = False
    platform_dirs: AllowedPlatformDirs = None
    model: Annotated[str, typer.Option("-m", "--model", help="Allow a run made by others to ask this model.")] = ""
    analyst: Annotated[
        str, typer.Option("--analyst", help="Allow a run made by others to ask this model for the analysis.")
    ] = ""


@dataclasses.dataclass(frozen=True)
class Exports:
    """Profiler files that were made elsewhere, and the number of module calls that they contain."""

    imports: Annotated[
        Optional[list[Path]],  # noqa: UP045
        typer.Option(
            "--import",
            help="An export made elsewhere, by ncu --csv --page raw, nsys stats --format csv or xctrace. Repeatable.",
        ),
    ] = None
    calls: Annotated[
        int, typer.Option("--calls", min=0, help="How many calls of the module the exports hold. Default: not known.")
    ] = 0


@dataclasses.dataclass(frozen=True)
class Serving:
    """Command-line options of a server: its problems, its address, and the limits of a request."""

    problems: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            "--problems", help="A folder of problems, or a suite that comes with kforge. Repeatable. Default: core."
        ),
    ] = None
    host: Annotated[str, typer.Option("--host", help="Address to listen at; only this machine's own.")] = "127.0.0.1"
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="Port to listen at.")] = 8765
    seconds: Annotated[
        float, typer.Option("--seconds", min=1, callback=finite, help="Time limit of one request, with its waiting.")
    ] = 300.0
    waiting: Annotated[
        int, typer.Option("--waiting", min=0, help="Most requests that wait while another one is worked on.")
    ] = 8


@dataclasses.dataclass(frozen=True)
class ReportOptions:
    """The output options of an evaluation: timings, a receipt file, and JSON."""

    timings: Annotated[bool, typer.Option("--timings", help="Show where the evaluation's own time went.")] = False
    receipt: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--receipt", help="Write the evaluation to this file, for `kforge verify`."),
    ] = None
    json: Json = False


def grouped(command: Callable[..., int]) -> Callable[..., int]:
    """Return the command with a flat signature for typer: each group is replaced by its options."""
    flat: list[inspect.Parameter] = []
    groups: dict[str, type[Any]] = {}
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        if dataclasses.is_dataclass(group := parameter.annotation):
            assert isinstance(group, type)
            groups[parameter.name] = group
            types = get_type_hints(group, include_extras=True)
            flat += [_keyword(field.name, types[field.name], field.default) for field in dataclasses.fields(group)]
        else:
            flat.append(_keyword(parameter.name, parameter.annotation, parameter.default))

    @functools.wraps(command)
    def with_groups(**given: Any) -> int:
        made = {
            name: group(**{field.name: given.pop(field.name) for field in dataclasses.fields(group)})
            for name, group in groups.items()
        }
        return command(**given, **made)

    with_groups.__signature__ = inspect.Signature(flat)  # type: ignore[attr-defined]
    with_groups.__annotations__ = {parameter.name: parameter.annotation for parameter in flat}
    return with_groups


def _keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
