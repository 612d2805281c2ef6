"""Runs Pallas kernels on the host, and lowers every one of them for a TPU as well. (jax)

`install` puts itself behind `pallas_call`, so that programs are the same on a TPU. Kernels run in one of JAX's two
interpreters: the quick one, which is compiled, or the one that simulates a TPU's memories. The second one finds
transfers that are used before they have arrived, and two cores that write the same memory.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from kforge.inline import CompileError

if TYPE_CHECKING:
    from collections.abc import Callable

TARGET = "tpu"
_installed: list[Any] = []
"""The `pallas_call` that stands in for JAX's, once it is there."""
_lowered: dict[str, None] = {}
"""The names of the kernels that were lowered."""


def install() -> None:
    """Run the kernels of this process in an interpreter, and refuse those that do not lower. Does nothing twice."""
    from jax.experimental import pallas

    if pallas.pallas_call not in _installed:
        pallas.pallas_call = _checked(pallas.pallas_call)
        _installed.append(pallas.pallas_call)
    _interpret()


def lowered() -> tuple[str, ...]:
    """Return the names of the kernels that were lowered in this process."""
    return tuple(_lowered)


def checks_are_on() -> bool:
    """Whether this process was started with JAX's own switch for debug checks in kernels."""
    import jax

    return bool(jax.config.jax_pallas_enable_debug_checks)


def _interpret() -> None:
    from jax.experimental.pallas import tpu

    # any true value but parameters means the quick interpreter, as for `interpret=` of a call
    mode: Any = (
        tpu.InterpretParams(detect_races=True, out_of_bounds_reads="uninitialized", num_cores_or_threads=2)
        if checks_are_on()
        else True
    )
    tpu.set_tpu_interpret_mode(mode)


def _checked(pallas_call: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `pallas_call`: a kernel is lowered for a TPU before it is called for the first time."""

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
    """Lower a kernel for a TPU and return the module's text. Raises CompileError.

    `arrays` may be tracers of a surrounding function: only their shapes and types count.
    """
    import jax
    from jax import export
    from jax.experimental.pallas import tpu

    shapes = jax.tree_util.tree_map(lambda array: jax.ShapeDtypeStruct(array.shape, array.dtype), arrays)
    with tpu.force_tpu_interpret_mode(False):
        try:
            return str(export.export(jax.jit(make()), platforms=[TARGET])(*shapes).mlir_module())
        except Exception as error:  # whatever JAX raises
            reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
            raise CompileError(f"the kernel does not lower for a TPU: {reason}", str(error)) from None
