"""A worker that is killed while it is held still: what it left behind cannot be read, and that is no lie of it."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest
import torch

from kforge import problems
from kforge.evaluation.worker_client.client import Fault, WorkerClient
from kforge.problems.instance import instantiate
from kforge.records import RuntimeFailure

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PROBLEM = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        return x + 1

def get_inputs():
    return [torch.randn(8)]

def get_init_inputs():
    return []
"""


def test_a_worker_that_is_killed_before_its_output_is_read_died(
    client: Callable[[Path | None], WorkerClient], tmp_path: Path
) -> None:
    (tmp_path / "problem.py").write_text(PROBLEM)
    worker = client(None)
    worker.load(PROBLEM, "problem.py", "Model")
    worker.construct(instantiate(problems.load(tmp_path / "problem.py")), 1)
    worker.block.prepare([[torch.ones(8)], [torch.ones(8)]])
    worker.block.run()
    assert torch.equal(worker.block.output(0), torch.full((8,), 2.0))
    os.kill(worker.pid, signal.SIGKILL)
    with pytest.raises(Fault) as caught:
        read_until_it_is_gone(worker)
    assert isinstance(caught.value.verdict, RuntimeFailure)
    assert caught.value.verdict.fault == "died"
    assert caught.value.verdict.reason == "the process was killed by SIGKILL"


def read_until_it_is_gone(worker: WorkerClient) -> None:
    """The kernel may take a moment."""
    for _ in range(10_000):
        worker.block.output(1)
