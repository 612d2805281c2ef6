"""Runs a problem: constructs its module, draws its inputs and measures its workload. (torch)

This executes the problem's own source, which the user trusts. Candidates are never executed here.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import itertools
import linecache
import sys
import traceback
import types
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch._guards import active_fake_mode
from torch.utils import _pytree as pytree

from kforge import reading
from kforge.errors import ProblemError
from kforge.problems.inputs.structure import Structure
from kforge.problems.likeness import Likeness
from kforge.problems.randomness import seeded
from kforge.problems.tensors import HOST, tensors_in
from kforge.problems.workload import measure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kforge.records import Problem, Workload

_serial = itertools.count()
"""Numbers that make the names of executed problems unique."""
STRUCTURE_SEEDS = (11, 12, 13)
"""Seeds of the draws in which structure is looked for. They need not be secret, because this tests only the problem."""


def instantiate(problem: Problem, device: str | torch.device = HOST) -> Instance:
    """Execute the problem's source and return its instance, whose inputs and parameters will be on this device.

    Raises ProblemError if the source cannot be imported, needs a package that is not installed, or its `Model` is not
    an `nn.Module`. Errors of the constructor, the inputs or `forward` are raised later, by the methods that call them.
    `Instance.describe` calls all of them.
    """
    module = _execute(problem)
    for name in ("get_inputs", "get_init_inputs"):
        if not callable(getattr(module, name, None)):
            raise ProblemError(f"{problem.name}: {name} must be a function")
    model_class = getattr(module, "Model", None)
    if not (isinstance(model_class, type) and issubclass(model_class, nn.Module)):
        raise ProblemError(f"{problem.name}: Model must be a class derived from torch.nn.Module")
    return Instance(problem, model_class, module.get_inputs, module.get_init_inputs, str(module.__file__), device)


class Instance:
    """The reference module of a problem, and the inputs to run it on."""

    def __init__(
        self,
        problem: Problem,
        model_class: type[nn.Module],
        get_inputs: Callable[[], Any],
        get_init_inputs: Callable[[], Any],
        filename: str,
        device: str | torch.device = HOST,
    ) -> None:
        self.problem = problem
        self.device = torch.device(device)
        self._model_class = model_class
        self._get_inputs = get_inputs
        self._get_init_inputs = get_init_inputs
        self._filename = filename
        self._draws_on_device = self.device != HOST
        self._kept_state: dict[str, torch.Tensor] | None = None
        self.draws_random_numbers = False
        """Whether `forward` draws random numbers, as dropout in training mode does. It is known after `describe`."""

    def make_model(self) -> nn.Module:
        """Return a new module, constructed with the current random state. It has its own training or evaluation mode,
        and the saved weights if the problem has some.

        Raises ProblemError if the constructor fails or the saved weights do not fit.
        """
        arguments = self.init_inputs()
        with self._blaming("Model(*get_init_inputs())"):
            model = self._model_class(*arguments)
        if self.problem.state_path is not None:
            with self._blaming("loading the saved weights"):
                model.load_state_dict(self._state())
        there = all(each.device == self.device for each in (*model.parameters(), *model.buffers()))
        return model if there else model.to(self.device)  # `to` fails for tensors without memory, on any device

    def init_inputs(self) -> list[Any]:
        """Return the positional arguments of the constructor, for `Model` and for `ModelNew`.

        `get_init_inputs` may return positional arguments, a dict of keyword arguments, or `[arguments, keywords]`.
        Keyword arguments are put into the order of `Model`'s signature. Raises ProblemError if that is impossible.
        """
        with self._blaming("get_init_inputs()"):
            given = self._get_init_inputs()
        match given:
            case dict():
                return self._in_positions((), given)
            case [list() | tuple() as arguments, dict() as keywords] if self._accepts(arguments, keywords):
                return self._in_positions(arguments, keywords)
            case list() | tuple():
                return list(given)
        raise ProblemError(
            f"{self.problem.name}: get_init_inputs() must return a list of arguments, got {type(given).__name__}"
        )

    def inputs(self, seed: int) -> list[Any]:
        """Return the inputs that `get_inputs()` draws from this seed. The caller's random states are not changed.

        Raises ProblemError if `get_inputs()` fails, returns no list, or returns no tensor.
        """
        return self.input_sets(seed, 1)[0]

    def input_sets(self, seed: int, count: int) -> list[list[Any]]:
        """Return the inputs of several calls, drawn one after another from one seed. Seeding takes longer than drawing
        small inputs."""
        with seeded(seed), self._blaming("get_inputs()"):
            drawn = [self._draw() for _ in range(count)]
        return [self._placed(given) for given in drawn]

    @cached_property
    def structure(self) -> Structure:
        """The structure of the inputs: what all draws have in common. Raises ProblemError if the inputs cannot be
        drawn."""
        return Structure.observed(self.inputs, STRUCTURE_SEEDS)

    @cached_property
    def likeness(self) -> Likeness:
        """Facts about the module's state that all constructions have in common. Raises ProblemError if the constructor
        fails."""
        return Likeness.observed(self.make_model)

    def _placed(self, given: Any) -> list[Any]:
        """Return the inputs on the device. Raises ProblemError if they are no list or contain no tensor."""
        if not isinstance(given, list | tuple):
            raise ProblemError(
                f"{self.problem.name}: get_inputs() must return a list of inputs, got {type(given).__name__}"
            )
        if not tensors_in(given):
            raise ProblemError(f"{self.problem.name}: get_inputs() returns no tensors")
        return [pytree.tree_map(self._on_device, value) for value in given]

    def wait(self) -> None:
        """Wait until the device has finished all work."""
        if self.device != HOST:
            torch.get_device_module(self.device).synchronize()

    def describe(self) -> Workload:
        """Run the reference, and return facts about its inputs, outputs and work.

        Raises ProblemError if any part of the problem fails, or if `forward` returns no tensor.
        """
        with self._blaming("forward"):
            workload = measure(self.problem.name, self.make_model, self.inputs)
        self.draws_random_numbers = "random" in workload.labels
        return workload

    def smaller(self, least: int) -> Instance | None:
        """Return the same problem with fewer rows, that is, with a smaller first dimension of its first tensor.

        The number of rows is halved while it is even and the half is at least `least`. All tensors with that number of
        rows are cut. If the module does not accept that, only the first tensor is cut. Returns None if the number
        cannot be halved, or if the module does not accept the smaller inputs.
        """
        whole = tensors_in(self.inputs(0))[0].shape[:1]
        rows = fewer = int(whole[0]) if whole else 0
        while fewer % 2 == 0 and fewer // 2 >= least:
            fewer //= 2
        if fewer == rows:
            return None
        for only_first in (False, True):  # in a product of two matrices, only the first may lose rows
            instance = self.with_inputs(partial(_cut, rows, fewer, only_first=only_first))
            with contextlib.suppress(ProblemError):
                instance.describe()
                return instance
        return None

    def with_inputs(self, change: Callable[[list[Any]], list[Any]]) -> Instance:
        """Return the same module with other inputs: `change` is applied to the drawn ones."""
        return Instance(
            self.problem,
            self._model_class,
            lambda: change(list(self._get_inputs())),
            self._get_init_inputs,
            self._filename,
            self.device,
        )

    def _draw(self) -> Any:
        """Draw inputs directly on the device, if the problem allows that. For large inputs this is much faster."""
        if self._draws_on_device:
            try:
                with self.device:
                    return self._get_inputs()
            except torch.OutOfMemoryError:
                raise
            except RuntimeError:  # for example a generator of the host
                self._draws_on_device = False
        return self._get_inputs()

    def _on_device(self, leaf: Any) -> Any:
        return leaf.to(self.device) if isinstance(leaf, torch.Tensor) else leaf

    def _state(self) -> dict[str, torch.Tensor]:
        """Return the saved weights, read once. In a FakeTensorMode they have no values, and are not cached."""
        if active_fake_mode() is not None:
            return self._read_state()
        if self._kept_state is None:
            self._kept_state = self._read_state()
        return self._kept_state

    def _read_state(self) -> dict[str, torch.Tensor]:
        """Return the weights from their file. Raises ProblemError if the file was changed."""
        assert self.problem.state_path is not None
        with reading.regular(Path(self.problem.state_path)) as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != self.problem.state_digest:
                raise ProblemError(
                    f"{self.problem.name}: {self.problem.state_path} was changed since the problem was made"
                )
            file.seek(0)
            state: dict[str, torch.Tensor] = torch.load(file, weights_only=True)
            return state

    def _accepts(self, arguments: list[Any] | tuple[Any, ...], keywords: dict[Any, Any]) -> bool:
        """Return whether the constructor accepts these arguments. Tells `[arguments, keywords]` from two positional
        arguments."""
        try:
            inspect.signature(self._model_class).bind(*arguments, **keywords)
        except TypeError:
            return False
        return True

    def _in_positions(self, arguments: list[Any] | tuple[Any, ...], keywords: dict[Any, Any]) -> list[Any]:
        """Return all arguments as positional ones. Raises ProblemError if one can only be passed by keyword."""
        with self._blaming("get_init_inputs()"):
            bound = inspect.signature(self._model_class).bind(*arguments, **keywords)
        bound.apply_defaults()
        if bound.kwargs:
            names = ", ".join(bound.kwargs)
            raise ProblemError(f"{self.problem.name}: Model takes {names} by keyword only; make them positional")
        return list(bound.args)

    @contextmanager
    def _blaming(self, part: str) -> Iterator[None]:
        """Turn an exception inside the `with` block into a ProblemError that names the failed part."""
        with _one_line(self.problem, f"{part} fails", self._filename):
            yield


def _cut(rows: int, fewer: int, inputs: list[Any], *, only_first: bool) -> list[Any]:
    """Return the inputs with only the first `fewer` rows, of all tensors with `rows` rows or only of the first
    tensor."""
    first = tensors_in(inputs)[0]

    def cut(leaf: Any) -> Any:
        wanted = leaf is first if only_first else isinstance(leaf, torch.Tensor) and leaf.shape[:1] == (rows,)
        return leaf[:fewer].clone() if wanted else leaf

    cut_down: list[Any] = pytree.tree_map(cut, inputs)
    return cut_down


def _execute(problem: Problem) -> types.ModuleType:
    """Execute the problem's source as a new module. Raises ProblemError if that fails."""
    serial = next(_serial)
    # A registered name and lines in linecache: inspect, torch.compile and tracebacks need both.
    module = types.ModuleType(f"kforge_problem_{problem.digest[:12]}_{serial}")
    filename = f"<problem {problem.name} #{serial}>"
    module.__file__ = filename
    module.__package__ = ""  # a relative import then fails for the right reason
    lines = problem.source.splitlines(keepends=True)
    linecache.cache[filename] = (len(problem.source), None, lines, filename)
    sys.modules[module.__name__] = module
    with _one_line(problem, "does not import", filename):
        code = compile(problem.source, filename, "exec", dont_inherit=True)  # not our own `__future__` imports
        exec(code, module.__dict__)  # noqa: S102 - the problem is the user's own code
    return module


@contextmanager
def _one_line(problem: Problem, blame: str, filename: str) -> Iterator[None]:
    """Turn any exception inside the `with` block into a ProblemError of one line."""
    try:
        yield
    except ProblemError:
        raise
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and error.name:
            package = error.name.partition(".")[0]
            reason = f"needs the package {package!r}, which is not installed"
        else:
            reason = f"{blame}: {_summary(error, filename)}"
        raise ProblemError(f"{problem.name}: {reason}") from error


def _summary(error: BaseException, filename: str) -> str:
    """Return the type of an exception, the first line of its message, and the line of the problem that raised it."""
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    message = f"{type(error).__name__}: {first[:200]}" if first else type(error).__name__
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == filename]
    return f"{message} (line {frames[-1].lineno})" if frames else message
