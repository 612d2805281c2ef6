"""The options of a run: what they are, how they are read, and what must be true of them before a run begins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import ValidationError, field_validator, model_validator

from kforge.agents.sizing import MOST_TOKENS
from kforge.errors import InputError, ModelError, RunError
from kforge.loop import RunLimits
from kforge.models import ModelSettings, NamedImages, NamedSettings, ensemble, open_model
from kforge.profiling import picture
from kforge.records import Amount, Count, EvaluationPolicy
from kforge.records.faults import first_fault
from kforge.search import strategy
from kforge.smith import NAME as BUILTIN

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kforge.settings import Settings
    from kforge.store import Budgets, RunFolder

SMITH = "smith"
"""The value of the option `seed`: the model starts from the smith's program."""


class RunOptions(EvaluationPolicy):
    """The resolved options of a run: the rules by which its programs are evaluated, and its limits."""

    platform: str
    model: str
    analyst: str
    model_settings: NamedSettings = ModelSettings()
    """How the model of the generation agent is asked."""
    analyst_settings: NamedSettings = ModelSettings()
    """How the model of the performance analysis agent is asked."""
    iterations: Count = 5
    target_speedup: Amount = 0.0
    budget_minutes: Amount = 0.0
    budget_usd: Amount = 0.0
    budget_tokens: Count = 0
    replications: Count = 3
    sanitize: bool = True
    search: str = "linear"
    """Which attempts are continued: `linear`, `best-of:N`, `beam:K` or `tree`."""
    remember: bool = True
    """Whether programs of earlier runs on this device are told to the agents, and this run's best one is kept."""
    memory_without: str = ""
    """Names of problems, with wildcards and separated by commas, that the memory neither tells nor keeps."""
    seed: str = ""
    """`smith`: the smith writes the first program, and the model goes on from there."""
    plan: str = ""
    """The smith's first plan: the best one that it found before for this problem on this device."""
    reference: str = ""
    """Source of a reference implementation from another accelerator; empty if the user gave none."""
    reference_platform: str = ""
    """The platform that the reference implementation is for; empty where that is not known."""
    profile_as: Literal["text", "image", "both", "none"] = "text"
    """How the performance analysis agent gets a profile. `none`: no agent sees one, and optimization passes follow no
    recommendation; the loop profiles all the same, to stop near the roofline."""
    rewrites: bool = True
    """Whether the smith rewrites a problem's graph by algebraic rules before it writes kernels."""
    images: NamedImages = ()
    """Images from the user for the performance analysis agent."""
    prompts: Literal["structured", "zero-shot"] = "structured"
    """The template set by which the agents are asked."""
    prompt_tokens: Count = MOST_TOKENS
    """Tokens of a prompt above which its less important parts are left out."""

    @field_validator("search")
    @classmethod
    def _is_strategy(cls, name: str) -> str:
        strategy(name)
        return name

    @model_validator(mode="after")
    def _is_ensemble(self) -> Self:
        writers = self.writers
        strategy(self.search, len(writers))
        for name in writers:
            if writers.count(name) > 1:
                raise ValueError(f"the ensemble names {name} twice")
        if len(writers) > max(1, self.iterations):
            raise ValueError(f"{self.iterations} iterations are too few for {len(writers)} first programs")
        if len(writers) > 1 and self.seed == SMITH:
            raise ValueError("an ensemble gets the smith's program by naming builtin among the models, not by --seed")
        return self

    @property
    def writers(self) -> tuple[str, ...]:
        """Return the models of the generation agent: one, or those of an ensemble."""
        return ensemble(self.model)

    @property
    def is_drawn(self) -> bool:
        """Return whether profiles are drawn as images."""
        return self.profile_as in ("image", "both")

    @property
    def looks(self) -> bool:
        """Return whether the performance analysis agent is shown images."""
        return bool(self.images) or self.is_drawn

    @property
    def models(self) -> tuple[tuple[str, ModelSettings], ...]:
        """Return the models of the two agents, each once, with its settings."""
        writers = ((name, self.model_settings) for name in self.writers)
        return tuple(dict.fromkeys((*writers, (self.analyst, self.analyst_settings))))

    @property
    def policy(self) -> EvaluationPolicy:
        """Return the evaluation rules without the other options."""
        return EvaluationPolicy(**{name: getattr(self, name) for name in EvaluationPolicy.model_fields})

    @property
    def limits(self) -> RunLimits:
        return RunLimits(
            iterations=self.iterations,
            target_speedup=self.target_speedup,
            budget_seconds=self.budget_minutes * 60,
            counts_cost=bool(self.budget_usd or self.budget_tokens),
            replications=self.replications,
            sanitize=self.sanitize,
        )


