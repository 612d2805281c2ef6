"""Runs Pallas kernels on the host, and also lowers each of them for a TPU. (jax)

`install` replaces `pallas_call`, so that programs are the same as on a TPU. Kernels run in one of JAX's two
interpreters: the fast one, which is compiled, or the one that simulates a TPU's memories. The second one detects memory
that is used before a transfer to it has finished, and two cores that write the same memory.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from kforge.inline import CompileError

if TYPE_CHECKING:
    from collections.abc import Callable

TARGET = "tpu"
_installed: list[Any] = []
"""The wrapped `pallas_call`, once `install` has put it in place."""
_lowered: dict[str, None] = {}
"""The names of the kernels that were lowered, as keys."""


def install() -> None:
    """Run all Pallas kernels of this process in an interpreter, and refuse kernels that cannot be lowered. A second
    call changes nothing."""
    from jax.experimental import pallas

    if pallas.pallas_call not in _installed:
        pallas.pallas_call = _checked(pallas.pallas_call)
        _installed.append(pallas.pallas_call)
    _interpret()


def lowered() -> tuple[str, ...]:
    """Return the names of the kernels that were lowered in this process."""
    return tuple(_lowered)


def checks_are_on() -> bool:
    """Return whether this process was started with JAX's own switch for debug checks in kernels."""
    import jax

    return bool(jax.config.jax_pallas_enable_debug_checks)


def _interpret() -> None:
    from jax.experimental.pallas import tpu

    # InterpretParams selects the simulating interpreter; any other true value selects the fast one
    mode: Any = (
        tpu.InterpretParams(detect_races=True, out_of_bounds_reads="uninitialized", num_cores_or_threads=2)
        if checks_are_on()
        else True
    )
    tpu.set_tpu_interpret_mode(mode)


def _checked(pallas_call: Callable[..., Any]) -> Callable[..., Any]:
    """Return `pallas_call`, wrapped so that each kernel is lowered for a TPU before it runs."""

    @functools.wraps(pallas_call)
    def prepared(*arguments: Any, **options: Any) -> Callable[..., Any]:
        options.pop("interpret", None)
        call = pallas_call(*arguments, **options)

        @functools.wraps(call)
        def checked(*arrays: Any) -> Any:
            lower(lambda: pallas_call(*arguments, **options), arrays)
            _lowered[getattr(arguments[0] if arguments else None, "__name__", "kernel")] = None
            return call(*arrays)

        return checked

    return prepared


def lower(make: Callable[[], Callable[..., Any]], arrays: tuple[Any, ...]) -> str:
    """Lower a kernel for a TPU, and return the module's text. Raises CompileError if it cannot be lowered.

    `arrays` may be tracers of a surrounding function, since only their shapes and types matter.
    """
    import jax
    from jax import export
    from jax.experimental.pallas import tpu

    shapes = jax.tree_util.tree_map(lambda array: jax.ShapeDtypeStruct(array.shape, array.dtype), arrays)
    with tpu.force_tpu_interpret_mode(False):
        try:
            return str(export.export(jax.jit(make()), platforms=[TARGET])(*shapes).mlir_module())
        except Exception as error:  # JAX may raise any error here
            reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
            raise CompileError(f"the kernel does not lower for a TPU: {reason}", str(error)) from None
