"""Does Triton's one-time work per process before workers are forked from this process.

Nothing here uses a device. The functions fill Triton's own caches through private names (of versions 3.6 to 3.9). If a
name is missing or fails, every worker does that work itself, later and with the same result. The interpreter has no
such caches; one of its bugs is fixed instead.

Triton reads most of its environment variables when it needs them, so a worker may still set those. It reads these when
it is imported: TRITON_INTERPRET, which a fork server has from the beginning, and TRITON_DEBUG,
TRITON_INSTRUMENTATION_MODE, TRITON_ENABLE_PYTHON_STACKTRACE and PTXAS_OPTIONS, which no worker is given.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from kforge.platforms.triton import driver_module

_ARCHITECTURES = (80, 86, 89, 90, 100, 120)
"""Common architectures, for each of which the assembler's version is asked. The architecture of this machine is not
known before the fork. Each costs some milliseconds once."""


def preload() -> None:
    """Do Triton's one-time work per process, so that workers forked later need not do it. Raises ImportError without
    Triton."""
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
    """Return whether `TRITON_INTERPRET` is set, as Triton itself reads it."""
    try:
        return bool(triton.knobs.runtime.interpret)
    except AttributeError:
        return False


def _keep_masks_boolean() -> None:
    """Patch the interpreter so that a block filled with a bool has bool elements, as compilers for devices do.

    The interpreter gives the comparison of two scalars the type of the operands, so that a block filled with the result
    has 32-bit integers. Since 3.9 `tl.load` and `tl.store` refuse such a block as a mask.
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
    """Hash all of Triton's files, some 300 MB. The hash is part of the keys of its cache."""
    from triton.runtime.cache import triton_key

    triton_key()


def _ask_assembler() -> None:
    from triton.backends.nvidia.compiler import get_ptxas_version

    for architecture in _ARCHITECTURES:
        get_ptxas_version(architecture)


def _look_for_driver() -> None:
    """Find the driver's library with ldconfig, without opening it."""
    from triton.backends.nvidia.driver import library_dirs

    library_dirs()


def _name_machine() -> None:
    from triton.runtime.build import platform_key

    platform_key()
