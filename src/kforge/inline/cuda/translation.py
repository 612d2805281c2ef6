"""Compiles a source to a cubin with NVRTC, through the cache. The cached file also holds the kernels' names and
resources."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from kforge.inline import cache as builds
from kforge.inline import configuration, diagnostics, headers, steps
from kforge.inline.cuda import driver, nvrtc, resources, toolkit
from kforge.inline.errors import CompileError, ToolchainError

DEFAULT_ARCHITECTURE = "sm_90"
"""The architecture to compile for if there is no device."""

OPTIONS = ("--std=c++17", "-lineinfo", "--pre-include=kforge_inline.h")
_ARCHITECTURE_FLAGS = ("-arch", "--gpu-architecture")
_SHIMS = Path(__file__).parent / "include"
"""Folder of small headers that sources written for nvcc often include and that NVRTC lacks. A toolkit's own headers
come first."""
_HEAD_END = b"\n"


@dataclass(frozen=True)
class Translation:
    """A cubin, the symbols of the requested kernels, and the resources that each kernel uses."""

    image: bytes
    names: dict[str, str]
    """The symbol of each requested kernel, by its name expression."""
    resources: dict[str, resources.Resources]
    """The resources of every kernel in the cubin, by symbol."""


def translate(source: str, flags: tuple[str, ...], names: tuple[str, ...]) -> Translation:
    """Return the compiled source, from the cache if possible. Raises CompileError and ToolchainError."""
    compiler = toolkit.compiler(_newest())
    settings = configuration.current()
    source = headers.expanded(source, nvrtc.SOURCE)
    command = options((*flags, *settings.flags), compiler)
    stamp = compiler.library.stat()
    identity = (str(compiler.library), str(stamp.st_size), str(stamp.st_mtime_ns))
    key = builds.key((source, "\0".join(command), "\0".join(names), *identity))
    build = partial(compile_in, compiler, source, command, names)
    return _read(builds.content(builds.fetch(settings.cache_folder, f"{key}.cubin", build)))


def options(flags: tuple[str, ...], compiler: toolkit.Compiler) -> list[str]:
    """Return NVRTC's options: kforge's own, the header folders, and last the caller's, which take precedence."""
    architecture = [] if _names_architecture(flags) else [f"--gpu-architecture={architecture_at_hand()}"]
    folders = (_SHIMS / "override", *toolkit.include_folders(compiler.major), _SHIMS)
    return [*architecture, *OPTIONS, *(f"-I{folder}" for folder in folders), *flags]


def architecture_at_hand() -> str:
    """Return the architecture of torch's current device. If torch is not initialized, use the first device; without a
    device, return the default."""
    try:
        return driver.load().architecture(_current_device())
    except ToolchainError:
        return DEFAULT_ARCHITECTURE


def compile_in(
    compiler: toolkit.Compiler, source: str, command: list[str], names: tuple[str, ...], place: Path
) -> Path:
    """Compile in this folder, and return the file to put into the cache. Raises CompileError and ToolchainError."""
    request = {
        "library": str(compiler.library),
        "builtins": str(compiler.builtins) if compiler.builtins else None,
        "options": command,
        "report": resources.REPORT,
        "names": names,
    }
    (place / nvrtc.REQUEST).write_text(json.dumps(request), encoding="utf-8")
    (place / nvrtc.SOURCE).write_text(source, encoding="utf-8")
    status, crash = steps.run([sys.executable, "-I", "-S", str(Path(nvrtc.__file__).resolve())], place)
    log = (place / nvrtc.LOG).read_text(encoding="utf-8") if (place / nvrtc.LOG).exists() else crash
    said = resources.without_report(log)
    if status == nvrtc.FAILED:
        raise CompileError(diagnostics.trim(said), said)
    if status != 0:
        last = next(iter(reversed(said.strip().splitlines())), f"it ended with status {status}")
        raise ToolchainError(f"NVRTC {compiler.version} ({compiler.library}) does not work here: {last}")
    head = {
        "names": json.loads((place / nvrtc.NAMES).read_text(encoding="utf-8")),
        "resources": {symbol: one.as_dict() for symbol, one in resources.read(log).items()},
    }
    made = place / "entry"
    made.write_bytes(json.dumps(head).encode() + _HEAD_END + (place / nvrtc.CUBIN).read_bytes())
    return made


def _read(entry: bytes) -> Translation:
    head, _, image = entry.partition(_HEAD_END)
    fields = json.loads(head)
    taken = {symbol: resources.Resources.from_dict(one) for symbol, one in fields["resources"].items()}
    return Translation(image, fields["names"], taken)


def _names_architecture(flags: tuple[str, ...]) -> bool:
    return any(flag.partition("=")[0] in _ARCHITECTURE_FLAGS for flag in flags)


def _newest() -> int | None:
    """Return the newest major version of CUDA whose code the driver can load. None if there is no driver."""
    try:
        return driver.load().version()[0]
    except ToolchainError:
        return None


def _current_device() -> int:
    # torch is not imported here: if nothing else has imported it, no current device was chosen.
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return 0
    index: int = torch.cuda.current_device()
    return index
