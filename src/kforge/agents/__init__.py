"""The two agents of the loop, on top of a model. They write and read programs, and never execute one."""

from kforge.agents.analysis import AnalysisAgent
from kforge.agents.briefing import Briefing
from kforge.agents.facts import MeasuredFacts
from kforge.agents.generation import GenerationAgent, ReferenceProgram
from kforge.agents.no_analysis import NoAnalysis
from kforge.roles import Advice, Analyst, Answer, Failed, Generator, Tried

__all__ = [
    "Advice",
    "AnalysisAgent",
    "Analyst",
    "Answer",
    "Briefing",
    "Failed",
    "GenerationAgent",
    "Generator",
    "MeasuredFacts",
    "NoAnalysis",
    "ReferenceProgram",
    "Tried",
]
