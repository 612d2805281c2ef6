"""Compiles a Metal source with clang, in five steps: preprocess, translate to C++, compile, check address spaces, link
with the emulator's runtime."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path

from kforge.inline import cache as builds
from kforge.inline import configuration, diagnostics, steps
from kforge.inline.errors import CompileError, ToolchainError
from kforge.inline.headers import HEADER
from kforge.inline.metal.kernels import KernelFunction, Parameter
from kforge.inline.metal.text import SOURCE
from kforge.inline.metal.translation import FunctionConstant, Translation, translate

COMPILERS = ("clang++", *(f"clang++-{version}" for version in range(21, 13, -1)))
"""Compilers that are searched on PATH, in this order. Only clang has the vector types and the instrumentation that are
needed."""

_FOLDER = Path(__file__).parent
_INCLUDE, _RUNTIME = _FOLDER / "include", _FOLDER / "runtime"
_PREDEFINED = ("-D__METAL_VERSION__=310", "-D__METAL_MACOS__=1", "-D__HAVE_BFLOAT__=1", "-D__METAL__=1")
_LANGUAGE = (
    "-std=c++17", "-fsigned-char", "-fno-exceptions", "-fno-rtti", "-fno-builtin", "-fno-strict-aliasing", "-fwrapv",
    "-fno-delete-null-pointer-checks", "-nostdinc",
    # a literal without a suffix is a float in Metal; half values are passed and returned as other values are
    "-Xclang", "-cl-single-precision-constant", "-Xclang", "-fnative-half-arguments-and-returns",
    "-Wno-everything", "-Werror=vla", "-ferror-limit=20", "-fno-color-diagnostics",
    "-fno-caret-diagnostics", "-ftemplate-backtrace-limit=0",
)  # fmt: skip
_CODE = (
    # a float that does not fit an integer becomes the nearest integer; otherwise the result depends on the machine
    "-fno-strict-float-cast-overflow",
    "-O1", "-g1", "-gdwarf-4", "-fPIC", "-ffp-contract=off", "-fno-math-errno", "-fno-vectorize", "-fno-slp-vectorize",
    # every memory access calls a function of the emulator's runtime; clang's own runtime libraries are not used
    "-fsanitize=thread",
    "-fsanitize=array-bounds,alignment,integer-divide-by-zero,return,unreachable",
    # INT_MIN / -1, which ends the process on x86-64; sums and products wrap
    "-fsanitize=signed-integer-overflow",
)  # fmt: skip
_WRAPPED = ("-Wl,--wrap=memcpy", "-Wl,--wrap=memmove", "-Wl,--wrap=memset")
_SPACES = {
    "__attribute__((address_space(1)))": "device",
    "__attribute__((address_space(2)))": "constant",
    "__attribute__((address_space(3)))": "threadgroup",
}
_ERROR = re.compile(rf"^{re.escape(SOURCE)}:(\d+):(?:\d+:)? (?:fatal )?error: (.*)$")
_CANDIDATE = re.compile(r"^\S+?:\d+:(?:\d+:)? note: (candidate .*)$")
_CONVERSION = re.compile(r"no known conversion from '[^']*' to '[^']*[*&](?:const|restrict)?'")
_HEADER_ERROR = re.compile(r"^\S*kforge_metal\S*:\d+:\d+: error: (.*)$")
_ASSERTED = re.compile(r'static_assert failed.*"(.*)"$|static assertion failed.*: (.*)$')
_HEAD_END = b"\n"


@dataclass(frozen=True)
class Built:
    """A compiled Metal source: the shared library, and what the translation found in the source."""

    library: Path
    """Path of the shared library in the cache."""
    translation: Translation


def build(source: str, flags: tuple[str, ...]) -> Built:
    """Return the compiled source, from the cache if possible. Raises CompileError and ToolchainError."""
    compiler = find_compiler()
    settings = configuration.current()
    flags = (*flags, *settings.flags)
    identity = (_version(compiler), _own_sources())
    runtime = builds.fetch(
        settings.cache_folder, f"{builds.key(('metal runtime', *identity))}.o", partial(_build_runtime, compiler)
    )
    name = builds.key((source, "\0".join(flags), *identity))
    library = builds.fetch(settings.cache_folder, f"{name}.so", partial(_build, compiler, source, flags, runtime))
    return Built(library, _read(builds.content(library)))


@cache
def find_compiler() -> str:
    """Return the path of clang. Raises ToolchainError if there is none."""
    for name in COMPILERS:
        found = shutil.which(name)
        if found:
            return found
    raise ToolchainError("no clang found (looked for clang++): the Metal emulator needs it; install the package clang")


def version() -> str:
    """Return clang's version number. Raises ToolchainError if clang is missing."""
    found = re.search(r"\d+(?:\.\d+)+", _version(find_compiler()))
    return found[0] if found else "unknown"


@cache
def _version(compiler: str) -> str:
    try:
        answer = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolchainError(f"{compiler} does not answer: {error}") from error
    return answer.stdout


@cache
def _own_sources() -> str:
    """Return a digest of the emulator's own headers, runtime and translator. It is part of the cache key, so that
    another version of them gives new builds."""
    files = sorted(file for file in _FOLDER.rglob("*") if file.is_file() and "__pycache__" not in file.parts)
    return builds.key(file.read_text(encoding="utf-8") for file in files)


def _build_runtime(compiler: str, place: Path) -> Path:
    command = [
        compiler,
        "-O2",
        "-g0",
        "-U_FORTIFY_SOURCE",
        "-std=c++17",
        "-fPIC",
        "-fno-builtin",
        "-fno-exceptions",
        "-fno-rtti",
        "-fno-threadsafe-statics",
        "-c",
    ]
    status, log = steps.run([*command, str(_RUNTIME / "emulator.cpp"), "-o", "emulator.o"], place)
    if status != 0:
        raise ToolchainError(f"the Metal emulator does not build here: {diagnostics.trim(log, 10)}")
    return place / "emulator.o"


