"""NVIDIA's compute-sanitizer for the platforms on its GPUs. It has four tools, which run one after the other: memcheck,
initcheck, racecheck and synccheck.

Covered, in every kernel that the program launches: accesses out of bounds or misaligned, global memory that is read
before it was written, hazards in shared memory, and barriers that not all threads reach. The silence of a tool counts
only if the tool also reported an error that was planted in the same process. Not covered: races in global memory,
accesses that stay inside one tensor, kernels of libraries, and a program that hides errors on purpose. It is not a
security boundary.

Kernels of libraries are not checked, because instrumenting torch's kernels takes minutes. So initcheck does not see
their writes, and is used only if a call runs none of them.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

from kforge import inline
from kforge.errors import PlatformError
from kforge.inline.cuda import toolkit
from kforge.platforms.contracts import NoSanitizer, Sanitizer, SanitizerReport
from kforge.platforms.nvidia.kernels import GENERATIONS, LIBRARIES, owners

if TYPE_CHECKING:
    from collections.abc import Iterator

COMMAND = "compute-sanitizer"
LAUNCHER = "TreeLauncherSubreaper"
"""Name of the helper with which compute-sanitizer starts the program. Some wheels on PyPI lack it."""
PADDING = 512
"""Bytes of padding after every allocation, so that a small overrun does not reach the next one. cudaMalloc aligns to
256 bytes."""
PRINT_LIMIT = 40
"""Most reports of one run. Only the end of a log is kept, and more reports would push the first ones out."""
_EXCLUDED = (
    f"^_ZN({'|'.join(f'{len(name)}{name}' for name in LIBRARIES)})[0-9]"
    f"|^(sm[0-9]+_xmma|cutlass_[0-9]+|nvjet)_|^({GENERATIONS})_[a-z0-9_]*gemm_[0-9]+x[0-9]+_"
)
"""Pattern of the mangled names of kernels of torch and its libraries. Names that a program could use itself are not
included."""

_COMMON = (
    # do not instrument a compiler that the program starts
    "--target-processes=application-only", f"--print-limit={PRINT_LIMIT}", "--num-callers-host=4",
    # the caller that waits for the worker decides how long a start may take
    "--launch-timeout=0",
    # torch makes calls that may fail, and handles the errors
    "--report-api-errors=no", "--check-exit-code=no",
)  # fmt: skip
_NOT_LIBRARIES = (f"--kernel-name-exclude=regex={_EXCLUDED}",)
TOOLS: dict[str, tuple[str, ...]] = {
    "memcheck": (f"--padding={PADDING}", *_NOT_LIBRARIES),
    "initcheck": _NOT_LIBRARIES,
    "synccheck": _NOT_LIBRARIES,
    "racecheck": ("--racecheck-detect-level=error", *_NOT_LIBRARIES),
}
"""The tools with their options, the cheapest tool first."""

# Every tensor must be an allocation of its own: inside a block of the caching allocator, no access is out of bounds.
_ENVIRONMENT = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
_CONDITIONS = "every tensor is a separate allocation and kernels run many times slower"


def find(no_device: str | None) -> tuple[Sanitizer, ...] | NoSanitizer:
    """Return the four tools, or the reason why they cannot be used.

    `no_device` says why this machine has no usable GPU; None if it has one.
    """
    if no_device is not None:
        return NoSanitizer(f"{COMMAND} needs a GPU: {no_device}")
    command = next(_commands(), None)
    if command is None:
        return NoSanitizer(
            f"no {COMMAND} found: it comes with the CUDA toolkit, or pip install nvidia-cuda-sanitizer-api"
        )
    try:
        said = subprocess.run(
            [command, "--version"], capture_output=True, text=True, errors="replace", check=False, timeout=60
        ).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        return NoSanitizer(f"{command} does not answer: {error}")
    version = re.search(r"Version (\d+(?:\.\d+)+)", said)
    if version is None:
        return NoSanitizer(f"{command} does not report its version")
    return tuple(
        Sanitizer(
            name=f"{COMMAND} {version[1]} {tool}",
            read=read,
            environment=_ENVIRONMENT,
            wrapper=(str(command), f"--tool={tool}", *_COMMON, *options),
            planted=tool,
            proven=partial(reported, tool),
            unsuited=without_kernels,
            blind_to=of_a_library if tool == "initcheck" else None,
            conditions=_CONDITIONS,
        )
        for tool, options in TOOLS.items()
    )


def _commands() -> Iterator[Path]:
    """Yield the paths of the real compute-sanitizer executable. The file on PATH is often a script, or a link to
    one."""
    on_path = shutil.which(COMMAND)
    roots = [*([Path(on_path).resolve().parents[1]] if on_path else []), *toolkit.places()]
    for folder in (root / place for root in roots for place in (COMMAND, "extras/" + COMMAND, "bin")):
        if (folder / COMMAND).is_file() and (folder / LAUNCHER).is_file():
            yield (folder / COMMAND).resolve()


def without_kernels(source: str) -> str | None:
    """Return why a program has nothing to check, or None. Kernels of libraries are not checked, so it must have its
    own."""
    own = "__global__" in source or "triton" in source
    return None if own else "it has no kernel of its own, and kernels of libraries are not checked"


def of_a_library(program: str, kernel: str) -> bool:
    """Return whether a kernel that this program ran belongs to a library."""
    return owners(program)(kernel) == "library"


# --- the planted errors ---------------------------------------------------------------------------------------

PLANTED = "kforge_planted_"
_KERNELS = r"""
extern "C" __global__ void kforge_planted_memcheck(float* x, int n) { x[n] = 1.0f; }
extern "C" __global__ void kforge_planted_initcheck(const float* x, float* out) { out[0] = x[0] + 1.0f; }
extern "C" __global__ void kforge_planted_synccheck(float* out) {
    if (threadIdx.x < 5) __syncthreads();
    out[threadIdx.x] = 1.0f;
}
extern "C" __global__ void kforge_planted_racecheck(float* out) {
    __shared__ float seen[64];
    seen[threadIdx.x] = threadIdx.x;
    out[threadIdx.x] = seen[63 - threadIdx.x];
}
"""


def plant(error: str, device: str) -> None:
    """Cause the error that this tool must report, so that the tool's silence about the program can be trusted. Raises
    what torch raises after the device has failed."""
    import torch

    if error not in TOOLS:
        raise PlatformError(f"there is no planted error named {error}")
    kernels = inline.compile(_KERNELS, "cuda")
    memory, out = torch.empty(64, device=device), torch.zeros(64, device=device)
    match error:
        case "memcheck":
            kernels.kforge_planted_memcheck(out, 64, threads=1, group_size=1)
        case "initcheck":
            kernels.kforge_planted_initcheck(memory, out, threads=1, group_size=1)
        case "synccheck":
            kernels.kforge_planted_synccheck(out, threads=32, group_size=32)
        case "racecheck":
            kernels.kforge_planted_racecheck(out, threads=64, group_size=64)
    torch.cuda.synchronize()


def reported(tool: str, log: str) -> bool:
    """Return whether the log contains the report of this tool's planted error."""
    return any(finding.kernel == PLANTED + tool for finding in findings(log))


