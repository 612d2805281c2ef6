"""`kforge.forge_suite`: forges every problem of a suite. (`kforge.suite` is a package, and cannot be a function.)"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from kforge import settings
from kforge.api.arguments import ForgeOptions, check_options, known_keywords
from kforge.api.progress import telling
from kforge.errors import InputError
from kforge.problems import open_suite
from kforge.run_options import choose_model, new_options
from kforge.session import platform_at_hand
from kforge.suite.runner import SuiteSession, metrics_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from kforge.suite import Metrics, ProblemResult


@dataclass(frozen=True)
class SuiteResult:
    """The results of all problems of a suite."""

    path: Path
    """The suite's folder, which `kforge show`, `resume` and `report` take."""
    results: tuple[ProblemResult, ...]
    """One for each problem, in the order of the suite."""
    metrics: Metrics
    """States, shares and means over all problems."""
    families: dict[str, Metrics]
    """The same for each family of problems."""


@known_keywords
def forge_suite(
    name: str | Path,
    *,
    platform: str = "",
    model: str = "",
    workload: str = "",
    only: str = "",
    runs: str | Path | None = None,
    progress: Callable[[str], None] | bool | None = None,
    **options: Unpack[ForgeOptions],
) -> SuiteResult:
    """Forge every problem of a suite in turn, as the command `kforge suite` does, and return all results.

    `name` is a folder of problems, a checkout of another suite, or a suite that comes with kforge, such as "core".
    `only` takes patterns of names. The other arguments are those of `kforge.forge`; budgets are for each problem. A
    problem that fails does not stop the others. An interrupted suite goes on by `kforge resume`.

    Raises InputError if there is no such suite, or if an argument, the platform or the model cannot be used.
    """
    check_options(options)
    if options.get("images"):
        raise InputError("images are for one problem: kforge.forge takes them")
    chosen = settings.load()
    writer = choose_model(model, chosen)
    choice = new_options(**options, platform=platform or platform_at_hand(chosen, model=writer), model=writer)
    root = Path(runs) if runs is not None else chosen.runs
    session = SuiteSession.begin(open_suite(str(name)), choice, chosen, root=root, workload=workload, only=only)
    with telling(progress) as tell, closing(session.work(lambda task, text: tell(f"{task.name}: {text}"))) as results:
        for result in results:
            tell(f"{result.name}: {result.state.replace('_', ' ')}")
    overall, families = metrics_of(session.folder, session.results)
    return SuiteResult(session.folder.path, tuple(session.results), overall, dict(families))
