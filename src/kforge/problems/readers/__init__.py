"""Readers of suites: one small module for each format, behind one protocol. Nothing of a suite is executed."""

from kforge.problems.readers.protocol import HELD_OUT, TIMED, Entry, SuiteReader, Variant
from kforge.problems.readers.registry import find_reader
from kforge.problems.readers.writing import reason_of

__all__ = ["HELD_OUT", "TIMED", "Entry", "SuiteReader", "Variant", "find_reader", "reason_of"]
