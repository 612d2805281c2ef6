"""The C++ compiler's AddressSanitizer and UndefinedBehaviorSanitizer, for platforms whose kernels run on the host.

Covered, in code that `kforge.inline` builds: reads and writes out of bounds of tensors, temporaries, stack and globals;
use after free; undefined arithmetic, shifts and alignment. New memory is filled with NaN, so that a read before the
first write shows in the output. Not covered: code that was built otherwise, races, and a program that switches the
instrumentation off. The sanitizers find honest mistakes; they are not a security boundary.
"""

from __future__ import annotations

import re
import subprocess
import sys
from itertools import pairwise, takewhile
from pathlib import Path

from kforge.inline import InlineError, ToolchainError, cxx
from kforge.platforms.contracts import NoSanitizer, Sanitizer, SanitizerReport

FLAGS = ("-fsanitize=address,undefined", "-fno-omit-frame-pointer", "-g", "-O1")

_ASAN_OPTIONS = {
    "detect_leaks": "0",  # it needs ptrace, which the sandbox forbids; and Python frees little memory at exit
    "detect_odr_violation": "0",
    # torch's own libraries are not instrumented, and mix allocators in harmless ways
    "alloc_dealloc_mismatch": "0",
    "new_delete_type_mismatch": "0",
    # 2 means that handlers cannot be replaced: Python's fault handler would take the signal and report less
    "handle_segv": "2",
    "handle_sigbus": "2",
    "handle_sigfpe": "2",
    # NaN as float32, float16 and bfloat16, -1 as an integer: memory that is read before it is written shows
    "malloc_fill_byte": "255",
    "max_malloc_fill_size": str((1 << 31) - 1),
    "color": "never",
    "print_legend": "0",
}
_UBSAN_OPTIONS = {"halt_on_error": "1", "print_stacktrace": "1", "color": "never"}

_RUNTIMES = ("libasan.so", "libubsan.so")

_TENSORS = """
#include <cstddef>
#include <cstdlib>

// torch takes the memory of tensors from an allocator of its own on some machines (aarch64), where no sanitizer sees
// where one tensor ends. Preloaded, these are found before torch's.
namespace c10 {
void* alloc_cpu(size_t bytes) {
    void* memory = nullptr;
    return bytes && posix_memalign(&memory, 64, bytes) == 0 ? memory : nullptr;
}
void free_cpu(void* memory) { free(memory); }
}
"""
_ELF = b"\x7fELF"
_IN_SCRIPT = re.compile(rb"(/\S+\.so\S*)")


def find() -> Sanitizer | NoSanitizer:
    """Return the sanitizer of the compiler that `kforge.inline` uses, or the reason why there is none."""
    if sys.platform != "linux":
        return NoSanitizer("the compiler's sanitizers are only used on Linux")
    try:
        compiler = cxx.find_compiler()
        version = _ask(compiler, "--version").partition("\n")[0]
        if "clang" in version:
            return NoSanitizer(f"{compiler} is a clang, whose sanitizers kforge does not use; install g++")
        found = {name: library(Path(_ask(compiler, f"-print-file-name={name}").strip())) for name in _RUNTIMES}
        for name, path in found.items():
            if path is None:
                return NoSanitizer(f"{compiler} has no {name}; install the compiler's sanitizer libraries")
        runtimes = str(found["libasan.so"]), str(cxx.preloadable(_TENSORS))
    except InlineError as error:
        return NoSanitizer(str(error))
    number = re.findall(r"\d+(?:\.\d+)+", version)[-1:]
    return Sanitizer(
        name=" ".join(["ASan and UBSan of", Path(compiler).name, *number]),
        read=read,
        flags=FLAGS,
        environment={
            "LD_PRELOAD": ":".join(runtimes),
            "ASAN_OPTIONS": _joined(_ASAN_OPTIONS),
            "UBSAN_OPTIONS": _joined(_UBSAN_OPTIONS),
        },
        runtimes=runtimes,
        evidence=str(found["libubsan.so"]),
    )


def _ask(compiler: str, question: str) -> str:
    try:
        return subprocess.run(
            [compiler, question], capture_output=True, text=True, errors="replace", check=False, timeout=60
        ).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolchainError(f"{compiler} does not answer: {error}") from error


def library(path: Path) -> Path | None:
    """Return the library file behind a path that a compiler printed. The path may be a linker script that names the
    library.

    Returns None if there is no such library. A compiler that has none prints the bare name, without a folder.
    """
    if not path.is_absolute() or not path.is_file():
        return None
    content = path.read_bytes()
    if content.startswith(_ELF):
        return path.resolve()
    named = _IN_SCRIPT.search(content)
    target = Path(named[1].decode()) if named else path
    return target.resolve() if target.is_file() and target.read_bytes().startswith(_ELF) else None


