"""Writes the best program of a run so that it works without kforge: as a package, or in the format of another suite.

Nothing of the run is executed here; sources are read, changed in their imports of kforge, and written.
"""

from kforge.export.formats import FORMATS, export
from kforge.export.solution import Solution

__all__ = ["FORMATS", "Solution", "export"]
