"""Explains where the time goes inside the C++ kernels of a program on a host: by loop and by line, with the compiler's
report on each loop and the registers that the sampled instructions use.

The referee takes the samples from outside, by stopping the worker at random moments. The worker explains them, because
only its sandbox should open files that a candidate has built. So an explanation is advice, and never part of a verdict.
"""

from kforge.profiling.authored.explanation import Position, explain

__all__ = ["Position", "explain"]
