"""Every prompt and every branch of it, as the model sees it."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from kforge.platforms.concepts import Counterpart
from kforge.prompts import MEASURED, render
from kforge.records import (
    Candidate,
    Comparison,
    CompilationFailure,
    Correct,
    GenerationFailure,
    Interval,
    Mismatch,
    Problem,
    Recommendation,
    Rejected,
    RuntimeFailure,
    TensorSpec,
    Timing,
    Workload,
)

PROBLEM = Problem(
    name="scaled_softmax",
    source="""\
import torch
import torch.nn as nn

ROWS, COLUMNS = 512, 1000


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x):
        return torch.softmax(x * self.scale, dim=-1)


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []
""",
)
CANDIDATE = Candidate(
    source='''\
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    """A docstring with a fence:

    ```
    ModelNew()(x)
    ```
    """

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x):
        return softmax(x * self.scale)
''',
    platform="forest",
)
PLATFORM = SimpleNamespace(
    name="forest",
    title="the forest machine",
    language="Bark",
    fence=("python",),
    facts=("A kernel is a tree.", "`forest.grow(source)` compiles <Bark> & returns a grove."),
    hints=("Plant in rows.",),
)
NO_REFERENCE = {"reference": None}
REFERENCE = {"reference": "__global__ void softmax() {}\n", "origin": None, "counterparts": ()}
TRANSLATED = {
    **REFERENCE,
    "origin": SimpleNamespace(title="Looms (weaver's GPU)", language="Loom C"),
    "counterparts": (
        Counterpart("work items that share memory", "`warp_and_weft`", "threadgroup"),
        Counterpart("matrix unit", "shuttle cores", ""),
    ),
}
EXAMPLE = SimpleNamespace(reference="class Model(nn.Module): ...\n", kernel="class ModelNew(nn.Module): ...  # grown\n")
RECOMMENDATION = Recommendation(
    bottleneck="three passes over memory",
    action="fuse the maximum and the sum into one online pass",
    rationale="the program is memory-bound, and one pass moves a third of the bytes",
    evidence="41 % of the roof; three reads of the input",
    expected_gain="about 2x",
)


def workload(flops: int = 0) -> Workload:
    matrix = TensorSpec(shape=(512, 1000), dtype="float32")
    return Workload(
        inputs=(matrix,),
        outputs=(matrix,),
        parameters=(TensorSpec(shape=(1,), dtype="float32"),),
        flops=flops,
        bytes_moved=4_096_004,
    )


def tried(outcome: str = "0.93x of the program's speed"):
    return [SimpleNamespace(recommendation=RECOMMENDATION, outcome=outcome)]


def correct(speedup: float = 2.5, doubt: str | None = None) -> Correct:
    interval = Interval(median=speedup, low=speedup - 0.1, high=speedup + 0.1)
    comparisons = tuple(
        Comparison(baseline=name, identity="torch", seconds=1e-3, speedup=interval, doubt=doubt)
        for name in ("eager", "compile")
    )
    seconds = Interval(median=1e-3 / speedup, low=1e-4, high=1e-2)
    return Correct(
        max_error=1e-7, tolerance=1e-5, cases=20, timing=Timing(seconds=seconds, comparisons=comparisons, pairs=100)
    )


FAILED = {
    "generation_failure": GenerationFailure(reason="no code block of the answer defines the class ModelNew"),
    "compilation_failure": CompilationFailure(
        reason="kernel.cpp does not compile",
        log="\n".join([f"kernel.cpp:{n}:7: error: 'y' was not declared" for n in range(1, 100)]),
    ),
    "compilation_failure_without_log": CompilationFailure(reason="the compiler took longer than 120 s"),
    "runtime_error_raised": RuntimeFailure(
        fault="raised",
        reason="NameError: name 'softmax' is not defined",
        log="Traceback (most recent call last):\n"
        '  File "candidate.py", line 18, in forward\n'
        "NameError: name 'softmax' is not defined",
    ),
    "runtime_error_died": RuntimeFailure(fault="died", reason="the process was ended by SIGSEGV"),
    "runtime_error_timed_out": RuntimeFailure(fault="timed_out", reason="one call took longer than 60 s"),
    "mismatch_structure": Mismatch(kind="structure", reason="a tuple of 2 instead of one tensor", case="seed 1"),
    "mismatch_shape": Mismatch(kind="shape", reason="output 1 is [512, 1] instead of [512, 1000]", case="seed 1"),
    "mismatch_dtype": Mismatch(kind="dtype", reason="output 1 is float64 instead of float32"),
    "mismatch_numerical": Mismatch(
        kind="numerical",
        reason="512 of 512000 elements are wrong, the first at [0, 999]",
        case="mixed_scale",
        max_error=0.25,
        tolerance=1e-5,
    ),
    "rejected": Rejected(rule="constant-output", reason="the output is the same for different inputs"),
}


def repair(name: str, **facts):
    candidate = None if name == "generation_failure" else CANDIDATE
    given = {**NO_REFERENCE, "repeats": 0, "candidate": candidate, "verdict": FAILED[name], "workload": workload()}
    return render("repair", problem=PROBLEM, **{**given, **facts})


def optimize(speedup: float = 2.5, reference=NO_REFERENCE, trials=(), doubt: str | None = None):
    return render(
        "optimize",
        problem=PROBLEM,
        workload=workload(),
        candidate=CANDIDATE,
        verdict=correct(speedup, doubt),
        recommendation=RECOMMENDATION,
        tried=trials,
        **reference,
    )


def system_generation(precision: str, track: str = "library", **changes):
    platform = SimpleNamespace(**{**vars(PLATFORM), **changes})
    return render("system_generation", platform=platform, example=EXAMPLE, precision=precision, track=track)


def analyze(
    digest: str = "time per call   400 us\nroofline floor  164 us (memory)\n", trials=(), *, text=True, drawn=0, given=0
):
    return render(
        "analyze",
        problem=PROBLEM,
        workload=workload(),
        candidate=CANDIDATE,
        profile=SimpleNamespace(digest_text=digest),
        tried=trials,
        images={"text": text, "drawn": drawn, "given": given},
    )


PROMPTS = {
    "system_generation": lambda: system_generation("strict"),
    "system_generation_tf32": lambda: system_generation("tf32"),
    "system_generation_custom": lambda: system_generation("strict", track="custom"),
    "system_generation_half": lambda: system_generation("half"),
    "system_generation_without_hints": lambda: system_generation("strict", hints=()),
    "system_analysis": lambda: render("system_analysis", platform=PLATFORM),
    "system_analysis_without_hints": lambda: render(
        "system_analysis", platform=SimpleNamespace(**{**vars(PLATFORM), "hints": ()})
    ),
    "generate": lambda: render("generate", problem=PROBLEM, workload=workload(), **NO_REFERENCE),
    "generate_with_flops_and_reference": lambda: render(
        "generate", problem=PROBLEM, workload=workload(10**9), **REFERENCE
    ),
    "generate_with_reference_of_a_known_platform": lambda: render(
        "generate", problem=PROBLEM, workload=workload(), **TRANSLATED
    ),
    **{f"repair_{name}": lambda name=name: repair(name) for name in FAILED},
    "repair_with_reference": lambda: repair("rejected", **REFERENCE),
    "repair_repeated": lambda: repair("runtime_error_died", repeats=2),
    "optimize": optimize,
    "optimize_with_reference_and_tried": lambda: optimize(reference=REFERENCE, trials=tried()),
    "analyze": analyze,
    "analyze_with_tried": lambda: analyze(trials=tried()),
    "analyze_by_image": lambda: analyze(text=False, drawn=1),
    "analyze_with_image_and_screenshots": lambda: analyze(drawn=1, given=2, trials=tried()),
    "analyze_with_screenshot": lambda: analyze(given=1),
    "generate_again": lambda: render("generate_again", reason="no code block defines ModelNew", edits=False),
    "generate_again_with_edits": lambda: render("generate_again", reason="edit 2 does not fit", edits=True),
    "analyze_again": lambda: render("analyze_again", reason="it lacks rationale, evidence"),
}


@pytest.mark.parametrize("name", PROMPTS)
def test_prompt_is_golden(name, golden):
    golden(name, PROMPTS[name]().text)


def test_every_golden_file_has_its_prompt():
    files = {path.stem for path in (Path(__file__).parent / "golden").glob("*.txt")}
    assert files == set(PROMPTS)


def test_every_template_is_rendered_by_a_golden_prompt():
    """A template (or partial) that no golden prompt loads has slipped in untested."""
    from kforge.prompts.rendering import _environment

    environment = _environment("structured")
    environment.cache.clear()
    for prompt in PROMPTS.values():
        prompt()
    loaded = {name for _, name in environment.cache}
    assert loaded == set(environment.list_templates())


OTHERWISE_MEASURED = {
    "generate": (
        lambda: render("generate", problem=PROBLEM, workload=workload(0), **NO_REFERENCE),
        lambda: render("generate", problem=PROBLEM, workload=workload(10**9), **NO_REFERENCE),
    ),
    "compilation": (
        lambda: repair("compilation_failure"),
        lambda: repair("compilation_failure", verdict=CompilationFailure(reason="another compiler's words")),
    ),
    "runtime": (
        lambda: repair("runtime_error_raised"),
        lambda: repair("runtime_error_raised", verdict=RuntimeFailure(fault="raised", reason="at 0x7f00")),
    ),
    "mismatch": (
        lambda: repair("mismatch_numerical"),
        lambda: repair(
            "mismatch_numerical",
            verdict=Mismatch(kind="numerical", reason="at [3, 4]", case="tiny", max_error=9.0, tolerance=1e-4),
        ),
    ),
    "rejected": (
        lambda: repair("rejected"),
        lambda: repair("rejected", verdict=Rejected(rule="constant-output", reason="in other words")),
    ),
    "optimize": (lambda: optimize(1.5), lambda: optimize(0.7)),
    "doubt": (optimize, lambda: optimize(doubt="other processes used 90% of the machine during timing")),
    "analyze": (lambda: analyze("fast"), lambda: analyze("slow, and ``` in a name")),
    "tried": (lambda: analyze(trials=tried("died")), lambda: analyze(trials=tried("0.99x"))),
}


@pytest.mark.parametrize("name", OTHERWISE_MEASURED)
def test_measurements_change_the_text_and_not_the_fingerprint(name):
    here, there = (make() for make in OTHERWISE_MEASURED[name])
    assert here.text != there.text
    assert here.fingerprint == there.fingerprint
    assert MEASURED in here.fingerprint


def test_what_was_not_measured_changes_the_fingerprint():
    prompts = [
        repair("runtime_error_died"),
        repair("runtime_error_timed_out"),
        repair("mismatch_shape"),
        repair("mismatch_dtype"),
        repair("runtime_error_died", repeats=1),
        repair("runtime_error_died", candidate=Candidate(source="other", platform="forest")),
        repair("runtime_error_died", **REFERENCE | {"reference": "another"}),
        optimize(),
        optimize(trials=tried()),
        optimize(trials=tried() * 2),
    ]
    assert len({prompt.fingerprint for prompt in prompts}) == len(prompts)


def test_an_agent_is_told_that_other_processes_disturbed_a_measurement():
    told = optimize(doubt="other processes used 90% of the machine during timing").text
    assert told.count("It is in doubt: other processes used 90% of the machine during timing.") == 2
    assert "in doubt" not in optimize().text
