"""The facts that both agents get with every question: rules, measurements, and how prompts are written."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kforge.agents.facts import MeasuredFacts
from kforge.agents.sizing import MOST_TOKENS
from kforge.prompts import STRUCTURED
from kforge.records import EvaluationPolicy

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Briefing:
    """The facts and settings that all questions of a run share."""

    policy: EvaluationPolicy = field(default_factory=EvaluationPolicy)
    measured: MeasuredFacts = field(default_factory=MeasuredFacts)
    template_set: str = STRUCTURED
    most_tokens: int = MOST_TOKENS
    """Tokens of a prompt above which its less important parts are left out."""
    remembered: Sequence[object] = ()
    """Programs of earlier runs, as the template `_remembered` shows them."""
