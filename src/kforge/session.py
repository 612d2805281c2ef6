"""Connects the parts of one run: problem, platform, agents, judge and run folder.

The command line and `kforge.forge` both use this module; neither connects the parts itself.
"""

from __future__ import annotations

import math
import os
import time
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Self

from kforge import platforms
from kforge.agents import AnalysisAgent, Briefing, GenerationAgent, NoAnalysis, ReferenceProgram
from kforge.errors import PlatformError
from kforge.evaluation import Judge
from kforge.loop import NoTurns, QuietMoments, Turns, Workshop, forge, look, measured_facts
from kforge.models import CallBudget, ModelSettings, is_remote, open_model
from kforge.run_options import SMITH, RunOptions, check_images, check_models, extend, first_writer, options_of
from kforge.search import strategy
from kforge.smith import NAME as BUILTIN
from kforge.smith import writes_for
from kforge.smith.memory import PlanMemory
from kforge.smith.plan import said_in
from kforge.store import Budgets, Consent, Header, RunFolder, trust
from kforge.store.carried import find_images
from kforge.store.program_memory import ProgramMemory, Remembered, is_named

if TYPE_CHECKING:
    from collections import abc
    from collections.abc import Callable, Sequence

    from kforge.models import LanguageModel
    from kforge.platforms import Manifest, Platform
    from kforge.records import Attempt, EvaluationPolicy, Outcome, Problem
    from kforge.roles import Analyst, Generator
    from kforge.settings import Settings
    from kforge.smith.brain import Smith


AT_ONCE = 4
"""Most model calls in flight: few enough for the limits of every provider, and a device judges one program after the
other anyway."""


def usable_platform(name: str, settings: Settings, extra: Sequence[Path] = ()) -> Platform:
    """Return the platform of this name, or the default one. Raises PlatformError if it is unknown or unusable here."""
    name = name or platform_at_hand(settings, extra)
    platform = platforms.find(name, (*settings.platform_dirs, *extra))
    if (reason := platform.adapter.probe()) is not None:
        raise PlatformError(f"platform {name} is not available here: {reason}")
    return platform


def platform_at_hand(settings: Settings, extra: Sequence[Path] = (), *, model: str = "") -> str:
    """Return the name of the platform to use when the user names none. Raises PlatformError if no platform
    is available.

    `model`: what writes the first program, if one is to be written. For the smith, a platform for which it has a kernel
    language is preferred.
    """
    folders = (*settings.platform_dirs, *extra)
    return platforms.at_hand(folders, writes_for).name if model == BUILTIN else platforms.at_hand(folders).name


def open_judge(
    platform: Platform,
    settings: Settings,
    policy: EvaluationPolicy | None = None,
    private: Sequence[Path] = (),
    kind: Callable[..., Judge] = Judge,
) -> Judge:
    """Open a judge for this platform. The caller closes it, which ends all its processes.

    `private`: paths that no candidate may see, in addition to those of the settings. `kind`: the class or function that
    makes the judge.
    """
    return kind(
        platform,
        policy,
        cache=settings.cache,
        environment=settings.child_environment,
        limits=settings.limits,
        private=(*settings.private, *private),
    )


