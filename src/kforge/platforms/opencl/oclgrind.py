"""Oclgrind as the sanitizer of OpenCL kernels: a driver whose device is a simulator that checks every memory access.

Covered, in every kernel that the program launches: accesses out of bounds, races between work-items in local and in
global memory, and barriers that not all work-items of a group reach. Its silence counts only if it also reported an
error that was planted in the same process. Not covered: a program that opens another driver, and memory that is read
before it was written. It finds honest mistakes; it is not a security boundary.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from kforge import inline
from kforge.errors import PlatformError
from kforge.platforms import NoSanitizer, Sanitizer, SanitizerReport

COMMAND = "oclgrind"
DRIVER = "oclgrind/liboclgrind-rt-icd.so"
INSTALL = "apt install oclgrind"
MAX_REPORTS = 50
"""Most reports of one run. Only the end of a log is kept, and more reports would push the first ones out."""
PLANTED = "kforge_planted_bounds"
_SOURCE = f"__kernel void {PLANTED}(__global float* x, int n) {{ x[n] = 1.0f; }}"


def find() -> tuple[Sanitizer, ...] | NoSanitizer:
    """Return the sanitizer, or the reason why this machine has none."""
    command = shutil.which(COMMAND)
    if command is None:
        return NoSanitizer(f"no {COMMAND} found; install it: {INSTALL}")
    prefix = Path(command).resolve().parents[1]
    driver = next((file for name in ("lib", "lib64") if (file := prefix / name / DRIVER).is_file()), None)
    if driver is None:
        return NoSanitizer(f"{command} has no driver {DRIVER} beside it")
    try:
        said = subprocess.run(
            [command, "--version"], capture_output=True, text=True, errors="replace", check=False, timeout=60
        ).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        return NoSanitizer(f"{command} does not answer: {error}")
    version = re.search(r"\d+(?:\.\d+)+", said)
    variables = {
        "OCL_ICD_VENDORS": str(driver),  # instead of all other drivers
        "OCLGRIND_DATA_RACES": "1",
        "OCLGRIND_MAX_ERRORS": str(MAX_REPORTS),
    }
    sanitizer = Sanitizer(
        name=" ".join(["Oclgrind", *([version[0]] if version else [])]),
        read=read,
        # set by a command, because the worker's own environment is cleared before a program opens its device
        wrapper=("env", *(f"{name}={value}" for name, value in variables.items())),
        planted=PLANTED,
        proven=lambda log: f"Kernel: {PLANTED}" in log,
        unsuited=without_kernels,
        conditions="kernels run in a simulator, one work-item after the other",
    )
    return (sanitizer,)


def without_kernels(source: str) -> str | None:
    """Return why a program has nothing to check. None if it has an OpenCL kernel."""
    return None if re.search(r"\b(?:__)?kernel\s+void\b", source) else "it has no OpenCL kernel"


def plant(error: str) -> None:
    """Cause the error that Oclgrind must report, so that its silence about the program can be trusted. Raises
    PlatformError for an unknown name."""
    if error != PLANTED:
        raise PlatformError(f"there is no planted error named {error}")
    import torch

    getattr(inline.compile(_SOURCE, "opencl"), PLANTED)(torch.zeros(4), 4, threads=1, group_size=1)


# --- reports --------------------------------------------------------------------------------------------------

_TITLE = re.compile(
    r"^(?P<what>(?:Invalid (?:read|write|\w+ access)\b|[\w-]+ data race\b|Work-group divergence detected"
    r"|Uninitialized value\b|Index \(.{0,40}\) exceeds\b).*)$"
)
_ADDRESS = re.compile(r" (?:at )?(?P<space>\w+ memory) address 0x[0-9a-f]+")
_KERNEL = re.compile(r"^\s+Kernel: +(?P<name>\w+)")
_LINE = re.compile(r"^\s*At line (?P<number>\d+) ")
_ENTITY = re.compile(r"^\s+(?P<who>(?:First entity|Second entity|Entity|Work-item)): +(?P<where>.*)$")
_MAX_LINE = 1000


def read(log: str) -> SanitizerReport | None:
    """Return the first report in a log that is not about the planted error. None if there is none."""
    blocks = [block for block in _blocks(log) if f"Kernel: {PLANTED}" not in "\n".join(block)]
    if not blocks:
        return None
    title, kernel, lines = _report(blocks[0])
    more = len(blocks) - 1
    counted = f" (and {more} more report{'s' * (more > 1)})" if more else ""
    where = f" in {kernel}" if kernel else ""
    return SanitizerReport(f"Oclgrind: {title}{where}{_places(lines)}{counted}"[:500], "\n".join([title, *lines]))


def _blocks(log: str) -> list[list[str]]:
    """Return the reports in a log, each as its title and the indented lines below it."""
    blocks: list[list[str]] = []
    open_block = False
    for line in (line[:_MAX_LINE] for line in log.splitlines()):
        if _TITLE.match(line):
            blocks.append([line])
            open_block = True
        elif open_block and (line.startswith("\t") or not line.strip()):
            blocks[-1].append(line)
        else:
            open_block = False
    return blocks


def _report(block: list[str]) -> tuple[str, str, list[str]]:
    """Return a report's title without addresses, the kernel's name, and the lines that help the kernel's author."""
    title = _ADDRESS.sub(r" in \g<space>", block[0]).strip()
    kernel, kept = "", []
    for line in block[1:]:
        if found := _KERNEL.match(line):
            kernel = found["name"]
        elif found := _ENTITY.match(line):
            kept.append(f"{found['who']}: {found['where'].strip()}")
        elif found := _LINE.match(line):
            kept.append(f"    in {kernel} at kernel.cl:{found['number']}")
    return title, kernel, kept


def _places(lines: list[str]) -> str:
    found = sorted({line.rpartition(":")[2] for line in lines if line.startswith("    in ")}, key=int)
    return f" at line{'s' * (len(found) > 1)} {' and '.join(found)}" if found else ""
