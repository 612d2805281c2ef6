"""Runs kforge on every problem of a suite in turn, and summarizes the results in a table."""

from kforge.suite.metrics import Metrics, summarize
from kforge.suite.results import ProblemResult, result_of
from kforge.suite.runner import SuiteSession

__all__ = ["Metrics", "ProblemResult", "SuiteSession", "result_of", "summarize"]