class Session:
    """A run, worked on by its agents and its judge. Use it in a `with` statement: the judge's processes end with it."""

    def __init__(
        self,
        run: RunFolder,
        options: RunOptions,
        settings: Settings,
        platform: Platform,
        judge: Judge,
        *,
        lent: bool = False,
        began: float | None = None,
    ) -> None:
        """`lent`: the caller owns the judge, which is not closed. `began`: when the session began, by `time.monotonic`;
        now if absent."""
        self.run = run
        self.options = options
        self.settings = settings
        self.platform = platform
        self.judge = judge
        self._lent = lent
        self._watch: Callable[[str], None] = lambda _: None
        self._began = time.monotonic() if began is None else began
        self._budget = CallBudget()
        self.remarks: tuple[str, ...] = ()
        """What the user must know before the first call, a line each."""
        self.turns: Turns = NoTurns()
        """Waits while other runs use the machine. The caller that works on several runs at once sets it."""

    @classmethod
    def begin(
        cls,
        problem: Problem,
        options: RunOptions,
        settings: Settings,
        *,
        root: Path,
        extra: Sequence[Path] = (),
        judge: Judge | None = None,
        plan: str | None = None,
        watch: Callable[[str], None] = lambda _: None,
    ) -> Self:
        """Create the run folder. Raises InputError for every error that can be found before the first model call.

        `judge`: an open judge for these options; the session does not close it. `plan`: the smith's first plan; None
        for the best one that it remembers, or else that of the reference implementation. `watch` gets progress reports,
        because the problem is run here for the first time.
        """
        began = time.monotonic()
        check_images(options)
        platform = usable_platform(options.platform, settings, extra)
        remarks = check_models(options, settings)  # a bad name fails before a run exists
        _origin_of_reference(options, settings, extra)  # an unknown platform also fails before a run exists
        lent = judge is not None
        judge = judge or open_judge(platform, settings, options.policy, [root])
        judge.on_stage = watch
        try:
            workload = judge.describe(problem)
            if first_writer(options.model, options.seed) == BUILTIN:
                # kept in the header, so that a resumed run begins with the same plan
                if plan is None:
                    plan = _recalled_plan(problem, options, settings, judge)
                    plan = plan or said_in(options.reference) or ""
                options = options.model_copy(update={"plan": plan})
            header = Header.new(
                problem=problem,
                workload=workload,
                platform=options.platform,
                model=options.model,
                analyst=options.analyst,
                options={**options.model_dump(), "platform_dirs": os.pathsep.join(str(p.absolute()) for p in extra)},
            )
            run = RunFolder.create(root, header, settings.signing_key, options.images)
            session = cls(run, options, settings, platform, judge, lent=lent, began=began)
            session.remarks = remarks
            return session
        except BaseException:
            if not lent:
                judge.close()
            raise

    @classmethod
    def resume(
        cls,
        run: RunFolder,
        settings: Settings,
        judge: Judge | None = None,
        consent: Consent | None = None,
        budgets: Budgets | None = None,
    ) -> Self:
        """Return the session of a run that was begun before, with the run's own options. `judge` is as in `begin`.

        `consent`: what the user permits if others began the run. `budgets`: larger budgets, with which a run that has
        spent its own goes on. Raises InputError if the run cannot be resumed, or if a permission is missing.
        """
        began = time.monotonic()
        run.check_parts()
        consent = consent or Consent()
        run.admit(settings.signing_key, consent)
        run.hold_to(settings.signing_key, trusted=consent.trust)
        chosen = dict(run.header.options)
        extra = [Path(part) for part in trust.folders_of(chosen.pop("platform_dirs", ""))]
        options = extend(run, options_of(chosen, str(run.path)), budgets or Budgets())
        options = options.model_copy(update={"images": find_images(options.images, run.path)})
        check_images(options)
        platform = usable_platform(options.platform, settings, extra)
        opened = judge or open_judge(platform, settings, options.policy, [run.path.parent])
        return cls(run, options, settings, platform, opened, lent=judge is not None, began=began)

    def attempts(self, watch: Callable[[str], None] = lambda _: None) -> abc.Generator[Attempt, None, Outcome]:
        """Continue the run until it ends. Yields each new attempt, and returns the outcome.

        A run that has ended yields nothing. `watch` is called with a line for each step.

        Raises what `kforge.loop.forge` raises, and RunError when another process works on the run.
        """
        if (outcome := self.run.outcome()) is not None:
            return outcome
        self.judge.on_stage = self._watch = watch
        with self.run.writing():
            self._budget = self._new_budget()
            self.judge.warm()
            generators = tuple(map(self._generator, self.options.writers))
            workshop = Workshop(
                generator=generators[0],
                further=generators[1:],
                analyst=self._analyst(),
                judge=self.judge,
                watch=watch,
                search=strategy(self.options.search, len(generators)),
                quiet=QuietMoments(
                    self.settings.limits.longest_timing, self.options.budget_minutes * 60, watch, self._look
                ),
                turns=self.turns,
                at_once=AT_ONCE if all(is_remote(name) for name, _ in self.options.models) else 1,
            )
            outcome = yield from forge(self.run, workshop, self.options.limits, self._began)
        self._remember(outcome)
        return outcome

    def _look(self, seconds: float) -> float:
        """Return the share of the machine that other processes use. No other run of this process works meanwhile."""
        with self.turns.alone():
            return look(seconds)

    def _remember(self, outcome: Outcome) -> None:
        """Keep the result for later runs: the smith's plan, or a model's program that stayed correct and is faster."""
        best, header, reported = self.run.best(), self.run.header, self.run.reported()
        if best is None or reported is None or not self.run.is_signed(self.settings.signing_key):
            return
        if not _may_remember(header.problem, self.options):
            return
        if self._is_smiths(best):
            _memory_of(self.options, self.settings).keep(header.problem, best)
        elif outcome.replication is not None:
            attempts = self.run.attempts()
            lineage = [best]
            while (parent := lineage[0].parent) is not None:
                lineage.insert(0, attempts[parent])
            if (found := Remembered.of(header.problem, header.workload, lineage, reported)) is not None:
                self._programs(reported.receipt.device).keep(found)

    def _recalled(self) -> tuple[Remembered, ...]:
        """Return programs of earlier runs for other problems that are like this one."""
        if not self.options.remember:
            return ()
        header, without = self.run.header, self.options.memory_without
        return self._programs(self.judge.device()).recall(header.problem, header.workload, without)

    def _programs(self, device: str) -> ProgramMemory:
        return ProgramMemory(self.settings.cache, device, self.options.platform, self.options.policy)

    def _new_budget(self) -> CallBudget:
        """Return what is left of the run's budgets. Time before an interruption counts until the last attempt."""
        options, attempts = self.options, self.run.attempts()
        earlier = attempts[-1].elapsed if attempts else 0.0
        seconds = options.budget_minutes * 60 - earlier if options.budget_minutes else math.inf
        return CallBudget(
            usd=options.budget_usd,
            tokens=options.budget_tokens,
            minutes=options.budget_minutes,
            ends=self._began + seconds,
            waited=lambda: self.turns.waited,
        )

    def _is_smiths(self, attempt: Attempt) -> bool:
        """Return whether the smith made this program for this user, by the run's signed options, not by the source."""
        options = self.options
        writer = first_writer(options.writers[attempt.index % len(options.writers)], options.seed)
        by_smith = options.model == BUILTIN or (attempt.parent is None and writer == BUILTIN)
        return by_smith and self.run.is_signed(self.settings.signing_key)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._lent:
            self.judge.close()

    def _generator(self, name: str) -> Generator:
        """Return the generation agent on this model. In an ensemble another model goes on with the smith's program."""
        others = [each for each in self.options.writers if each != BUILTIN]
        if not others:
            return self._smith()
        agent = GenerationAgent(
            self._model(others[0] if name == BUILTIN else name, self.options.model_settings, "generation agent"),
            self.platform,
            briefing=self._briefing,
            reference=self._reference(),
        )
        if name != BUILTIN and self.options.seed != SMITH:
            return agent
        from kforge.smith.brain import Seeded

        return Seeded(self._smith(), agent)

    @cached_property
    def _briefing(self) -> Briefing:
        """Facts that agents on models get with every question. They are measured when they are first needed."""
        return Briefing(
            policy=self.options.policy,
            measured=measured_facts(self.judge, self.run.header.problem),
            template_set=self.options.prompts,
            most_tokens=self.options.prompt_tokens,
            remembered=self._recalled(),
        )

    def _reference(self) -> ReferenceProgram | None:
        """Return the reference implementation from another platform; None if the user gave none. Raises PlatformError
        if that platform is not known here."""
        if not self.options.reference:
            return None
        extra = trust.folders_of(self.run.header.options.get("platform_dirs", ""))
        origin = _origin_of_reference(self.options, self.settings, [Path(part) for part in extra])
        return ReferenceProgram(self.options.reference, origin)

    def _analyst(self) -> Analyst:
        if self.options.analyst == BUILTIN:
            return self._smith()
        if self.options.profile_as == "none":
            return NoAnalysis()
        return AnalysisAgent(
            self._model(self.options.analyst, self.options.analyst_settings, "performance analysis agent"),
            self.platform,
            briefing=self._briefing,
            profile_as=self.options.profile_as,
            images=self.options.images,
        )

    def _smith(self) -> Smith:
        self._watch("starting the built-in generator")
        with self.turns.in_process():
            smith = smith_of(self.platform, self.options)
        smith.turn = self.turns.in_process
        return smith

    def _model(self, name: str, settings: ModelSettings, agent: str) -> LanguageModel:
        def tell(detail: str) -> None:
            self._watch(f"asking the {agent}: {detail}")

        return open_model(
            name,
            exchange=self.run.exchange,
            keys=self.settings.keys,
            settings=settings,
            budget=self._budget,
            tell=tell,
        )


