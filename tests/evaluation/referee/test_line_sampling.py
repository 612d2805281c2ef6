"""A profile of a program with a C++ kernel: where its time goes, by loop, seen from outside."""

from pathlib import Path

from kforge import platforms, problems
from kforge.evaluation import Judge
from kforge.records import Candidate, EvaluationPolicy

PROBLEM = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        return torch.exp(-x * x).sum(-1)

def get_inputs():
    return [torch.rand(256, 1024)]

def get_init_inputs():
    return []
"""
PROGRAM = '''
import torch
from torch import nn
from kforge import inline

library = inline.compile(r"""
#include <cmath>
#include <cstdint>
extern "C" void work(const float* x, float* out, int64_t rows, int64_t columns) {
    for (int64_t row = 0; row < rows; ++row) {
        double sum = 0;
        for (int64_t i = 0; i < columns; ++i) {
            const float y = x[row * columns + i];
            sum += std::exp(double(-y * y));
        }
        out[row] = sum;
    }
}
""")

class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty(x.shape[0])
        library.work(x, out, x.shape[0], x.shape[1])
        return out
'''


def test_the_busiest_loop_is_named_with_the_compilers_report(tmp_path: Path, clean_environment: dict[str, str]) -> None:
    (tmp_path / "problem.py").write_text(PROBLEM)
    problem = problems.load(tmp_path / "problem.py")
    cache = Path(clean_environment["XDG_CACHE_HOME"]) / "kforge"
    policy = EvaluationPolicy(compile_baseline=False)
    with Judge(platforms.find("cpu"), policy, cache=cache, environment=clean_environment) as judge:
        profile = judge.profile(problem, Candidate(source=PROGRAM, platform="cpu"), seconds=2e-3)
    code = profile.authored
    assert code is not None
    assert code.samples > 0
    assert code.loops[0].line == 7
    assert code.loops[0].text == "for (int64_t i = 0; i < columns; ++i) {"
    assert code.loops[0].report.startswith("not vectorized: ")
    assert bool(code.counters) != bool(code.uncounted)
    assert code.loops[0].text in profile.digest_text
    assert code.loops[0].report in profile.digest_text
