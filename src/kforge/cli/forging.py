"""`forge` and `resume`: run the loop to its end, from its first attempt or from where it was interrupted."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from kforge import problems, reading, settings
from kforge.cli import INTERRUPTED, NOT_FOUND, WAITING
from kforge.cli.options import CrewSize, Material
from kforge.cli.output import documents
from kforge.cli.output.display import open_display, open_preparation
from kforge.cli.output.lines import note
from kforge.cli.output.outcomes import print_outcome, waiting_document
from kforge.cli.trusting import consent, say_whose, whose
from kforge.errors import EvaluationError, InputError, ProviderError, RunError, WaitingForReplies
from kforge.models import Exchange, read_images
from kforge.run_options import choose_model, first_writer, new_options
from kforge.session import Session, platform_at_hand
from kforge.store import Budgets, RunFolder, SuiteFolder
from kforge.transfer import Source
from kforge.visible import command

if TYPE_CHECKING:
    from kforge.cli.options import Growth, Limits, Permission, Target
    from kforge.records import EvaluationPolicy, Outcome
    from kforge.run_options import RunOptions
    from kforge.settings import Settings
    from kforge.store import Key


def read_text(path: Path) -> str:
    """Return the text of a file that a user names, without a byte-order mark and with LF line ends. Raises InputError
    if it cannot be read."""
    try:
        return reading.text(path, streams=True).replace("\r\n", "\n").replace("\r", "\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {path}: {reading.reason(error)}") from error


def options(
    chosen: Settings,
    target: Target,
    growth: Growth,
    policy: EvaluationPolicy,
    material: Material | None = None,
    root: Path | None = None,
) -> RunOptions:
    """Return the resolved options. `root`: the folder of runs, if the user named one.

    Raises InputError when there is no model or platform, or a number is too large.
    """
    model = choose_model(growth.model, chosen)
    material = material or Material()
    seed = material.seed.value if material.seed is not None else ""
    reference, origin = _reference(material, root or chosen.runs)
    platform = target.platform or _platform_for(first_writer(model, seed), chosen, target.folders)
    return new_options(
        **{**asdict(growth), "model": model},
        **policy.model_dump(), platform=platform, seed=seed,
        reference=reference, reference_platform=origin, images=read_images(material.images or []),
    )  # fmt: skip


def _reference(material: Material, root: Path) -> tuple[str, str]:
    """Return the program that `--reference` names, and its platform. Both are empty without that option.

    Raises InputError if there is no such file or run, or if its platform contradicts `--reference-platform`.
    """
    named = material.reference
    if not named:
        if material.reference_platform:
            raise InputError("--reference-platform is for a program that --reference names")
        return "", ""
    if Path(named).exists() and not Path(named).is_dir():
        return read_text(Path(named)), material.reference_platform
    try:
        source = Source.of(RunFolder.find(root, named))
    except RunError as error:
        raise InputError(f"--reference: there is no such file, and {error}") from error
    if material.reference_platform not in ("", source.platform):
        raise InputError(f"the program of run {named} is for {source.platform}, not for {material.reference_platform}")
    return source.program, source.platform


def _platform_for(writer: str, chosen: Settings, platform_dirs: list[Path]) -> str:
    """Return the platform to use for this writer of programs (the model, or the built-in generator). Print a note if it
    is not the usual platform."""
    name, usual = (platform_at_hand(chosen, platform_dirs, model=model) for model in (writer, ""))
    if name != usual:
        reason = f"the built-in generator has no kernel language for {usual}"
        note(f"platform {name} is used: {reason}; give -p {usual} to use that one")
    return name


def begin(
    path: Path,
    choice: RunOptions,
    chosen: Settings,
    *,
    overrides: list[str],
    platform_dirs: list[Path],
    root: Path | None,
    json: bool,
) -> int:
    problem = problems.load(path, overrides)
    root = root or chosen.runs
    with open_preparation(f"{problem.name} on {choice.platform} with {choice.model}") as progress:
        session = Session.begin(problem, choice, chosen, root=root, extra=platform_dirs, watch=progress.stage)
    for remark in session.remarks:
        note(remark)
    with session:
        return _work(session, json=json)


def resume(
    name: str, allowed: Permission, limits: Limits, *, root: Path | None = None, workers: int = 1, json: bool
) -> int:
    """Resume a run or a suite, and return the exit status. `workers` is the number of a suite's problems that are
    worked on at once.

    Raises InputError for an invalid option, and for a run made by others that the user does not permit.
    """
    chosen = settings.load()
    root = root or chosen.runs
    if SuiteFolder.find(root, name) is not None:
        from kforge.cli import suites

        if allowed.problem is not None:
            raise InputError("--problem is for a run; a suite made by others goes on with --trust")
        if limits.given:
            raise InputError("a larger budget needs one run, not a suite: resume the run of one problem by its folder")
        return suites.resume(name, allowed, root=root, crew=CrewSize(workers), json=json)
    if workers > 1:
        raise InputError("--workers is for a suite; a run has one problem")
    run = RunFolder.find(root, name)
    larger = Budgets.model_validate(limits.given)
    with Session.resume(run, chosen, consent=consent(run.header.problem, allowed), budgets=larger) as session:
        return _work(session, json=json, key=chosen.signing_key)


def _work(session: Session, *, json: bool, key: Key | None = None) -> int:
    """Work on a run until it ends or waits, and return the exit status. `key` is the signing key of the user who
    resumes a run, which others may have begun. It is None for a new run."""
    try:
        outcome = _watch(session)
    except WaitingForReplies as waiting:
        return _wait(session.run, waiting, json=json, is_ours=_is_ours(session.run, key))
    except KeyboardInterrupt:
        note(f"interrupted; to go on: {command('kforge', 'resume', session.run.path)}")
        return INTERRUPTED
    except (ProviderError, EvaluationError) as error:
        raise type(error)(f"{error}; to go on: {command('kforge', 'resume', session.run.path)}") from error
    is_ours = _is_ours(session.run, key)
    if json:
        documents.print_json(documents.run(session.run, outcome) | whose(is_ours=is_ours))
    else:
        print_outcome(session.run, outcome)
        say_whose(is_ours=is_ours)
    return _status(session.run)


def _is_ours(run: RunFolder, key: Key | None) -> bool:
    return key is None or run.is_all_signed(key)


def _status(run: RunFolder) -> int:
    """Return the exit status: 0 if the run has a correct program that is not slower than the original, otherwise
    NOT_FOUND."""
    reported = run.reported()
    if reported is None or reported.correct is None:
        return NOT_FOUND
    compared = reported.correct.comparisons
    return NOT_FOUND if compared and compared[0].finding == "slower" else 0


def _watch(session: Session) -> Outcome:
    """Work on the run until it ends, show its progress, and return its outcome."""
    run, header = session.run, session.run.header
    title = f"{header.problem.name} on {header.platform} with {header.model} → {run.path}"
    earlier, _ = run.attempts(), run.outcome()  # a damaged run gets one error line and no other output
    with open_display(title) as display:
        for attempt in earlier:
            display.attempt(attempt)
        attempts = session.attempts(display.stage)
        while True:
            try:
                display.attempt(next(attempts))
            except StopIteration as end:
                outcome: Outcome = end.value
                return outcome


def _wait(run: RunFolder, waiting: WaitingForReplies, *, json: bool, is_ours: bool) -> int:
    """Print which questions wait for an answer, and how to continue the run. Returns the exit status."""
    questions = [each for each in Exchange(run.exchange).waiting() if each.name in waiting.pending]
    if json:
        documents.print_json({**documents.run(run, None), **waiting_document(questions), **whose(is_ours=is_ours)})
    for question in questions:
        note(f"waiting for a reply: read {question.prompt}, write {question.reply.name} in the same folder,")
        if question.name in waiting.empty:
            note(f"{question.reply.name} is there, but it is empty")
    note(f"and then run: {command('kforge', 'resume', run.path)}")
    return WAITING
