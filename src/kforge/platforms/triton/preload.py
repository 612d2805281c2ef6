"""What Triton does once in every process, whatever the kernel is, done before workers are forked from this one.

Nothing here asks for a device. What it calls fills caches of Triton's own, by private names (of 3.6 to 3.9): where one
is missing or fails, every worker does that work itself, later and as right. The interpreter has nothing to fill; one
mistake of it is mended instead.

Triton reads its variables when it needs them, so a worker may still set them, but for those it reads when it is
imported: TRITON_INTERPRET, which a fork server has from the beginning, and TRITON_DEBUG, TRITON_INSTRUMENTATION_MODE,
TRITON_ENABLE_PYTHON_STACKTRACE and PTXAS_OPTIONS, which no worker is given.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from kforge.platforms.triton import driver_module

_ARCHITECTURES = (80, 86, 89, 90, 100, 120)
"""Which one is here cannot be asked before the fork; each costs some milliseconds once."""


def preload() -> None:
    """Raises ImportError without Triton."""
    import triton
    import triton.language

    if _interprets(triton):  # it builds nothing
        with suppress(Exception):
            _keep_masks_boolean()
        return
    finish = driver_module.begin()
    for step in (_import_what_builds, _hash_triton, _ask_assembler, _look_for_driver, _name_machine):
        with suppress(Exception):
            step()
    finish()


def _interprets(triton: Any) -> bool:
    """Whether `TRITON_INTERPRET` is set, as Triton reads it; what it decorated itself by now follows from it."""
    try:
        return bool(triton.knobs.runtime.interpret)
    except AttributeError:
        return False


def _keep_masks_boolean() -> None:
    """Let the interpreter fill a block with a truth value, as compilers for devices do.

    It gives the result of a comparison of two scalars the type of the operands, and a block that is filled with it gets
    32-bit integers. Since 3.9 `tl.load` and `tl.store` refuse those as a mask.
    """
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    usual = InterpreterBuilder.create_splat

    def create_splat(builder: Any, *arguments: Any) -> Any:
        block = usual(builder, *arguments)
        (scalar,) = (each for each in arguments if isinstance(each, TensorHandle))
        if scalar.data.dtype == bool:
            block.data = block.data.astype(bool)
        return block

    InterpreterBuilder.create_splat = create_splat


def _import_what_builds() -> None:
    import triton.compiler.code_generator
    import triton.experimental.gluon  # noqa: F401 - the first build in a process imports both


def _hash_triton() -> None:
    """All of its files, some 300 MB, for the keys of its cache."""
    from triton.runtime.cache import triton_key

    triton_key()


def _ask_assembler() -> None:
    from triton.backends.nvidia.compiler import get_ptxas_version

    for architecture in _ARCHITECTURES:
        get_ptxas_version(architecture)


def _look_for_driver() -> None:
    """By ldconfig, and without opening it."""
    from triton.backends.nvidia.driver import library_dirs

    library_dirs()


def _name_machine() -> None:
    from triton.runtime.build import platform_key

    platform_key()
