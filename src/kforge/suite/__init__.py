"""Runs kforge on every problem of a suite in turn, and summarizes the results in a table."""

from kforge.metrics import Metrics, ProblemResult, summarize
from kforge.suite.results import result_of
from kforge.suite.runner import SuiteSession

__all__ = ["Metrics", "ProblemResult", "SuiteSession", "result_of", "summarize"]
