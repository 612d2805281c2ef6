"""A real package of somebody else, installed by pip and found through its entry point."""

import subprocess
import sys
from pathlib import Path

import pytest

PLUGIN = Path(__file__).parent / "foreign_plugin"


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    target = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-cache-dir"]
    offline = ["--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, *offline, "--target", str(target), str(PLUGIN)], check=True, capture_output=True)
    return target


def ask(site, program):
    command = [sys.executable, "-c", "import sys\nfrom kforge import platforms\n" + program]
    answer = subprocess.run(command, env={"PYTHONPATH": str(site)}, capture_output=True, text=True, check=True)
    return answer.stdout.splitlines()


def test_it_is_found_without_being_imported_and_needs_no_adapter(installed):
    assert ask(
        installed,
        """
platform = platforms.find("abacus")
print(platform.manifest.title, platform.adapter.probe(), type(platform.adapter) is platforms.Adapter)
print("return 2 * x" in platform.example.kernel, "kforge_abacus" in sys.modules, "torch" in sys.modules)
""",
    ) == ["Abacus None True", "True False False"]


def test_its_example_runs_with_the_default_adapter(installed):
    assert ask(
        installed,
        """
import torch
platform = platforms.find("abacus")
platform.adapter.prepare()
reference, kernel = {}, {}
exec(platform.example.reference, reference)
exec(platform.example.kernel, kernel)
inputs = [x.to(platform.adapter.device()) for x in reference["get_inputs"]()]
print(torch.equal(kernel["ModelNew"]()(*inputs), reference["Model"]()(*inputs)))
platform.adapter.synchronize(); platform.adapter.flush()
""",
    ) == ["True"]


def test_entry_points_that_lead_nowhere_are_listed_with_the_reason(tmp_path):
    info = tmp_path / "broken-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[kforge.platforms]\ngone = no_such_module\nbare = bare_module\nbad = bad_package.inner\n"
    )
    (tmp_path / "bare_module.py").touch()
    (tmp_path / "bad_package").mkdir()
    (tmp_path / "bad_package" / "__init__.py").write_text("1 / 0")
    lines = ask(
        tmp_path,
        """
for platform in platforms.available():
    if isinstance(platform, platforms.BrokenPlatform):
        print(platform.name, "|", platform.reason)
print(platforms.find("cpu").name)
""",
    )
    assert lines == [
        "bad | entry point bad = bad_package.inner: importing it raised ZeroDivisionError",
        "bare | entry point bare = bare_module: there is no platform.toml beside that module",
        "gone | entry point gone = no_such_module: there is no such module",
        "cpu",
    ]
