"""`doctor`: checks that each platform really builds, runs and verifies its single-shot example."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from kforge import platforms, problems, settings
from kforge.cli import NOT_FOUND
from kforge.cli.output import documents, words
from kforge.cli.output.display import open_progress
from kforge.cli.output.lines import say
from kforge.errors import KforgeError
from kforge.profiling import BUSY_MACHINE
from kforge.records import Candidate, EvaluationPolicy, as_json
from kforge.session import open_judge

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kforge.cli.output.display import Progress
    from kforge.settings import Settings


def examine(names: list[str], platform_dirs: list[Path], *, calibrate: bool, unsafe: bool, json: bool) -> int:
    """Run the examples. Returns status 0 when every named platform works; without names, when at least one does."""
    chosen = settings.load()
    extra = (*chosen.platform_dirs, *platform_dirs)
    found = [platforms.find(name, extra) for name in names] if names else platforms.available(extra)
    reports = []
    for platform in found:
        with open_progress() as progress:
            watch = partial(_tell, progress, platform.name)
            report = _report_on(platform, chosen, watch, calibrate=calibrate, unsafe=unsafe)
        reports.append(report)
        if not json:
            say(_line(report))
    if json:
        documents.print_json(reports)
    works = [report["works"] for report in reports]
    return 0 if (all(works) if names else any(works)) else NOT_FOUND


def _tell(progress: Progress, name: str, detail: str = "") -> None:
    progress.stage(f"examining {name}{': ' * bool(detail)}{detail}")


def _report_on(
    platform: platforms.Platform | platforms.BrokenPlatform,
    chosen: Settings,
    watch: Callable[..., None],
    *,
    calibrate: bool,
    unsafe: bool,
) -> dict[str, Any]:
    watch()
    if isinstance(platform, platforms.BrokenPlatform):
        return {"platform": platform.name, "works": False, "reason": platform.reason}
    try:
        if (reason := platform.adapter.probe()) is not None:
            return _build_example(platform, reason)
        report = _run_example(platform, chosen, watch, calibrate=calibrate, unsafe=unsafe)
        if report["works"] and (emulated := platform.adapter.emulated()) is not None:
            report |= {"emulated": emulated, "builds": list(platform.adapter.build_ahead(_example(platform)))}
        return report
    except KforgeError as error:
        return {"platform": platform.name, "works": False, "reason": str(error)}


def _build_example(platform: platforms.Platform, reason: str) -> dict[str, Any]:
    """Report on a platform that cannot run here: its example may still build."""
    report = {"platform": platform.name, "works": False, "reason": reason}
    built = platform.adapter.build_ahead(_example(platform))
    return {**report, "builds": list(built)} if built else report


def _example(platform: platforms.Platform) -> Path:
    return platform.folder / "example" / "kernel.py"


def _run_example(
    platform: platforms.Platform, chosen: Settings, watch: Callable[[str], None], *, calibrate: bool, unsafe: bool
) -> dict[str, Any]:
    problem = problems.load(platform.folder / "example" / "reference.py")
    candidate = Candidate(source=platform.example.kernel, platform=platform.name)
    with open_judge(platform, chosen, EvaluationPolicy(compile_baseline=False, unsafe=unsafe)) as judge:
        judge.on_stage = watch
        evaluation = judge.evaluate(problem, candidate)
        report: dict[str, Any] = {
            "platform": platform.name,
            "works": evaluation.correct is not None,
            "device": evaluation.receipt.device,
            "versions": evaluation.receipt.versions,
            "sandbox": evaluation.receipt.sandbox,
        }
        if evaluation.correct is None:
            reason = words.detail(evaluation.verdict)
            return {**report, "reason": f"its example is not correct: {words.state(evaluation.verdict)}: {reason}"}
        for eager in evaluation.correct.comparisons[:1]:
            report |= {"speedup": as_json(eager.speedup), "finding": eager.finding}
            if eager.doubt is not None:
                report["doubt"] = eager.doubt
        if calibrate:
            report["peaks"] = as_json(judge.peaks(fresh=True))
    return report


def _line(report: dict[str, Any]) -> str:
    if not report["works"]:
        state = "builds, cannot run here" if report.get("builds") else "unavailable"
        return f"{report['platform']}: {state}: {report['reason']}"
    if "emulated" in report:
        built = f"; builds for {' and '.join(report['builds'])}" if report["builds"] else ""
        return (
            f"{report['platform']}: works, emulated: example built, run and verified, not timed: "
            f"{report['emulated']}{built}"
        )
    versions = ", ".join(f"{name} {version}" for name, version in report["versions"].items())
    speedup = report["speedup"]
    if "doubt" in report:
        speed = f"speed not measured: {report['doubt']}"
    else:
        interval = f"({speedup['low']:.2f} to {speedup['high']:.2f})"
        speed = f"{speedup['median']:.2f}x over eager {interval}: {report['finding']}"
    line = (
        f"{report['platform']}: works: example built, run and verified, {speed}; on {report['device']}; {versions}; "
        f"sandbox {report['sandbox']}"
    )
    if "peaks" in report:
        peaks = report["peaks"]
        line += f"; {peaks['bytes_per_second'] / 1e9:.1f} GB/s, {peaks['flops_per_second'] / 1e9:.0f} GFLOP/s"
        line += "" if peaks["quiet"] else f" ({BUSY_MACHINE})"
    return line
