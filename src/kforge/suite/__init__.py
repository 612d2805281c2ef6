"""Suites: every problem of one forged in turn, to a table that nobody has to add up by hand."""

from kforge.suite.metrics import Metrics, summarize
from kforge.suite.results import Result, result_of
from kforge.suite.runner import SuiteSession

__all__ = ["Metrics", "Result", "SuiteSession", "result_of", "summarize"]
