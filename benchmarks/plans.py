"""Times programs that the smith writes by several plans for a suite's problems, to compare the smith's choices.

    python benchmarks/plans.py -p cpu --only softmax
    python benchmarks/plans.py -p triton --workload large --only reductions/ --plan tile=8192,share=8 --json plans.json
    python benchmarks/plans.py -p triton --workload large --ahead 14     built by 14 processes before any is timed

Tried are the first plan, the plans that one move makes of it, and the plans that `--plan` names. All programs of a
problem run in this process, in turns and with cold caches; `eager` is the module itself. The times show where a search
may help. They are no verdicts; those come from `kforge eval`. GB/s are the bytes that any program must move, divided by
the median time. A program whose error is larger than rounding explains is not timed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import runpy
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from kforge import platforms
from kforge.errors import InputError
from kforge.problems.instance import Instance, instantiate
from kforge.problems.suite import open_suite
from kforge.problems.tensors import HOST, tensors_in
from kforge.smith.frontend.trace import Untraceable, trace
from kforge.smith.languages import Language, find
from kforge.smith.program import write
from kforge.smith.rewrite import simplify

if TYPE_CHECKING:
    from kforge.platforms import Adapter
    from kforge.records import Problem
    from kforge.smith.plan import Plan

ROUNDS = 15
SETS = 3
"""Sets of inputs on a device; a host has one."""
TOLERANCE = 1e-3
"""Largest error that passes, as a share of the output's norm. Rounding errors are far smaller, and errors of a faulty
program are almost always larger."""
EAGER = "eager"

Call = Callable[..., Any]
Programs = dict[str, str] | str
"""Sources of programs by the names of their plans, or the reason why there are none."""


def main(arguments: list[str] | None = None) -> int:
    asked = parser().parse_args(arguments)
    try:
        platform = platforms.find(asked.platform)
        language = find(platform)
        tasks = open_suite(asked.suite).tasks(asked.workload, asked.only)
        if language is None:
            raise InputError(f"the smith writes no kernels for the platform '{asked.platform}'")
        plans = list(plans_of(language, asked.plan))
    except InputError as error:
        print(f"plans: {error}", file=sys.stderr)
        return 2
    for task in tasks:
        if task.problem is None:
            print(f"{task.name}: {task.failure}")
    problems = {task.name: task.problem for task in tasks if task.problem is not None}
    adapter = platform.adapter
    adapter.prepare()
    adapter.use_precision("strict")
    said = []
    with tempfile.TemporaryDirectory() as folder:
        for name, programs in written(problems, asked.platform, plans, Path(folder), asked.ahead):
            row = {"problem": name, **tried(problems[name], adapter, programs, Path(folder))}
            said.append(row)
            print(as_text(row), flush=True)
            if asked.json:  # after every problem, because a borrowed machine may go away
                whole = {"device": adapter.describe_device(), "workload": asked.workload, "problems": said}
                asked.json.write_text(json.dumps(whole, indent=1) + "\n")
    return 0


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="plans", description="What each choice of the smith is worth on this device.")
    made.add_argument("-p", "--platform", required=True)
    made.add_argument("--suite", default="core", help="a suite's name or folder")
    made.add_argument("--workload", default="")
    made.add_argument("--only", default="", help="problems whose name matches")
    made.add_argument("--plan", action="append", default=[], metavar="KNOB=VALUE,...", help="a plan beside the moves'")
    made.add_argument("--ahead", type=int, default=0, metavar="N", help="build with N processes before any is timed")
    made.add_argument("--json", type=Path)
    return made


def plans_of(language: Language, named: list[str]) -> Iterator[Plan]:
    """Yield the first plan, those that one move makes of it, and the named ones. Raises InputError for a bad name."""
    first = language.plan()
    yield first
    for move in language.moves:
        yield move.applied(first)
    for text in named:
        try:
            knobs = {name: int(value) for name, _, value in (each.partition("=") for each in text.split(","))}
            yield replace(first, **knobs)
        except (TypeError, ValueError):
            known = ", ".join(asdict(first))
            raise InputError(f"'{text}' is no plan: KNOB=VALUE, with commas between, of {known}") from None


def written(
    problems: dict[str, Problem], platform: str, plans: list[Plan], folder: Path, ahead: int
) -> Iterator[tuple[str, Programs]]:
    """Yield the programs of each problem. With `ahead` processes, these first build the programs of all problems."""
    if not ahead:
        for name, problem in problems.items():
            yield name, programs_of(problem, platform, plans)
        return
    with ProcessPoolExecutor(ahead, multiprocessing.get_context("spawn")) as pool:
        building = [pool.submit(built, problem, platform, plans, folder) for problem in problems.values()]
        yield from list(zip(problems, (each.result() for each in building), strict=True))


def built(problem: Problem, platform: str, plans: list[Plan], folder: Path) -> Programs:
    """Return the programs of a problem after one call of each, which puts its build into the compiler's cache.

    This runs in a process of its own.
    """
    programs = programs_of(problem, platform, plans)
    adapter = platforms.find(platform).adapter
    adapter.prepare()
    with suppress(Exception), torch.no_grad():  # a failure here happens again in `tried`, which reports it
        instance = instantiate(problem, adapter.device())
        inputs, model = instance.inputs(0), instance.make_model()
        for source in programs.values() if isinstance(programs, dict) else ():
            with suppress(Exception):
                called(source, model, instance, folder)(*inputs)
        adapter.synchronize()
    return programs


def programs_of(problem: Problem, platform: str, plans: list[Plan]) -> Programs:
    """Return the different programs of a problem by the names of their plans, or the reason why there are none."""
    language = find(platforms.find(platform))
    assert language is not None
    try:
        graph = trace(instantiate(problem))
    except Untraceable as error:
        return str(error)
    rewritten, _ = simplify(graph, language.rules)
    programs: dict[str, str] = {}
    for plan in plans:
        if plan.kernels:
            source = write(problem, rewritten if plan.algebra else graph, language, plan).source
            if source not in programs.values():
                programs[differences(plan, language) or "first"] = source
    return programs


def tried(problem: Problem, adapter: Adapter, programs: Programs, folder: Path) -> dict[str, Any]:
    """Return the median microseconds of each plan, and why plans failed. A failure does not stop the other plans."""
    if isinstance(programs, str):
        return {"untraceable": programs}
    instance = instantiate(problem, adapter.device())
    with torch.no_grad():
        model = instance.make_model()
        sets = [instance.inputs(seed) for seed in range(1 if instance.device == HOST else SETS)]
        calls: dict[str, Call] = {EAGER: model}
        failed: dict[str, str] = {}
        truth = model(*sets[0])
        for name, source in programs.items():
            try:
                call = called(source, model, instance, folder)
                if near(call(*sets[0]), truth):
                    calls[name] = call
                else:
                    failed[name] = "wrong"
            except Exception as error:
                failed[name] = f"{type(error).__name__}: {error}".partition("\n")[0]
        times = timed(calls, sets, adapter)
    moved = instance.describe().bytes_moved
    microseconds = {name: 1e6 * statistics.median(each) for name, each in times.items()}
    return {"bytes": moved, "microseconds": microseconds, "failed": failed}


def differences(plan: Plan, language: Language) -> str:
    first = asdict(language.plan())
    return ",".join(f"{name}={value}" for name, value in asdict(plan).items() if first[name] != value)


def called(source: str, model: torch.nn.Module, instance: Instance, folder: Path) -> Call:
    """Return the program's module with the weights of the problem's module."""
    path = folder / f"{hashlib.sha256(source.encode()).hexdigest()[:16]}.py"  # Triton reads a kernel's source there
    path.write_text(source)
    own = runpy.run_path(str(path))["ModelNew"](*instance.init_inputs()).to(instance.device)
    own.load_state_dict(model.state_dict())
    own.train(model.training)
    return own


def near(one: Any, other: Any) -> bool:
    def is_near(a: torch.Tensor, b: torch.Tensor) -> bool:
        if a.shape != b.shape or not a.is_floating_point():
            return a.shape == b.shape
        return bool((a - b).norm() <= TOLERANCE * b.norm() + 1e-12)

    return all(is_near(a, b) for a, b in zip(tensors_in(one), tensors_in(other), strict=True))


def timed(calls: dict[str, Call], sets: list[list[Any]], adapter: Adapter) -> dict[str, list[float]]:
    """Return the seconds of each program in every round, by the device's clock.

    Of several sets of inputs the first is not timed: while the device works on it, the host launches the other calls.
    """
    times: dict[str, list[float]] = {name: [] for name in calls}
    untimed, measured = (sets[:1], sets[1:]) if len(sets) > 1 else ([], sets)
    for number in range(ROUNDS + 2):
        for name, call in calls.items():
            adapter.flush()
            for inputs in untimed:
                call(*inputs)
            read = adapter.stopwatch()
            for inputs in measured:
                call(*inputs)
            seconds = read() / 1e9 / len(measured)
            if number >= 2:
                times[name].append(seconds)
    return times


def as_text(row: dict[str, Any]) -> str:
    if "untraceable" in row:
        return f"{row['problem']}: {row['untraceable']}"
    times = row["microseconds"]
    lines = [f"{row['problem']}: {row['bytes'] / 1e6:.0f} MB"]
    for name, value in sorted(times.items(), key=lambda each: each[1]):
        lines.append(
            f"    {value:10.1f} us  {row['bytes'] / value / 1e3:7.0f} GB/s  {times[EAGER] / value:6.2f}x  {name}"
        )
    lines += [f"    {name}: {reason}" for name, reason in row["failed"].items()]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
