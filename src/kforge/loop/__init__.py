"""The loop: functional passes until a program is correct, then optimization passes; a generator of attempts.

    F: (problem, k[t-1], r[t-1]) → k[t]        the generation agent
    G: profile of k[t-1] → r[t-1]              the performance analysis agent

Every finished stage is in the run folder before the next begins, and every decision follows from the attempts alone:
a run that is killed at any point goes on as if nothing had happened, and repeats nothing that was finished.
"""

from kforge.loop.forging import forge
from kforge.loop.limits import RunLimits
from kforge.loop.measuring import measured_facts
from kforge.loop.proving import HeadToHeads, Prover
from kforge.loop.quiet import QuietMoments, look
from kforge.loop.turns import NoTurns, Turns
from kforge.loop.workshop import Workshop

__all__ = [
    "HeadToHeads",
    "NoTurns",
    "Prover",
    "QuietMoments",
    "RunLimits",
    "Turns",
    "Workshop",
    "forge",
    "look",
    "measured_facts",
]