def options_of(chosen: Mapping[str, object], origin: str) -> RunOptions:
    """Return the options that a run or suite was begun with. Raises RunError for invalid ones."""
    try:
        return RunOptions.model_validate(chosen)
    except ValidationError as error:
        raise RunError(f"{origin} is damaged: its option {_described(error)}") from error


def new_options(**chosen: Any) -> RunOptions:
    """Return the options for a new run. An absent analyst is the (first) model, and absent settings of it are the
    model's.

    A value of None stands for the option's default. Raises InputError for a value that is out of bounds.
    """
    chosen = {name: value for name, value in chosen.items() if value is not None}
    writers = ensemble(chosen.get("model", ""))
    # the smith recommends for its own programs only
    usual = next((name for name in writers if name != BUILTIN), writers[0])
    chosen["analyst"] = chosen.get("analyst") or usual
    chosen["analyst_settings"] = chosen.get("analyst_settings") or chosen.get("model_settings", "")
    try:
        return RunOptions(**chosen)
    except ValidationError as error:
        raise InputError(f"option {_described(error)}") from error


def _described(error: ValidationError) -> str:
    """Return which option is wrong, and why, in one line."""
    fault = first_fault(error)
    return str(fault._replace(field=fault.field or "model"))  # only an ensemble concerns several options


def first_writer(model: str, seed: str) -> str:
    """Return what writes the first program of a run: the model, or the smith."""
    return BUILTIN if seed == SMITH else model


def choose_model(given: str, settings: Settings) -> str:
    """Return the model asked for, or the configured one, or the smith, which needs none."""
    return given or settings.model or BUILTIN


def extend(run: RunFolder, options: RunOptions, budgets: Budgets) -> RunOptions:
    """Return the options of a run with the larger budgets that it got since it began, and with those given now.

    Raises InputError for a budget that is not larger than the one before, and for a run that ended for another reason.
    """
    options = options.model_copy(update=run.budgets().given)
    if not budgets.given:
        return options
    for name, value in budgets.given.items():
        if 0 < value <= (before := getattr(options, name)):
            raise InputError(f"--{name.replace('_', '-')} must be larger than before, {before:g}, not {value:g}")
    outcome = run.outcome()
    if outcome is not None and not outcome.is_budget_spent:
        raise InputError(f"run {run.id} has ended, and not for its budget: {outcome.stopped}")
    with run.writing():
        run.reopen(run.budgets().model_copy(update=budgets.given))
    return options.model_copy(update=budgets.given)


def check_models(options: RunOptions, settings: Settings) -> tuple[str, ...]:
    """Return which settings of the options' models are not used, a line for each model.

    Raises ModelError for a model that cannot be opened, and for one without a price where there is a budget in dollars.
    """
    remarks = []
    for name, how in options.models:
        if name != BUILTIN:
            model = open_model(name, exchange=settings.runs, keys=settings.keys, settings=how)
            if options.budget_usd and model.price.cost(1, 1) is None:
                raise ModelError(
                    f"--budget-usd cannot be kept: the price of {name} is not known; give it with price_in and "
                    "price_out in --model-settings, in US dollars for a million tokens"
                )
            remarks.append(model.remark)
        elif str(how):
            remarks.append("the built-in generator takes no settings of models")
    return tuple(dict.fromkeys(filter(None, remarks)))


def check_images(options: RunOptions) -> None:
    """Raise InputError if images are wanted but the analyst reads no images, or if no package here can draw them."""
    if options.looks and options.analyst == BUILTIN:
        raise InputError(
            "images are for a model, and the built-in analyst reads text only: name a model with -m or --analyst"
        )
    if options.is_drawn:
        picture.check_installed(f"--profile-as {options.profile_as}")
