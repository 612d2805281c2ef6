"""kforge's Python interface: `forge` takes an nn.Module and returns a faster, verified module, and `load` returns the
module of an earlier run. `evaluate` and `profile` judge one program; `forge_suite` forges every problem of a suite."""

from kforge.api.forging import forge, load
from kforge.api.judging import evaluate, profile
from kforge.api.suites import SuiteResult, forge_suite

__all__ = ["SuiteResult", "evaluate", "forge", "forge_suite", "load", "profile"]
