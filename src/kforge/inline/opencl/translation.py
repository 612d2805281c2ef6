"""Compiles an OpenCL source with the device's driver, or takes the compiled program from the cache."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kforge.inline import cache, configuration, diagnostics, headers
from kforge.inline.errors import CompileError, ToolchainError
from kforge.inline.grammar import Parameter
from kforge.inline.opencl import types
from kforge.inline.opencl.device import one_line

if TYPE_CHECKING:
    from pathlib import Path

    from kforge.inline.opencl.device import Device

SOURCE = "kernel.cl"
ALWAYS = ("-cl-kernel-arg-info",)
"""Options of every build. This one makes the driver keep the types of a kernel's parameters."""
_FORMAT = "2"
"""Version of the format of a cached entry. It is part of the cache key."""
_HEAD_END = b"\n"
_POCL = re.compile(r"^(?P<kind>error|warning|note|fatal error): (?:\S*?/)?[^\s/]+?:(?P<place>\d+:\d+): ")
"""Matches a message of PoCL: `error: /cache/tempfile_R9H1Og.cl:2:10: use of undeclared identifier 'y'`."""
_CLANG = re.compile(r'^(?:"?[^\s":]*"?|<\w+>):(?P<place>\d+:\d+): ')
"""Matches a message of other drivers: `<kernel>:2:10: error: …`, `input.cl:2:10: error: …`, `1:2:10: error: …`."""


@dataclass(frozen=True)
class KernelParameter:
    """One parameter of a kernel as the driver describes it."""

    name: str
    spelling: str
    """The type's name without stars."""
    space: str
    """The address space: `global`, `constant`, `local` or `private`."""
    stars: int
    constant: bool
    """Whether the kernel only reads the memory that the parameter points to."""

    def read(self, place: str) -> Parameter:
        """Return the parameter as Python passes it. Raises CompileError for a type that cannot be passed."""
        element = types.element(self.spelling, pointer=bool(self.stars))
        if element is None or self.stars > 1:
            raise CompileError(
                f"{place} '{self.spelling}{'*' * self.stars} {self.name}' cannot be passed from Python; "
                "use a pointer to __global memory, or a value of float, double or an integer type"
            )
        return Parameter(self.name, element, bool(self.stars))


@dataclass(frozen=True)
class Program:
    """A compiled program on a device, and the parameters of each of its kernels."""

    native: Any
    kernels: dict[str, tuple[KernelParameter, ...]]


def translate(device: Device, source: str, flags: tuple[str, ...]) -> Program:
    """Return the compiled program, from the cache if possible.

    Raises CompileError if the source does not compile, and ToolchainError if the driver does not work or the cache
    cannot be written.
    """
    settings = configuration.current()
    source = headers.expanded(source, SOURCE)
    options = (*ALWAYS, *settings.flags, *flags)
    key = cache.key((_FORMAT, "opencl", device.identity, source, *options))
    fresh: list[Program] = []

    def build(place: Path) -> Path:
        fresh.append(_built(device, source, options))
        made = place / "entry"
        made.write_bytes(_entry(device, fresh[0]))
        return made

    entry = cache.fetch(settings.cache_folder / "opencl", key, build)
    # a driver may refuse a program that it compiled itself, for example after an update
    return fresh[0] if fresh else _loaded(device, cache.content(entry)) or _built(device, source, options)


def _built(device: Device, source: str, options: tuple[str, ...]) -> Program:
    opencl = device.opencl
    native = _program_class()(device.context, source)
    try:
        native._build(" ".join(options).encode(), [device.native])
    except opencl.Error as error:
        log = _log(device, native)
        if not log:
            raise ToolchainError(f"the OpenCL driver cannot build here: {one_line(error)}") from None
        raise CompileError(diagnostics.trim(log), log) from None
    return Program(native, {name: _parameters(opencl, kernel) for name, kernel in _kernels(opencl, native)})


def _program_class() -> Any:
    """Return pyopencl's private program class. The public class has a cache of its own, and writes a source that fails
    to a file."""
    from pyopencl._cl import _Program

    return _Program


def _log(device: Device, native: Any) -> str:
    try:
        text = native.get_build_info(device.native, device.opencl.program_build_info.LOG)
    except device.opencl.Error:
        return ""
    return "\n".join(map(plain, text.strip("\0 \n").splitlines()))


def plain(line: str) -> str:
    """Return a compiler's message in the form of other compilers, with `kernel.cl` as the source's name."""
    line = _POCL.sub(rf"{SOURCE}:\g<place>: \g<kind>: ", line)
    return _CLANG.sub(rf"{SOURCE}:\g<place>: ", line)


def _kernels(opencl: Any, native: Any) -> list[tuple[str, Any]]:
    return [(one.get_info(opencl.kernel_info.FUNCTION_NAME), one) for one in native.all_kernels()]


def _parameters(opencl: Any, kernel: Any) -> tuple[KernelParameter, ...]:
    asked, spaces = opencl.kernel_arg_info, opencl.kernel_arg_address_qualifier
    names = {spaces.GLOBAL: "global", spaces.CONSTANT: "constant", spaces.LOCAL: "local", spaces.PRIVATE: "private"}
    found = []
    for index in range(kernel.num_args):
        spelling = kernel.get_arg_info(index, asked.TYPE_NAME).strip("\0 ")
        space = names[kernel.get_arg_info(index, asked.ADDRESS_QUALIFIER)]
        qualifiers = kernel.get_arg_info(index, asked.TYPE_QUALIFIER)
        constant = space == "constant" or bool(qualifiers & opencl.kernel_arg_type_qualifier.CONST)
        name = kernel.get_arg_info(index, asked.NAME).strip("\0 ")
        found.append(KernelParameter(name, spelling.rstrip("* "), space, spelling.count("*"), constant))
    return tuple(found)


def _entry(device: Device, program: Program) -> bytes:
    """Return the content of a cache entry: the parameters, which drivers do not keep in a compiled program, and the
    program."""
    head = {name: [list(vars(one).values()) for one in found] for name, found in program.kernels.items()}
    binary = program.native.get_info(device.opencl.program_info.BINARIES)[0]
    return json.dumps(head).encode() + _HEAD_END + bytes(binary)


def _loaded(device: Device, content: bytes) -> Program | None:
    """Return the program of a cache entry, or None if the driver does not accept it."""
    head, _, binary = content.partition(_HEAD_END)
    try:
        native = _program_class()(device.context, [device.native], [binary])
        native._build(b"", [device.native])
    except device.opencl.Error:
        return None
    kernels = {name: tuple(KernelParameter(*values) for values in found) for name, found in json.loads(head).items()}
    return Program(native, kernels)