# --- reports --------------------------------------------------------------------------------------------------

MAX_LINE = 1000
"""Most characters of a line that are searched. A program can write any log, and a very long line would slow the
patterns down."""
_PREFIX = "========="
_PLACE = re.compile(r"\bat (?P<kernel>\S.*)\+0x[0-9a-f]+(?: in (?P<file>[^\s:]+):(?P<line>\d{1,6}))?")
_FRAME = re.compile(r"^Device Frame: *(?P<kernel>\S.*)\+0x[0-9a-f]+ in (?P<file>[^\s:]+):(?P<line>\d{1,6})")
_THREAD = re.compile(r"^by thread \(\d+,\d+,\d+\) in block \(\d+,\d+,\d+\)")
_ADDRESS = re.compile(r" ?(?:at |to )?\b0x[0-9a-f]{6,}\b")
_OFFSET = re.compile(r"\+0x[0-9a-f]+")
_LIBRARY_NAME = re.compile(
    r"(?:at|c10|at_cuda_detail|cub|thrust|cutlass|cute|cublas\w*|cudnn\w*|cask\w*|cusparse\w*|cusolver\w*|cufft\w*|nccl\w*"
    r"|pytorch_flash|internal)::|sm\d+_xmma|cutlass_\d|nvjet_|nccl|fmha_|[a-z]+_[a-z0-9]*gemm_\d|gemv|gemmk1|splitKreduce"
    r"|dot_kernel|reduce_1Block|(?:vector|regular)_fft"
)
_LIBRARY_FILE = re.compile(r"\bin (?:\S*/)?lib(?:torch|c10|cublas|cudnn|cufft|cusparse|cusolver|curand|nccl)\w*\.so")
_RETURNED = re.compile(r"^(?:void|int|float|bool) ")


