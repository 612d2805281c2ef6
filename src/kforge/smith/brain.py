"""The smith's two agents: the generation agent (F) writes a program from a plan, and the analysis agent (G) recommends
to change one choice of the plan.

Neither agent runs a candidate. Tracing does run the user's code, because it calls the problem's own module.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Concatenate, NamedTuple, ParamSpec, Self, TypeVar

from kforge.errors import NothingLeft
from kforge.problems.instance import instantiate
from kforge.records import Candidate, Correct, Problem, Profile, Recommendation, Usage, Workload
from kforge.roles import Advice, Answer, Failed, Tried
from kforge.smith import NAME, program
from kforge.smith.frontend.trace import Untraceable, trace
from kforge.smith.languages import find
from kforge.smith.plan import Plan
from kforge.smith.rewrite import ALGEBRAIC, simplify

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kforge.platforms import Platform
    from kforge.records import Attempt
    from kforge.roles import Generator
    from kforge.smith.ir.graph import Graph
    from kforge.smith.plan import Move

ALL_LEFT = "the built-in generator writes no kernel for these operators and types here, and leaves all of them to torch"
"""Why a program without kernels is no result."""
LABEL = "algebraic"
"""Label of a program whose graph was changed by an algebraic rule: it computes the same result by other operations."""


P = ParamSpec("P")
T = TypeVar("T")


def _in_turn(method: Callable[Concatenate[Smith, P], T]) -> Callable[Concatenate[Smith, P], T]:
    """Return the method, wrapped so that each call runs inside `self.turn()`."""

    @wraps(method)
    def in_turn(self: Smith, /, *arguments: P.args, **named: P.kwargs) -> T:
        with self.turn():
            return method(self, *arguments, **named)

    return in_turn


class _Made(NamedTuple):
    """A program, and how it was made."""

    source: str
    rules: tuple[str, ...]
    """Names of the rules that rewrote the graph."""
    why_unchanged: str | None
    """Why the program does only what the original module does; None if it does something else."""


class Smith:
    """The built-in generator for one platform: both the generation agent and the analysis agent."""

    reads_history = False

    def __init__(
        self, platform: Platform, plan: str = "", *, rewrites: bool = True, reads_profiles: bool = True
    ) -> None:
        """`plan` is the plan of the first program, as the text of the first line of a program that the smith wrote. It
        may come from a program in another language. Empty: the smith chooses the first plan.

        `rewrites`: whether graphs may be rewritten by algebraic rules. `reads_profiles`: whether a profile decides
        which changes are worth a try; otherwise all are, in their fixed order.
        """
        self.platform = platform
        self.turn: Callable[[], AbstractContextManager[object]] = nullcontext
        """Returns a context manager that is entered for each answer. A caller that uses several smiths at once sets it,
        because tracing occupies a processor and changes global state of torch."""
        self.language = find(platform)
        self._features = platform.adapter.features()
        self._plan = Plan if self.language is None else self.language.plan
        self._moves = () if self.language is None else self.language.moves
        self._given = (self._plan.read(plan) or self._plan.carried_over(plan, self._features)) if plan else None
        self._rewrites = rewrites
        self._reads_profiles = reads_profiles
        self._graphs: dict[str, Graph | Untraceable] = {}

    def at(self, step: int, attempts: Sequence[Attempt] = ()) -> Self:  # noqa: ARG002 - one agent for all attempts
        return self

    # --- F --------------------------------------------------------------------------------------------------------

    @_in_turn
    def write(self, problem: Problem, workload: Workload) -> Answer:  # noqa: ARG002 - the protocol has it
        plan = self._given
        if plan is None or not plan.kernels:  # a plan without kernels gives the module itself, which is no result
            plan = self._plan.first(self._features)
        return self._made(problem, plan if self.language is not None else replace(plan, kernels=0))

    @_in_turn
    def repair(
        self,
        problem: Problem,
        workload: Workload,  # noqa: ARG002
        candidate: Candidate | None,
        verdict: Failed,
        *,
        repeats: int = 0,  # noqa: ARG002
    ) -> Answer:
        """Return a program made from a simpler plan; the kind of failure does not matter.

        Raises NothingLeft if no simpler plan gives another program.
        """
        plan = None if candidate is None else self._plan.of(candidate.source)
        simpler = self._after_failure(plan) if plan is not None else self._plan(algebra=0, kernels=0)
        while simpler is not None and candidate is not None and not self._changes(problem, simpler, candidate):
            simpler = simpler.simpler()
        if simpler is None:
            raise NothingLeft("the original module, unchanged, fails as well")
        said = f"{verdict.state.replace('_', ' ')}: {verdict.reason}"
        return self._made(
            problem, simpler, f"the built-in generator's programs with kernels fail; the last one: {said}"
        )

    def _after_failure(self, plan: Plan) -> Plan | None:
        """Return the plan to try after `plan` failed, or None if there is no simpler one.

        If the failed plan was given by the caller (it was fast on another problem or device), the language's own first
        plan comes next.
        """
        own = self._plan.first(self._features)
        return own if plan == self._given and plan != own else plan.simpler()

    @_in_turn
    def optimize(
        self,
        problem: Problem,
        workload: Workload,  # noqa: ARG002
        candidate: Candidate,
        verdict: Correct,  # noqa: ARG002
        recommendation: Recommendation,
        tried: Sequence[Tried] = (),  # noqa: ARG002
    ) -> Answer:
        plan = self._plan.of(candidate.source) or self._plan()
        move = next((each for each in self._moves if each.action == recommendation.action), None)
        if move is None:
            raise NothingLeft("the built-in generator can only follow its own recommendations")
        return self._made(problem, move.applied(plan))

    # --- G --------------------------------------------------------------------------------------------------------

    @_in_turn
    def recommend(
        self,
        problem: Problem,
        workload: Workload,  # noqa: ARG002
        candidate: Candidate,
        profile: Profile,
        tried: Sequence[Tried] = (),
        untried: Sequence[Recommendation] = (),  # noqa: ARG002
    ) -> Advice:
        """Return the first change of the plan that gives another program, suits the profile and was not tried before.

        Raises NothingLeft if there is no such change, or if the smith did not write the candidate.
        """
        if (plan := self._plan.of(candidate.source)) is None:
            raise NothingLeft("the built-in generator can only recommend for programs that it wrote")
        past = {each.recommendation.action for each in tried}
        for move in self._moves:
            if move.action not in past and self._is_worth_it(problem, plan, move, candidate, profile):
                return Advice(recommendation=_recommendation(move, profile), requests=(), usage=Usage())
        raise NothingLeft("the built-in generator has no further change to try")

    def _is_worth_it(self, problem: Problem, plan: Plan, move: Move, candidate: Candidate, profile: Profile) -> bool:
        present = getattr(plan, move.knob)
        if present == move.value or not (present or move.from_none) or not plan.kernels:
            return False
        if self._reads_profiles and not move.when(profile):
            return False
        return self._changes(problem, move.applied(plan), candidate)

    def _changes(self, problem: Problem, plan: Plan, candidate: Candidate) -> bool:
        """Return whether `plan` gives a program that differs from the candidate, apart from the first line, which only
        states the plan."""
        return self._source(problem, plan).partition("\n")[2] != candidate.source.partition("\n")[2]

    # --- programs -------------------------------------------------------------------------------------------------

    def _made(self, problem: Problem, plan: Plan, no_kernels: str = "") -> Answer:
        """Return the answer with the program for a plan.

        `no_kernels` is the reason to report if the plan switches kernels off, so that the program is the unchanged
        module.
        """
        made = self._program(problem, plan)
        candidate = Candidate(source=made.source, platform=self.platform.manifest.name)
        return Answer(
            candidate=candidate,
            requests=(f"{NAME}:{candidate.digest[:16]}",),
            usage=Usage(),
            labels=(LABEL,) if not ALGEBRAIC.isdisjoint(made.rules) else (),
            unchanged=made.why_unchanged or (no_kernels if not plan.kernels else None),
        )

    def _source(self, problem: Problem, plan: Plan) -> str:
        return self._program(problem, plan).source

    def _program(self, problem: Problem, plan: Plan) -> _Made:
        """Return the program for this plan."""
        if (reason := self._why_no_kernels(problem)) is not None or not plan.kernels:
            return _Made(f"{plan.line()}\n{program.unchanged(problem, reason or '')}", (), reason)
        graph, rules = self._graph(problem), tuple[str, ...]()
        assert self.language is not None
        assert not isinstance(graph, Untraceable)
        if plan.algebra and self._rewrites:
            graph, rules = simplify(graph, self.language.rules)
        said = f"# Rewritten by: {', '.join(rules)}\n" if rules else ""
        written = program.write(problem, graph, self.language, plan)
        return _Made(f"{plan.line()}\n{said}{written.source}", rules, None if written.is_own or rules else ALL_LEFT)

    def _why_no_kernels(self, problem: Problem) -> str | None:
        """Return why no plan can give kernels for this problem, or None if kernels are possible."""
        if self.language is None:
            return f"the built-in generator has no kernel language for platform {self.platform.name}"
        graph = self._graph(problem)
        if isinstance(graph, Untraceable):
            return f"the module cannot be traced: {graph}"
        if len(graph.nodes) > self.language.most_nodes:  # for example an unrolled loop over many steps
            most = self.language.most_nodes
            return f"the module has {len(graph.nodes)} operators, and kernels are built for at most {most}"
        return None

    def _graph(self, problem: Problem) -> Graph | Untraceable:
        if problem.digest not in self._graphs:
            try:
                self._graphs[problem.digest] = trace(instantiate(problem))
            except Untraceable as error:
                self._graphs[problem.digest] = error
        return self._graphs[problem.digest]


class Seeded:
    """A generation agent whose first program comes from the smith. Another agent, such as a model, makes every later
    program."""

    def __init__(self, smith: Smith, agent: Generator) -> None:
        self.write = smith.write
        self.repair = agent.repair
        self.optimize = agent.optimize
        self._smith = smith
        self._agent = agent

    def at(self, step: int, attempts: Sequence[Attempt] = ()) -> Seeded:
        return Seeded(self._smith, self._agent.at(step, attempts))


def _recommendation(move: Move, profile: Profile) -> Recommendation:
    hottest = profile.hot_spots[0].name if profile.hot_spots else "the whole program"
    return Recommendation(
        bottleneck=move.bottleneck,
        action=move.action,
        rationale=move.rationale,
        evidence=f"{hottest}; {profile.roofline_share:.0%} of what the device allows",
        expected_gain="to be measured",
    )
