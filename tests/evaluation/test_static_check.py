"""The static scan: it names what need not be run, and leaves honest programs alone."""

import pytest

from kforge.evaluation.static_check import scan

HONEST = """
import time, torch
from kforge import inline
class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.time = time.perf_counter()
    def forward(self, x):
        return x
"""


@pytest.mark.parametrize(
    "source",
    [
        HONEST,
        "from elsewhere import ModelNew",
        "import kforge, kforge.inline\nclass ModelNew: pass",
        "from kforge.inline import *\nfrom kforge.inline.errors import CompileError\nclass ModelNew: pass",
        "import kforgery.evaluation\nfrom kforges import evaluation\nclass ModelNew: pass",
        "class A: pass\nModelNew = A",
        "try:\n    import fast\nexcept ImportError:\n    class ModelNew: pass",
        "ModelNew: type = object",
        "class A: pass\nmatch A:\n    case ModelNew: pass",
        "class A: pass\nmatch [A]:\n    case [*_, object() as ModelNew]: pass",
        "class A: pass\nmatch 1:\n    case _:\n        ModelNew = A",
        "try:\n    import fast\nexcept* ImportError:\n    pass\nelse:\n    class ModelNew: pass",
        "class A: pass\nfor ModelNew in [A]: pass",
        "class A: pass\nfor name, ModelNew in [(1, A)]: pass",
        "from contextlib import nullcontext\nclass A: pass\nwith nullcontext(A) as ModelNew: pass",
        "class A: pass\nif (ModelNew := A): pass",
        "class A: pass\nprint((ModelNew := A))",
        "class A: pass\nany((ModelNew := each) for each in [A])",
        "class A: pass\nwhile True:\n    for _ in ():\n        pass\n    else:\n        ModelNew = A\n        break",
        "if 0: pass\n" + "elif 0: pass\n" * 900 + "else:\n    class ModelNew: pass",
    ],
)
def test_programs_are_left_to_the_referee(source: str) -> None:
    assert scan(source) is None


@pytest.mark.parametrize(
    ("source", "state"),
    [
        ("", "generation_failure"),
        ("   \n\n", "generation_failure"),
        ("import torch", "generation_failure"),
        ("def f():\n    class ModelNew: pass", "generation_failure"),
        ("class A:\n    class ModelNew: pass", "generation_failure"),
        ("ModelNew: type", "generation_failure"),
        ("x = [ModelNew for ModelNew in ()]", "generation_failure"),
        ("f = lambda: (ModelNew := 1)", "generation_failure"),
        ("print(ModelNew)", "generation_failure"),
        ("class ModelNew(:", "compilation_failure"),
        ("class ModelNew: pass\n\0", "compilation_failure"),
        ("import time\ntime.perf_counter = lambda: 0\nclass ModelNew: pass", "rejected"),
        ("import torch\ntorch.cuda.synchronize = print\nclass ModelNew: pass", "rejected"),
        ("import kforge.evaluation.worker.main\nclass ModelNew: pass", "rejected"),
        ("from kforge import evaluation\nclass ModelNew: pass", "rejected"),
        ("from kforge.evaluation import judge\nclass ModelNew: pass", "rejected"),
        ("import kforge.platforms.host\nclass ModelNew: pass", "rejected"),
        ("import torch, kforge.inlined\nclass ModelNew: pass", "rejected"),
        ("from kforge import inline, drop_in\nclass ModelNew: pass", "rejected"),
        ("from kforge import *\nclass ModelNew: pass", "rejected"),
    ],
)
def test_what_need_not_be_run_is_named(source: str, state: str) -> None:
    verdict = scan(source)
    assert verdict is not None
    assert verdict.state == state


def test_a_syntax_error_shows_its_line() -> None:
    verdict = scan("class ModelNew:\n    x = (1\n")
    assert verdict is not None
    assert "line" in verdict.reason
    assert "x = (1" in getattr(verdict, "log", "")
