"""Makes the forged module that a user gets, from a finished run. (torch)"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from kforge.api.as_called import SLOWER, speedup_as_called
from kforge.drop_in import FallbackWarning, SpeedWarning
from kforge.drop_in.calls import Calls
from kforge.drop_in.module import ForgedKernel, Report, forged, plain, prepare
from kforge.drop_in.program import Recipe
from kforge.drop_in.watched import Verified, named_tensors
from kforge.errors import NothingCorrect
from kforge.problems.instance import instantiate
from kforge.problems.live.module import is_live, nature
from kforge.problems.tensors import HOST, cloned
from kforge.records import times

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import nn

    from kforge.drop_in.module import ForgedModule
    from kforge.store import RunFolder

BUILTIN_STRUCTURES = (tuple, list, dict, type(None))


def deliver(run: RunFolder, module: nn.Module | None, device_type: str) -> ForgedModule:
    """Return the module combined with the best program of a run. Without a module, the run's own module is used.

    `device_type` is the kind of device on which the program was verified. Raises NothingCorrect if the run has no
    correct program, or none worth loading and no module to fall back to. Raises ProblemError if the module cannot be
    traced.
    """
    report = report_of(run)
    problem = run.header.problem
    instance = instantiate(problem)
    inputs = instance.inputs(0)
    fallback = module is not None or not is_live(problem)
    if module is None:
        module = instance.make_model()
    best = run.best()
    if best is None or best.candidate is None or report.finding in ("slower", "no kernel found"):
        if not fallback:
            raise NothingCorrect(
                f"{run.path} has no kernel that is worth loading ({report}), and it does not hold the module's class; "
                "call kforge.load(run, module) to get the original module instead"
            )
        return forged(module, ForgedKernel(report, None, fallback=True))
    own = {name: tensor.detach() for name, tensor in instance.make_model().state_dict().items()}
    theirs = named_tensors(module)
    traced = nature(module, _placed(inputs, module))
    kernel = ForgedKernel(
        report=report,
        recipe=Recipe(
            source=best.candidate.source,
            arguments=tuple(instance.init_inputs()),
            constants={name: tensor for name, tensor in own.items() if name not in theirs},
            updates_state="updates state" in run.header.workload.labels,
        ),
        calls=Calls(inputs, device_type, module.forward),
        verified=Verified.of(module, set(own), any_mode=traced.any_mode),
        output=None if _is_builtin(traced.output) else _numbered(traced.output),
        device_type=device_type,
        fallback=fallback,
    )
    return forged(module, kernel)


def report_of(run: RunFolder) -> Report:
    """Return what the run found: the finding, the speedup and the receipt. Raises NothingCorrect if no attempt was
    correct."""
    evaluation, outcome = run.reported(), run.outcome()
    if outcome is not None and outcome.best is None and outcome.no_kernel is not None:
        return Report(run=run.path, finding="no kernel found", reason=outcome.no_kernel)
    if evaluation is None or evaluation.correct is None:
        raise NothingCorrect(f"no attempt was correct; see {run.path}")
    if evaluation.correct.untimed is not None:
        about = evaluation.receipt, evaluation.labels, evaluation.correct.untimed
        return Report(run.path, "not measured", None, *about)
    eager = evaluation.correct.comparisons[0]
    finding = eager.finding if eager.doubt is None else "not measured"
    return Report(run.path, finding, eager.speedup, evaluation.receipt, evaluation.labels, eager.doubt or "")


def build(module: ForgedModule) -> None:
    """Build the program now, so that the first call need not wait. Warns if it cannot run."""
    obstacle = prepare(module)
    if obstacle is not None:
        advice = f"; {obstacle.advice}" if obstacle.advice else ""
        warnings.warn(f"the kernel cannot run yet: {obstacle.reason}{advice}", FallbackWarning, stacklevel=4)


def worthwhile(module: ForgedModule, inputs: Sequence[Any]) -> ForgedModule:
    """Return the forged module, or a module that always runs the original if that is faster as a user calls it.

    `inputs` must be inputs that the kernel serves. Nothing is measured if the kernel cannot run yet, or if a call
    changes the module's state.
    """
    kernel = module._kforge_kernel
    if kernel.recipe is None or prepare(module) is not None:
        return module
    original = plain(module)
    placed = _placed(cloned(list(inputs)), original)
    device = next((each.device for each in pytree.tree_leaves(placed) if isinstance(each, torch.Tensor)), HOST)
    if kernel.updates_state or kernel.calls is None or kernel.calls.mismatch(placed) is not None:
        return module
    called = speedup_as_called(module, original, placed, device)
    if called is None or called.median >= SLOWER or called.high >= 1:
        return module
    reason = "calls are so short that checking each call takes longer than the kernel saves"
    return forged(original, ForgedKernel(replace(kernel.report, finding="slower", speedup=called, reason=reason), None))


def warn(report: Report, *, stacklevel: int) -> None:
    """Warn the user if the returned module runs the original, or if the kernel was not proven faster."""
    if report.finding == "no kernel found":
        text = f"no kernel found: {report.reason}; the returned module runs the original"
        warnings.warn(text, FallbackWarning, stacklevel=stacklevel)
    elif report.speedup is not None and report.finding == "slower":
        why = f" ({report.reason})" if report.reason else ""
        text = (
            f"with the best kernel the module is slower, {times(report.speedup)}{why}; the returned module runs the "
            "original"
        )
        warnings.warn(text, FallbackWarning, stacklevel=stacklevel)
    elif report.finding in ("cannot tell", "not measured"):
        why = f" ({report.reason})" if report.reason else ""
        text = (
            f"the kernel is correct, but it is not known whether it is faster: {report}{why}; the returned module runs "
            f"it. `kforge verify {report.run}` measures it again"
        )
        warnings.warn(text, SpeedWarning, stacklevel=stacklevel)


def check_same_module(run: RunFolder, module: nn.Module) -> None:
    """Call both the module and the run's problem, with the module's weights, on the same inputs.

    Raises InputError if their results differ.
    """
    from kforge.problems.live.module import check_agreement

    problem = run.header.problem
    check_agreement(problem, module, _placed(instantiate(problem).inputs(0), module))


def _placed(inputs: list[Any], module: nn.Module) -> tuple[Any, ...]:
    """Return the inputs, moved to the device of the module's weights."""
    device = next((tensor.device for tensor in named_tensors(module).values()), None)
    moved: tuple[Any, ...] = pytree.tree_map_only(torch.Tensor, lambda each: each.to(device), tuple(inputs))
    return moved


def _numbered(structure: pytree.TreeSpec) -> Any:
    """Return the structure with a number in place of each leaf. Unlike torch's own type for structures, it can be
    pickled."""
    return pytree.tree_unflatten(range(structure.num_leaves), structure)


def _is_builtin(structure: pytree.TreeSpec) -> bool:
    return structure.is_leaf() or (
        structure.type in BUILTIN_STRUCTURES and all(_is_builtin(child) for child in structure.children())
    )