@dataclass(frozen=True)
class Finding:
    """One report about a kernel."""

    what: str
    kernel: str
    """The kernel's name, without parameters and template arguments."""
    places: tuple[str, ...]
    """Source places as `FILE:LINE`, the innermost first. Empty if the kernel was built without line numbers."""
    details: tuple[str, ...]
    library: bool


def read(log: str) -> SanitizerReport | None:
    """Return the first report about a kernel of the program, without addresses. None if there is no such report."""
    own = [one for one in findings(log) if not one.library and not one.kernel.startswith(PLANTED)]
    if not own:
        return None
    first = own[0]
    where = f" at {first.places[0]}" if first.places else ""
    lines = [first.what, *(f"    in {first.kernel} at {place}" for place in first.places), *first.details]
    if not first.places:
        lines.insert(1, f"    in {first.kernel}")
    others = len({(one.what, one.kernel, one.places) for one in own}) - 1
    if others:
        lines.append(f"and {others} more place{'s' if others > 1 else ''}")
    reason = ", ".join([f"{first.what} in {first.kernel}{where}", *first.details])
    return SanitizerReport(reason[:500], "\n".join(lines))


def findings(log: str) -> list[Finding]:
    """Return all reports about kernels, in order."""
    found, block = [], [""]
    for line in [*log.splitlines(), f"{_PREFIX} "]:
        if not line.startswith(_PREFIX):
            continue  # a line that the program printed
        text = line[len(_PREFIX) :][:MAX_LINE]
        if text.startswith("  "):
            block.append(text.strip())
            continue
        if one := _finding(block):
            found.append(one)
        block = [text.strip()]
    return found


def _finding(block: list[str]) -> Finding | None:
    """Return the report that these lines form, the first line being its head. None if it is not about a kernel."""
    device = list(takewhile(lambda line: not line.startswith(("Saved host", "Host Frame")), block))
    spots = [spot for line in device if (spot := _PLACE.search(line) or _FRAME.search(line))]
    if not spots or not block[0]:  # a report whose head was cut off with the beginning of the log
        return None
    kernel, places = _name(spots[0]["kernel"]), [f"{s['file']}:{s['line']}" for s in spots if s["file"]]
    what = _ADDRESS.sub("", _PLACE.sub("", block[0])).removeprefix("Error: ").strip()
    details = [detail for line in device[1:] if (detail := _detail(line))]
    entry = next((line for line in block[len(device) :] if line.startswith("Host Frame")), "")
    # libraries have no line numbers; if there are line numbers, a name like a library's is a coincidence
    library = not places and bool(_LIBRARY_NAME.match(kernel) or _LIBRARY_FILE.search(entry))
    return Finding(what, kernel, tuple(dict.fromkeys(places)), tuple(details), library)


def _detail(line: str) -> str:
    """Return the part of a report's line that helps to fix the kernel. Empty if it does not help."""
    if thread := _THREAD.match(line):
        return thread[0]
    if line.startswith("and ") and _PLACE.search(line):  # the other side of a race
        return _OFFSET.sub("", line)
    if "out of bounds" in line or "nearest allocation" in line or "misaligned" in line:
        return re.sub(r"^and ", "", _ADDRESS.sub("", line)).strip()
    return ""


def _name(kernel: str) -> str:
    name = _RETURNED.sub("", kernel.strip()).replace("(anonymous namespace)::", "").replace("<unnamed>::", "")
    return re.split(r"[<(]", name, maxsplit=1)[0].strip() or kernel
