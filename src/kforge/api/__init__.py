"""kforge from Python: a live module in, a verified drop-in module out."""

from kforge.api.forging import forge, load

__all__ = ["forge", "load"]
