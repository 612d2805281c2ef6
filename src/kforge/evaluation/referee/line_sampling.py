"""Samples a running program from outside, and counts the processor's events. The worker reports to which lines of its
kernels the samples belong. (torch)"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING, Any

from kforge.evaluation.constants import MAX_CALLS_PER_BLOCK
from kforge.evaluation.timing.fresh_inputs import sets_in_memory
from kforge.evaluation.worker_client.hardware_counters import Counters, NoCounters
from kforge.records import AuthoredCode

if TYPE_CHECKING:
    from kforge.evaluation.worker_client.client import WorkerClient
    from kforge.evaluation.worker_client.code_ownership import CodePosition
    from kforge.problems.instance import Instance

SECONDS, PATIENCE = 1.0, 5.0
"""Seconds for which a program is sampled, and most seconds if it gives few samples."""
LEAST_SAMPLES = 400
"""Number of samples that suffices: a share of one half is then known to ±5 percentage points."""
BLOCK_SAMPLES = 2000
"""Most samples of one block."""
BLOCK_SECONDS = 0.25
"""Seconds of one block of calls. With shorter blocks, most of the time would go into preparing them."""


def sampled(client: WorkerClient, instance: Instance, seconds: float, output_bytes: int) -> AuthoredCode:
    """Return which lines of the program's kernels take the time of its calls. `seconds` is the time of one call.

    The worker must have built with line numbers. Raises Fault if the program fails.
    """
    if not client.traceable:
        return AuthoredCode(samples=0, share=0.0, missing="this system does not report program counters")
    inputs = instance.inputs(0)
    fitting = sets_in_memory(inputs, output_bytes, client.access.input_bytes)
    calls = max(1, min(int(BLOCK_SECONDS / max(seconds, 1e-9)), MAX_CALLS_PER_BLOCK, fitting))
    found: Counter[CodePosition] = Counter()
    begun = time.monotonic()
    while (spent := time.monotonic() - begun) < PATIENCE:
        if spent >= SECONDS and found.total() >= LEAST_SAMPLES:
            break
        client.block.prepare([inputs], times=calls)
        found.update(client.block.sample(BLOCK_SAMPLES))
    return client.explain(found).model_copy(update=_counted(client, inputs, calls))


def _counted(client: WorkerClient, inputs: list[Any], calls: int) -> dict[str, Any]:
    """Return the fields about the processor's events in one call, or why they cannot be counted."""
    client.block.prepare([inputs], times=calls)
    try:
        counters = Counters.open(client.pid)
    except NoCounters as reason:
        return {"counters": {}, "uncounted": str(reason)}
    with closing(counters):
        counters.start()
        client.block.run()
        return {"counters": {name: count / calls for name, count in counters.stop().items()}, "uncounted": ""}
