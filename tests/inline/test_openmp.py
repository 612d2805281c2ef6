"""Kernels and torch share one OpenMP runtime; each question is asked in a fresh process."""

import subprocess
import sys

import pytest

SOURCE = r"""
#include <omp.h>
extern "C" int threads() { return omp_get_max_threads(); }
extern "C" int used() {
    int count = 0;
    #pragma omp parallel reduction(+ : count)
    count += 1;
    return count;
}
extern "C" double dynamic(const double* x, int n) {
    double sum = 0;
    #pragma omp parallel for schedule(dynamic) reduction(+ : sum)
    for (int i = 0; i < n; ++i) sum += x[i];
    return sum;
}
"""
PRELUDE = f"""
import sys
from pathlib import Path
from kforge import inline
inline.configure(cache=Path(sys.argv[1]))
library = inline.compile({SOURCE!r})
import torch
"""


@pytest.fixture
def ask(cache):
    def run(program):
        command = [sys.executable, "-c", PRELUDE + program, str(cache)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()

    return run


def test_one_runtime_is_mapped_even_when_the_kernel_asks_first(ask):
    mapped = ask("""
library.used()
(torch.ones(1 << 20) * 2).sum()
print(*{line.split()[-1] for line in open("/proc/self/maps")})
""")
    names = [path.rpartition("/")[2] for path in mapped]
    assert len([name for name in names if name.startswith(("libgomp", "libomp", "libiomp"))]) == 1


def test_torch_governs_the_threads_of_kernels(ask):
    assert ask("""
for count in (1, 3, 2):
    torch.set_num_threads(count)
    print(library.threads(), library.used())
""") == ["1", "1", "3", "3", "2", "2"]


def test_schedules_and_reductions_of_this_compiler_are_in_that_runtime(ask):
    assert ask("print(library.dynamic(torch.ones(1000, dtype=torch.float64), 1000))") == ["1000.0"]
