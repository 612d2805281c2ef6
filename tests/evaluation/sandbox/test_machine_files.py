"""Files of /proc and /sys about the whole machine do not change while a program runs: it learns of no other process."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.evaluation.sandbox.conftest import Inside

    from kforge.evaluation.processes.worker_start import Workers

pytestmark = pytest.mark.usefixtures("workers")

MOVING = """
import glob
def texts():
    found = {}
    for path in sorted(files):
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            try: found[path] = os.read(descriptor, 1 << 20)
            finally: os.close(descriptor)
        except OSError: pass
    return found
files = set()
try: names = os.listdir("/proc")
except OSError: names = NAMES  # behind Landlock some files can be read, and the folder cannot
for name in names:
    path = "/proc/" + name
    if name.isdecimal() or os.path.islink(path): continue
    files |= {path} if os.path.isfile(path) else {os.path.join(folder, file) for folder, _, names in os.walk(path)
              for file in names if not folder.startswith(("/proc/sys/net", "/proc/sys/kernel/random", "/proc/driver"))}
files |= {file for form in ("node/node*/vmstat", "node/node*/meminfo", "node/node*/numastat", "cpu/cpu*/cpuidle/*/*",
          "cpu/cpufreq/*/*") for file in glob.glob("/sys/devices/system/" + form)}
files -= {"/proc/kallsyms", "/proc/sys/kernel/ns_last_pid"}  # large; of its own PID namespace
before = texts()
burn = "x = bytearray(50_000_000)\\nfor _ in range(10**6): pass"
children = [subprocess.Popen([sys.executable, "-c", burn]) for _ in range(2)]
for child in children: child.wait()
now = texts()
say([path for path in before if before[path] != now[path]])
"""
NAMES = ("stat", "loadavg", "uptime", "vmstat", "interrupts", "softirqs", "diskstats", "schedstat", "pressure",
         "meminfo", "cpuinfo", "locks", "zoneinfo", "buddyinfo")  # fmt: skip
MEMORY = ("/proc/meminfo", "/sys/devices/system/node/")
"""What stays live behind Landlock, which can open or close files and not replace them."""


def test_no_file_about_the_machine_moves_while_a_program_runs(inside: Inside, workers: Workers) -> None:
    moving = ast.literal_eval(inside(f"NAMES = {NAMES!r}\n" + MOVING))
    if workers.sandbox.startswith("landlock"):
        moving = [path for path in moving if not path.startswith((*MEMORY, "/proc/cpuinfo"))]
    assert moving == []


def test_what_honest_programs_read_is_there(inside: Inside, workers: Workers) -> None:
    said = inside("""
files = {"/proc/cpuinfo": "processor", "/proc/meminfo": "MemAvailable:", "/proc/self/status": "VmRSS:",
         "/proc/self/maps": "libc", "/proc/filesystems": "proc", "/proc/version": "Linux"}
said = [path for path, word in files.items() if word not in Path(path).read_text()]
import multiprocessing, torch
say((said, os.cpu_count() > 0, torch.get_num_threads() > 0, len(os.sched_getaffinity(0)) > 0))""")
    assert said == "([], True, True, True)"
    if workers.sandbox.startswith("namespaces"):
        said = inside("""
files = {"/proc/stat": "cpu0", "/proc/uptime": ".", "/proc/loadavg": "/", "/proc/sys/kernel/osrelease": ".",
         "/proc/sys/vm/overcommit_memory": "", "/proc/sys/fs/file-max": "", "/proc/devices": "Character",
         "/proc/sys/fs/file-nr": ""}
say([path for path, word in files.items() if word not in Path(path).read_text()])""")
        assert said == "[]"


def test_no_file_about_the_machine_can_be_changed(inside: Inside) -> None:
    said = inside("""
files = ("/proc/stat", "/proc/meminfo", "/proc/uptime", "/proc/sys/fs/file-nr", "/proc/sys/vm/overcommit_memory")
say([path for path in files if "refused" not in attempt(Path(path).write_text, "1")])""")
    assert said == "[]"
