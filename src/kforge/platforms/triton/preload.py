"""Does Triton's one-time work of a process before workers are forked from this one.

Nothing here asks for a device. It fills Triton's own caches, by private names (of 3.6 to 3.9): where one is missing or
fails, every worker does that work itself, later and with the same result. The interpreter has no such cache; one of its
bugs is fixed instead.

Triton reads its variables when it needs them, so a worker may still set them, except those that it reads when it is
imported: TRITON_INTERPRET, which a fork server has from the beginning, and TRITON_DEBUG, TRITON_INSTRUMENTATION_MODE,
TRITON_ENABLE_PYTHON_STACKTRACE and PTXAS_OPTIONS, which no worker is given.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from kforge.platforms.triton import driver_module

_ARCHITECTURES = (80, 86, 89, 90, 100, 120)
"""Common architectures. The one of this machine is not known before the fork; each costs some milliseconds once."""


def preload() -> None:
    """Do the work. Raises ImportError without Triton."""
    import triton
    import triton.language

    if _interprets(triton):  # the interpreter builds nothing
        with suppress(Exception):
            _keep_masks_boolean()
        return
    finish = driver_module.begin()
    for step in (_import_what_builds, _hash_triton, _ask_assembler, _look_for_driver, _name_machine):
        with suppress(Exception):
            step()
    finish()


def _interprets(triton: Any) -> bool:
    """Return whether `TRITON_INTERPRET` is set, as Triton reads it.

    Triton's own decorated functions already follow it.
    """
    try:
        return bool(triton.knobs.runtime.interpret)
    except AttributeError:
        return False


def _keep_masks_boolean() -> None:
    """Let the interpreter fill a block with a bool, as compilers for devices do.

    The interpreter gives the result of a comparison of two scalars the type of the operands, and a block that is filled
    with it gets 32-bit integers. Since 3.9 `tl.load` and `tl.store` refuse those as a mask.
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
    """Hash all of Triton's files, some 300 MB, for the keys of its cache."""
    from triton.runtime.cache import triton_key

    triton_key()


def _ask_assembler() -> None:
    from triton.backends.nvidia.compiler import get_ptxas_version

    for architecture in _ARCHITECTURES:
        get_ptxas_version(architecture)


def _look_for_driver() -> None:
    """Find the driver's library by ldconfig, without opening it."""
    from triton.backends.nvidia.driver import library_dirs

    library_dirs()


def _name_machine() -> None:
    from triton.runtime.build import platform_key

    platform_key()
