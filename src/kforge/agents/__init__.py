"""The two agents of the loop, on top of a model. They write and read programs, and never execute one."""

from kforge.agents.analysis import AnalysisAgent
from kforge.agents.generation import GenerationAgent, ReferenceProgram
from kforge.roles import Advice, Analyst, Answer, Failed, Generator, Tried

__all__ = [
    "Advice",
    "AnalysisAgent",
    "Analyst",
    "Answer",
    "Failed",
    "GenerationAgent",
    "Generator",
    "ReferenceProgram",
    "Tried",
]
