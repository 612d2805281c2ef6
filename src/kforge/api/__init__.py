"""kforge's Python interface: `forge` takes an nn.Module and returns a faster, verified module; `load` returns the
module of an earlier run."""

from kforge.api.forging import forge, load

__all__ = ["forge", "load"]