def _origin_of_reference(options: RunOptions, settings: Settings, extra: Sequence[Path]) -> Manifest | None:
    """Return the manifest of the platform that the reference implementation is for; None if no option names it.

    Raises PlatformError for a platform that is not known here.
    """
    if not options.reference_platform:
        return None
    return platforms.find(options.reference_platform, (*settings.platform_dirs, *extra)).manifest


def smith_of(platform: Platform, options: RunOptions) -> Smith:
    """Return the smith for these options."""
    from kforge.smith.brain import Smith  # imports torch, which nothing else here does

    reads = options.profile_as != "none"
    return Smith(platform, options.plan, rewrites=options.rewrites, reads_profiles=reads)


def build_ahead(problem: Problem, options: RunOptions, settings: Settings, platform: Platform, judge: Judge) -> None:
    """Build what the first iteration of a run with these options needs, as far as it is known in advance.

    Raises what `Judge.build` raises.
    """
    candidate = None
    if first_writer(options.model, options.seed) == BUILTIN:
        plan = _recalled_plan(problem, options, settings, judge)
        options = options.model_copy(update={"plan": plan})
        candidate = smith_of(platform, options).write(problem, judge.describe(problem)).candidate
    judge.build(problem, candidate)


def _memory_of(options: RunOptions, settings: Settings) -> PlanMemory:
    return PlanMemory(settings.cache, options.platform, options.policy)


def _recalled_plan(problem: Problem, options: RunOptions, settings: Settings, judge: Judge) -> str:
    """Return the smith's plan that was best for this problem on this device; empty if none is known or wanted."""
    return _memory_of(options, settings).recall(problem, judge.device()) if _may_remember(problem, options) else ""


def _may_remember(problem: Problem, options: RunOptions) -> bool:
    """Return whether results for this problem may be kept and used in later runs."""
    return options.remember and not is_named(problem.name, options.memory_without)
