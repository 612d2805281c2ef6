"""kforge from Python: a live module in, a verified drop-in module out. (torch, when called)"""

from __future__ import annotations

import tempfile
import types
from pathlib import Path
from typing import TYPE_CHECKING

from kforge import settings
from kforge.errors import NothingCorrect
from kforge.session import Options, Session, choose_model, platform_at_hand

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import nn

    from kforge.store import RunFolder


def forge(
    module: nn.Module,
    example_inputs: Sequence[object],
    *,
    platform: str = "",
    model: str = "",
    analyst: str = "",
    iterations: int = 5,
    target_speedup: float = 0.0,
    precision: str = "strict",
    compile_baseline: bool = True,
    compile_mode: str = "default",
    runs: Path | None = None,
) -> nn.Module:
    """A faster module that does the same as `module` and holds the same weights.

    It has been verified and timed in processes of its own; `.receipt` says how, `.speedup` by how much, `.run` where
    everything is kept. Raises InputError for a module, platform or model that cannot be used, NothingCorrect when no
    attempt was correct, and WaitingForReplies when the run waits to be resumed.
    """
    from kforge.problems.live import from_module

    chosen = settings.load()
    name = choose_model(model, chosen)
    options = Options(
        platform=platform or platform_at_hand(chosen, model=name),
        model=name,
        analyst=analyst or name,
        iterations=iterations,
        target_speedup=target_speedup,
        precision=precision,
        compile_baseline=compile_baseline,
        compile_mode=compile_mode,
    )
    with tempfile.TemporaryDirectory(prefix="kforge-") as folder:
        problem = from_module(module, example_inputs, name=type(module).__name__, folder=Path(folder))
        with Session.begin(problem, options, chosen, root=runs or chosen.runs) as session:
            for _ in session.attempts():
                pass
            return load(session.run).train(module.training)


def load(run: RunFolder) -> nn.Module:
    """The best module of a live module's run, with that module's weights. Raises NothingCorrect."""
    import torch

    best = run.best()
    if best is None or best.candidate is None or best.evaluation is None or best.speedup is None:
        raise NothingCorrect(f"no attempt was correct; see {run.path}")
    source = types.ModuleType("kforge_best")
    exec(compile(best.candidate.source, str(run.best_path), "exec"), source.__dict__)  # noqa: S102 - verified
    fast: nn.Module = source.ModelNew()
    if (state := run.header.problem.state_path) is not None:
        fast.load_state_dict(torch.load(state, weights_only=True))
    for name, value in (("receipt", best.evaluation.receipt), ("speedup", best.speedup), ("run", run.path)):
        object.__setattr__(fast, name, value)
    return fast
