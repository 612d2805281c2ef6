"""`kforge.forge` and `kforge.load`, the two functions of the Python interface. (torch, when called)"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from kforge import settings
from kforge.api.arguments import ForgeOptions, check_inputs, check_module, check_options, known_keywords
from kforge.api.progress import line, telling
from kforge.errors import InputError
from kforge.models import read_images
from kforge.platforms import find
from kforge.run_options import check_images, check_models, choose_model, new_options
from kforge.session import Session, platform_at_hand, usable_platform
from kforge.store import RunFolder
from kforge.store.trust import folders_of
from kforge.visible import command

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch
    from torch import nn

    from kforge.drop_in.module import ForgedModule


@known_keywords
def forge(
    module: nn.Module,
    example_inputs: Sequence[Any] | torch.Tensor,
    *,
    platform: str = "",
    model: str = "",
    runs: str | Path | None = None,
    progress: Callable[[str], None] | bool | None = None,
    **options: Unpack[ForgeOptions],
) -> ForgedModule:
    """Find a faster, verified program for a module, and return the module combined with the program.

    `example_inputs` are the positional arguments of `module.forward`, or its only tensor. The program is for inputs of
    the same shapes, dtypes and device. The result is a module of the same class that shares its parameters, buffers and
    submodules with `module`. If the program cannot serve a call, `module`'s own `forward` runs instead, with a warning.
    The attributes `.finding`, `.speedup`, `.receipt`, `.labels` and `.run` of the result say what was found.

    `progress` is a function that takes lines of text, or False for silence. The other arguments are the options of the
    command `kforge forge`, such as `iterations=8` or `precision="tf32"`; `kforge.api.arguments.ForgeOptions` lists
    them.

    Raises InputError if the module, an argument, the platform or the model cannot be used, NothingCorrect if no attempt
    was correct, and WaitingForReplies if the run waits for a reply and must be resumed.
    """
    module, inputs = check_module(module), check_inputs(example_inputs)
    check_options(options)
    chosen = settings.load()
    name = choose_model(model, chosen)
    images = read_images([Path(image) for image in options.get("images", ())])
    choice = new_options(
        **{**options, "images": images},
        platform=platform or platform_at_hand(chosen, model=name), model=name,
    )  # fmt: skip
    check_images(choice)
    device_type = _device_type(usable_platform(choice.platform, chosen).manifest.device)
    root = Path(runs) if runs is not None else chosen.runs
    remarks = check_models(choice, chosen)  # a bad name fails before the module is traced
    with telling(progress) as tell:
        from kforge.api import delivery
        from kforge.problems.live.module import from_module

        for remark in remarks:
            tell(remark)
        tell(f"{type(module).__name__} on {choice.platform} with {choice.model}: tracing the module")
        with tempfile.TemporaryDirectory(prefix="kforge-") as folder:
            problem = from_module(module, inputs, name=type(module).__name__, folder=Path(folder))
            tell("checking the problem and starting the evaluator")
            with Session.begin(problem, choice, chosen, root=root) as session:
                for attempt in session.attempts(tell):
                    tell(line(attempt))
                run = session.run
        tell("building the module to return")
        fast = delivery.worthwhile(delivery.deliver(run, module, device_type), inputs)
        tell(f"{fast.report}; run: {run.path}")
    delivery.warn(fast.report, stacklevel=4)
    delivery.build(fast)
    return fast


@known_keywords
def load(run: str | Path, module: nn.Module | None = None, *, trust: bool = False) -> ForgedModule:
    """Return the forged module of an earlier run of `kforge.forge` or of the command `kforge forge`.

    `run` is the run's folder, its id, or the beginning of the id. With `module`, the result is the same as that of
    `kforge.forge`: `module` combined with the program. Without `module`, there are two cases. If the problem was a
    file, its `Model` is used, with the weights that its constructor makes. If the problem was a live module, the run
    has its weights but not its class, so that a call which the program cannot serve raises InputError.

    The run's program runs in this process, and so does a problem file. If this user did not make the run on this
    machine, they run only with `trust=True`.

    Raises InputError if the run is unknown, if it needs `trust=True`, or if `module` does not compute what the run's
    module computed. Raises NothingCorrect if no attempt of the run was correct.
    """
    if not isinstance(run, str | Path):
        raise InputError(f"run must be a folder, an id or the beginning of an id, not {type(run).__name__}")
    module = None if module is None else check_module(module)
    chosen = settings.load()
    folder = RunFolder.find(chosen.runs, str(run))
    _must_be_ours(folder, chosen, trust=trust)
    extra = [Path(part) for part in folders_of(folder.header.options.get("platform_dirs", ""))]
    platform = find(folder.header.platform, (*chosen.platform_dirs, *extra))
    from kforge.api import delivery

    delivery.report_of(folder)
    if module is not None:
        delivery.check_same_module(folder, module)
    fast = delivery.deliver(folder, module, _device_type(platform.manifest.device))
    delivery.warn(fast.report, stacklevel=4)
    delivery.build(fast)
    return fast


def _must_be_ours(run: RunFolder, chosen: settings.Settings, *, trust: bool) -> None:
    """Raise InputError if this user's key did not sign the run or its result, unless `trust` is true.

    For a trusted run with unsigned parts, InputError is raised if the readable files differ from the code.
    """
    if trust:
        if not run.is_all_signed(chosen.signing_key):
            _must_be_readable(run)
        return
    if not run.hold_to(chosen.signing_key):  # from now on everything is verified as it is read
        raise InputError(
            f"{run.path} was not made by you on this machine, and its code would run in this process; "
            f"read {run.readable_problem()} and its best.py first, then pass trust=True"
        )
    if run.outcome() is None:
        raise InputError(
            f"{run.path} has no result signed by you: it is not finished, or its result.json was changed; "
            f"`{command('kforge', 'resume', run.path)}` evaluates its best program again, or pass trust=True"
        )


def _must_be_readable(run: RunFolder) -> None:
    """Raise InputError if `problem.py` or `best.py` differs from the code that would run.

    A caller who trusts a run is supposed to have read these two files.
    """
    run.readable_problem()
    best = run.path / "best.py"
    if run.best() is not None and run.best_path != best:
        raise InputError(f"{best} is not the program that would run: the best attempt of {run.path} is another one")


def _device_type(device: str) -> str:
    return device.partition(":")[0]
