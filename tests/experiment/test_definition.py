"""The file of an experiment: what it gives, and one clear line for each thing that can be wrong with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kforge.errors import InputError
from kforge.experiment import read_experiment

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kforge.settings import Settings

TWO_ARMS = "[arms.once]\niterations = 1\n[arms.twice]\niterations = 2\n"


def test_arms_have_the_shared_options_and_their_own(written: Callable[..., Path], chosen: Settings) -> None:
    file = written(f"[options]\nmodel = 'builtin'\nreplications = 0\niterations = 9\n{TWO_ARMS}")
    found = read_experiment(file, chosen)
    assert [(arm.name, arm.options.iterations, arm.options.replications) for arm in found.arms] == [
        ("once", 1, 0),
        ("twice", 2, 0),
    ]
    assert [task.name for task in found.arms[0].tasks] == ["family/a", "family/b"]
    assert {arm.options.remember for arm in found.arms} == {False}, "one arm would learn from another"
    assert found.baselines == ("eager",)


def test_a_matrix_makes_an_arm_of_each_combination(written: Callable[..., Path], chosen: Settings) -> None:
    matrix = '[arms.short]\niterations = 1\n[arms.long]\n[matrix]\nrewrites = [true, false]\nprompts = ["structured"]\n'
    found = read_experiment(written(matrix), chosen)
    assert [arm.name for arm in found.arms] == [
        "short, rewrites=true, prompts=structured",
        "short, rewrites=false, prompts=structured",
        "long, rewrites=true, prompts=structured",
        "long, rewrites=false, prompts=structured",
    ]
    assert [arm.options.rewrites for arm in found.arms] == [True, False, True, False]
    assert found.arms[1].folder == "short-rewrites=false-prompts=structured"


def test_a_model_on_the_command_line_is_for_arms_that_name_none(written: Callable[..., Path], chosen: Settings) -> None:
    file = written("[arms.named]\nmodel = 'builtin'\n[arms.other]\n")
    assert [arm.options.model for arm in read_experiment(file, chosen, model="exchange").arms] == [
        "builtin",
        "exchange",
    ]


def test_paths_are_from_the_file_s_folder(written: Callable[..., Path], chosen: Settings, tmp_path: Path) -> None:
    for name in ("recording", "references"):
        (tmp_path / name).mkdir()
    for name in ("a", "b"):
        (tmp_path / "references" / f"{name}.py").write_text(f"reference of {name}")
    arms = (
        "[options]\nmodel = 'replay:recording'\n[arms.without]\n"
        "[arms.with]\nreferences = 'references/{problem}.py'\nreference_platform = 'null'\n"
    )
    without, with_one = read_experiment(written(arms), chosen).arms
    assert without.options.model == with_one.options.analyst == f"replay:{tmp_path / 'recording'}"
    assert [task.reference for task in without.tasks] == ["", ""]
    assert [task.reference for task in with_one.tasks] == ["reference of a", "reference of b"]


def test_what_decides_the_result_decides_the_identity(
    written: Callable[..., Path], chosen: Settings, tmp_path: Path
) -> None:
    first = read_experiment(written(TWO_ARMS), chosen).identity
    assert read_experiment(written(f"# a comment\n{TWO_ARMS}"), chosen).identity == first
    assert read_experiment(written(TWO_ARMS), chosen, only="*/a").identity != first
    assert read_experiment(written(TWO_ARMS.replace("2", "3")), chosen).identity != first
    file = written(TWO_ARMS)
    path = tmp_path / "suite" / "family" / "a.py"
    path.write_text(path.read_text().replace("randn(4)", "randn(5)"))
    assert read_experiment(file, chosen).identity != first, "arms before and after the change are no comparison"


WRONG: dict[str, tuple[str, str]] = {
    "not TOML": ("arms = [", "is not valid TOML"),
    "an unknown key": (f"colour = 1\n{TWO_ARMS}", "there is no key 'colour'; there are: name, question, suite"),
    "an unknown option": ("[arms.a]\niteration = 1\n[arms.b]", "there is no option 'iteration'; there are: "),
    "an unknown option of the matrix": ("[matrix]\niteration = [1, 2]", "there is no option 'iteration'"),
    "a bad value": ("[arms.a]\niterations = 'many'\n[arms.b]", "arm a: option iterations: "),
    "an impossible value": ("[arms.a]\nsearch = 'wide'\n[arms.b]", "arm a: option search: "),
    "memory": ("[arms.a]\nremember = true\n[arms.b]", "an arm cannot set remember: an experiment never uses memory"),
    "a platform of an arm": ("[arms.a]\nplatform = 'null'\n[arms.b]", "an arm cannot set platform: it is given once"),
    "one reference for all": ("[arms.a]\nreference = 'x'\n[arms.b]", "name a file for each problem by references"),
    "an unknown measure": (f"measures = ['beauty']\n{TWO_ARMS}", "measures: there is no measure 'beauty'; there are:"),
    "one arm": ("[arms.a]\niterations = 1", "an experiment compares 2 to 32 arms, and this one has 1"),
    "no arm": ("", "an experiment compares 2 to 32 arms, and this one has 1"),
    "too many arms": (
        f"[matrix]\niterations = {list(range(1, 34))}",
        "an experiment compares 2 to 32 arms, and this one has 33",
    ),
    "arms that do not differ": ("[arms.a]\niterations = 5\n[arms.b]", "the arms 'a' and 'b' do not differ"),
    "arms of one folder": ("[arms.'a b']\niterations = 1\n[arms.'a_b']", "are too similar"),
    "a matrix of no list": ("[matrix]\niterations = 1", "matrix.iterations: "),
    "a matrix of an empty list": ("[matrix]\niterations = []", "matrix.iterations must be a list of values"),
    "no such workload": (f"workload = 'huge'\n{TWO_ARMS}", "no workload 'huge'"),
    "no problem": (f"only = 'zebra'\n{TWO_ARMS}", "no problem matches 'zebra'"),
    "no reference": ("[arms.a]\nreferences = '{problem}.cu'\n[arms.b]", "no reference for family/a: cannot read"),
    "a platform of nothing": ("[arms.a]\nreference_platform = 'null'\n[arms.b]", "reference_platform is for programs"),
    "a baseline that is not measured": (
        f"against = 'compile'\n[options]\ncompile_baseline = false\n{TWO_ARMS}",
        "against = 'compile' needs compile_baseline in every arm",
    ),
    "too many repetitions": (f"repeats = 1000\n{TWO_ARMS}", "repeats: "),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_with_a_file_is_said_in_one_line(
    written: Callable[..., Path], chosen: Settings, what: str
) -> None:
    text, said = WRONG[what]
    with pytest.raises(InputError) as caught:
        read_experiment(written(text), chosen)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("head", "said"),
    [
        ('question = "?"\nsuite = "suite"', "name: is missing"),
        ('name = "A B"\nquestion = "?"\nsuite = "suite"', "name: must match "),
        ('name = "a"\nquestion = "?"\nsuite = "nowhere"', "nowhere: no such file or directory"),
    ],
)
def test_a_head_that_is_wrong_is_said_in_one_line(
    written: Callable[..., Path], chosen: Settings, head: str, said: str
) -> None:
    with pytest.raises(InputError, match=said):
        read_experiment(written(TWO_ARMS, head), chosen)


def test_a_file_that_cannot_be_read_is_named(chosen: Settings, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot read .*nowhere.toml: No such file"):
        read_experiment(tmp_path / "nowhere.toml", chosen)
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="it is not UTF-8 text"):
        read_experiment(tmp_path / "binary.toml", chosen)


def test_every_experiment_that_comes_with_kforge_can_be_read(root: Path, chosen: Settings) -> None:
    files = sorted((root / "experiments").glob("*.toml"))
    assert len(files) >= 8
    for file in files:
        found = read_experiment(file, chosen, platform="cpu")
        assert len(found.arms) >= 2, file.name
        assert found.file.name == file.stem