def _build(compiler: str, source: str, flags: tuple[str, ...], runtime: Path, place: Path) -> Path:
    (place / SOURCE).write_text(source, encoding="utf-8")
    include = ["-I", str(_INCLUDE)]
    stubs = ["-DKF_PREPROCESS", *include]
    preprocess = [compiler, "-E", "-x", "c++", *_LANGUAGE, *_PREDEFINED, *flags, *stubs, SOURCE, "-o", "expanded.metal"]
    _step(preprocess, place)
    translation = translate(_own_lines((place / "expanded.metal").read_text(encoding="utf-8")))
    if not translation.kernels:
        raise CompileError(
            "the source has no kernel: write one as "
            "kernel void name(device float* out, uint index [[thread_position_in_grid]]) { ... }"
        )
    (place / "translated.cpp").write_text(translation.text, encoding="utf-8")
    compile_ = [compiler, "-x", "c++", *_LANGUAGE, *include, "-include", "kforge_metal.h", "translated.cpp"]
    _step([*compile_, *_CODE, "-c", "-o", "kernel.o"], place)
    _check_spaces([*compile_, "-fsyntax-only", "-DKF_CHECK_ADDRESS_SPACES"], place)
    link = [compiler, "-shared", *_WRAPPED, "kernel.o", str(runtime.resolve()), "-o", "kernel.so", "-lm", "-lpthread"]
    _step(link, place)
    # The facts about the kernels are appended to the library's file; the loader ignores what follows its last section.
    facts = {**asdict(translation), "text": ""}
    library = place / "kernel.so"
    library.write_bytes(library.read_bytes() + _HEAD_END + json.dumps(facts).encode())
    return library


def _own_lines(expanded: str) -> str:
    """Return the preprocessed source without the lines that come from the emulator's headers. Of the line markers, only
    those of the user's file and of the header that was put into it are kept."""
    kept, own = [], True
    for line in expanded.splitlines():
        if line.startswith("# "):
            own = f'"{SOURCE}"' in line or f'"{HEADER}"' in line
            if not own:
                continue
            line = line[: line.rindex('"') + 1]  # without flags about entering and leaving files
        if own:
            kept.append(line)
    return "\n".join(kept) + "\n"


def _step(command: list[str], place: Path) -> None:
    status, log = steps.run(command, place)
    if status != 0:
        raise CompileError(diagnostics.trim(_in_source(_plain(log))) or f"clang failed with status {status}", log)


def _check_spaces(command: list[str], place: Path) -> None:
    """Compile once more, with real address spaces, and raise CompileError if a pointer or reference changes its address
    space.

    C++ cannot copy a structure out of another address space, so most errors of this pass mean nothing and are ignored.
    """
    command = [word if not word.startswith("-ferror-limit") else "-ferror-limit=0" for word in command]
    status, log = steps.run(command, place)
    if status == 0:
        return
    lines = log.splitlines()
    for index, line in enumerate(lines):
        error = _ERROR.match(line)
        if error is None:
            continue
        notes = []
        for later in lines[index + 1 :]:
            if _ERROR.match(later) or " error: " in later:
                break
            note = _CANDIDATE.match(later)
            if note is not None:
                notes.append(note[1] if later.startswith(SOURCE) else "of a header")
        if _changes_space(error[2], notes):
            reason = "".join(f"; {note}" for note in notes[:1])
            raise CompileError(f"{SOURCE}:{error[1]}: error: {_plain(error[2] + reason)}", _plain(log))


def _changes_space(message: str, notes: list[str]) -> bool:
    """Return whether a compiler error is about a pointer or a reference to another address space.

    The same source has compiled without address spaces, so that they are the only possible reason for an error.
    """
    if message.startswith("no matching function"):
        return bool(notes) and all(_CONVERSION.search(note) or "address space" in note for note in notes)
    if "changes address space" in message or "mismatching address spaces" in message:
        return True
    types = re.findall(r"'([^']*)'", message)
    return message.startswith("cannot initialize") and types[0].endswith(("*", "&", "*const", "*restrict"))


def _in_source(log: str) -> str:
    """Return the log with errors inside the emulator's headers moved to the line of the user's source that caused
    them."""
    lines = log.splitlines()
    kept: list[str] = []
    for index, line in enumerate(lines):
        error = _HEADER_ERROR.match(line)
        if error is None:
            kept.append(line)
            continue
        place = f"{SOURCE}:?"
        for later in lines[index + 1 :]:
            if ": error: " in later:
                break
            if later.startswith(f"{SOURCE}:"):
                place = ":".join(later.split(":")[:3])
                break
        asserted = _ASSERTED.search(error[1])
        text = f"{place}: error: {(asserted[1] or asserted[2]) if asserted else error[1]}"
        if text not in kept and f"{place}: error: " not in "\n".join(kept):
            kept.append(text)
    return "\n".join(kept)


def _plain(log: str) -> str:
    """Return the log with Metal's own words for address spaces, and without the emulator's names."""
    for attribute, word in _SPACES.items():
        log = log.replace(attribute, word)
    return log.replace("metal::", "")


def _read(entry: bytes) -> Translation:
    facts = json.loads(entry[entry.rindex(_HEAD_END) + 1 :])
    facts["kernels"] = [
        KernelFunction(**{**one, "parameters": tuple(Parameter(**parameter) for parameter in one["parameters"])})
        for one in facts["kernels"]
    ]
    facts["constants"] = [FunctionConstant(**one) for one in facts["constants"]]
    return Translation(**facts)
