"""`profile`: prints the page for the performance analysis agent, from a candidate, from imported profiler files, or
both."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge import durable, problems, reading, settings
from kforge.cli.forging import read_text
from kforge.cli.output import documents
from kforge.cli.output.display import open_progress
from kforge.cli.output.lines import say_page
from kforge.errors import InputError, ProfileError
from kforge.profiling import digest, digest_of_export, exports, imported, picture, roofline
from kforge.records import Candidate, EvaluationPolicy, as_json
from kforge.session import open_judge, usable_platform

if TYPE_CHECKING:
    from pathlib import Path

    from kforge.cli.options import Exports, Target
    from kforge.evaluation import Judge
    from kforge.profiling.exports import Export
    from kforge.records import ImportedProfile, Peaks, Problem, Profile, Workload


def profile(
    problem_path: Path | None,
    candidate_path: Path | None,
    target: Target,
    given: Exports,
    *,
    overrides: list[str],
    unsafe: bool,
    image_out: Path | None,
    json: bool,
) -> int:
    """Print the page, and return the exit status. With imported files alone nothing is run. A problem adds its
    roofline. A candidate is profiled here, with counters from the imported files if there are any. Raises InputError if
    a file cannot be read, or if a part is missing."""
    imports, calls = given.imports or [], given.calls
    if image_out is not None:
        picture.check_installed("--image-out")
    workload: Workload | None = None
    if not imports and (problem_path is None or candidate_path is None):
        raise InputError("profile needs a PROBLEM and a CANDIDATE, or exports with --import")
    export = read_exports(imports) if imports else None
    made: Profile | ImportedProfile
    if problem_path is None:
        assert export is not None
        made = digest_of_export(export, calls=calls)
    else:
        chosen = settings.load()
        platform = usable_platform(target.platform, chosen, target.folders)
        if export is not None and not platform.adapter.profilers():
            reason = f"these exports cannot be from a program for the platform {platform.name}"
            raise ProfileError(f"{reason}: leave the PROBLEM out, or name its platform with -p")
        problem = problems.load(problem_path, overrides)
        source = read_text(candidate_path) if candidate_path is not None else ""
        policy = EvaluationPolicy(unsafe=unsafe)
        with open_judge(platform, chosen, policy) as judge, open_progress(f"{problem.name}: profile") as display:
            judge.on_stage = display.stage
            workload = judge.describe(problem) if image_out is not None else None
            if not source:
                assert export is not None
                made = _against_roofline(judge, problem, export, calls)
            else:
                made = _of_candidate(judge, problem, Candidate(source=source, platform=platform.name), export, calls)
    if image_out is not None:
        durable.write(image_out.absolute(), picture.draw(made, workload))
    if json:
        documents.print_json(as_json(made))
    else:
        say_page(made.digest_text)
    return 0


def read_exports(paths: list[Path]) -> Export:
    """Return the contents of several profiler files together. Raises InputError for a file that cannot be read, and
    ProfileError for a file that no known profiler wrote."""
    found = []
    for path in paths:
        try:
            content = reading.content(path, most=exports.MAX_BYTES, streams=True)
        except OSError as error:
            raise InputError(f"cannot read {path}: {reading.reason(error)}") from error
        try:
            found.append(exports.read(exports.decoded(content)))
        except ProfileError as error:
            raise ProfileError(f"cannot import {path}: {error}") from None
    return exports.together(found)


def _against_roofline(judge: Judge, problem: Problem, export: Export, calls: int) -> ImportedProfile:
    workload, peaks = judge.describe(problem), judge.peaks()
    _same_device(export, peaks)
    return digest_of_export(export, calls=calls, roofline=roofline(workload, peaks), workload=workload)


def _of_candidate(judge: Judge, problem: Problem, candidate: Candidate, export: Export | None, calls: int) -> Profile:
    found = judge.profile(problem, candidate, counters=export is None)
    if export is None:
        return found
    _same_device(export, found.roofline.peaks)
    page = digest(
        tool=f"{found.tool}, counters imported from {export.tool}",
        seconds=found.seconds,
        hot_spots=found.hot_spots,
        roofline=found.roofline,
        workload=judge.describe(problem),
        kernels=export.kernels,
        notes=list(imported.notes(export, calls or 1)),
        authored=found.authored,
    )
    return page.model_copy(update={"timeline": found.timeline})


def _same_device(export: Export, peaks: Peaks) -> None:
    """Raise ProfileError if a file is from another device than the measured peaks, because the two cannot be
    compared."""
    if export.device and export.device not in peaks.device:
        raise ProfileError(f"the export is of {export.device}, and here is {peaks.device}: leave the PROBLEM out")