def _joined(options: dict[str, str]) -> str:
    return ":".join(f"{name}={value}" for name, value in options.items())


# --- reports --------------------------------------------------------------------------------------------------

_ASAN = re.compile(r"^==\d+==\s*ERROR: (?P<tool>AddressSanitizer): (?P<what>.*)$", re.MULTILINE)
_UBSAN = re.compile(r"^\S+:\d+:\d+: runtime error: (?P<what>.*)$", re.MULTILINE)
_END = re.compile(r"^(?:SUMMARY: |Shadow bytes |==\d+==ABORTING)", re.MULTILINE)
_FRAME = re.compile(r"^ +#\d{1,3} 0x[0-9a-f]+ +in ")
_ACCESS = re.compile(r"^(?P<how>READ|WRITE) of size \d+|caused by a (?P<signal>READ|WRITE) memory access")
_LOCATED = re.compile(r"^0x[0-9a-f]+ is located (?P<where>.*)$")
_SECTION = re.compile(r"^(?:previously )?(?:allocated|freed) by thread \S+ here:")
_PLACE_OF_ERROR = re.compile(r" on (?:unknown )?address 0x| on 0x|: 0x")
_ADDRESS = re.compile(r" ?\(?\b0x[0-9a-f]{6,}\b\)?")
_OUTLINED = re.compile(r"\._omp_fn\.\d+|\[clone [^]]*\]|\.(?:isra|part|constprop|cold)(?:\.\d+)?")
MAX_LINES = 40
MAX_LINE = 1000
"""Most characters of a line that are searched. A program can write any log, and a very long line would slow the
patterns down."""


def read(log: str) -> SanitizerReport | None:
    """Return the first report in a log, without addresses and without stack frames outside the kernel. None if there is
    no report."""
    log = "\n".join(line[:MAX_LINE] for line in log.splitlines())
    found = [match for match in (_ASAN.search(log), _UBSAN.search(log)) if match]
    if not found:
        return None
    first = min(found, key=lambda match: match.start())
    asan = "tool" in first.groupdict()
    what = _PLACE_OF_ERROR.split(first["what"])[0] if asan else _ADDRESS.sub("", first["what"])
    title = f"{'AddressSanitizer' if asan else 'UndefinedBehaviorSanitizer'}: {_ADDRESS.sub('', what).strip()}"
    body = log[first.end() :]
    end = _END.search(body)
    kept = _lines(body[: end.start()] if end else body)
    own = list(takewhile(lambda line: not line.endswith(":"), kept))  # without the stacks of allocation and freeing
    access = next((f", {line}" for line in own if line.startswith(("READ", "WRITE"))), "")
    frame = next((f" {line.strip()}" for line in own if line.startswith(" ")), "")
    where = next((f", {line}" for line in own if "region" in line or "variable" in line), "")
    reason = title + access + frame + where
    exhausted = asan and what.startswith(("out of memory", "out-of-memory"))
    return SanitizerReport(reason[:500], "\n".join([title, *kept][:MAX_LINES]), exhausted)


def _lines(body: str) -> list[str]:
    """Return those lines of a report's body that help the author of the kernel."""
    kept: list[str] = []
    for line in body.splitlines():
        if frame := _frame_in_kernel(line):
            kept.append(frame)
        elif access := _ACCESS.search(line):
            kept.append(access[0] if access["how"] else access["signal"])
        elif located := _LOCATED.match(line):
            kept.append(_plain(located["where"]))
        elif section := _SECTION.match(line):
            kept.append(re.sub(r" by thread \S+ here:", ":", section[0]))
        elif "<==" in line:  # names the variable on the stack
            kept.append(line.strip())
        elif "c10::" in line and kept and kept[-1].endswith(":"):
            kept.append("    in torch, for a tensor")
    # a section whose frames were all dropped says nothing
    return [line for line, after in pairwise([*kept, ""]) if not (line.endswith(":") and not after.startswith(" "))]


def _frame_in_kernel(line: str) -> str:
    """Return one frame of a stack without its path, or an empty string if the frame is not in the kernel's source."""
    start = _FRAME.match(line)
    if start is None:
        return ""
    function, _, place = line[start.end() :].rpartition(" ")
    file, _, position = place.rpartition("/")[2].partition(":")
    number = position.partition(":")[0]
    if file != cxx.SOURCE or not number.isdecimal():
        return ""
    return f"    in {_OUTLINED.sub('', function).strip()} at {file}:{number}"


def _plain(where: str) -> str:
    where = re.sub(r" \[0x[0-9a-f]+,0x[0-9a-f]+\)", "", where)
    where = where.replace("to the right of", "after").replace("to the left of", "before")
    return _ADDRESS.sub("", re.sub(r"\S*/(?=[^/\s]+:\d+)", "", where)).strip()
