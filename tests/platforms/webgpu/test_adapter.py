"""The platform webgpu, on whatever device there is: lavapipe where there is no GPU."""

import json
import runpy

import pytest
import torch

from kforge import platforms
from kforge.errors import PlatformError
from kforge.platforms import elsewhere


@pytest.fixture
def platform():
    return platforms.find("webgpu")


def test_its_device_is_named_with_its_driver(platform):
    device = platform.adapter.kernel_device()
    told = platform.adapter.told()
    assert device.name == f"{told['name']} ({told['driver']})"
    assert platform.adapter.describe_device() == device.name
    assert device.in_worker is told["is_processor"]


def test_kernels_are_listed_by_the_devices_own_events(platform):
    reference = runpy.run_path(str(platform.folder / "example" / "reference.py"))
    program = runpy.run_path(str(platform.folder / "example" / "kernel.py"))
    model, inputs = program["ModelNew"](*reference["get_init_inputs"]()), reference["get_inputs"]()
    with torch.no_grad():
        seen = platform.adapter.watch(lambda: [model(*inputs) for _ in range(3)])
        torch.testing.assert_close(model(*inputs), reference["Model"](*reference["get_init_inputs"]())(*inputs))
    assert [(one.name, one.launches) for one in seen.kernels] == [("rms_norm", 3)]
    assert seen.busy == pytest.approx(seen.kernels[0].seconds)
    assert seen.busy > 0


def test_without_a_driver_the_command_that_installs_one_is_named(platform, monkeypatch):
    assert platform.adapter.probe() is None
    monkeypatch.setitem(type(platform.adapter).probe.__globals__, "_DRIVER_FOLDERS", ("/nowhere",))
    monkeypatch.setattr("sys.platform", "linux")
    assert platform.adapter.probe() == ("no Vulkan driver in /nowhere; install one: apt install mesa-vulkan-drivers")


def test_a_worker_sees_no_more_devices_than_there_are(platform, monkeypatch):
    monkeypatch.setattr(type(platform.adapter), "nodes", ("/dev/nul?", "/dev/no-such-*"))
    assert platform.adapter.device_nodes() == ("/dev/nul?",)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("def main(file): open(file, 'w').write('{\"reason\": \"no such device\"}')", "no such device"),
        ("def main(file): raise SystemExit('out of luck')", "the device's driver crashed: out of luck"),
        ("def main(file): import os; os.abort()", "the device's driver crashed: status -6"),
    ],
)
def test_a_driver_that_does_not_answer_is_one_line(tmp_path, monkeypatch, body, reason):
    (tmp_path / "driver_module.py").write_text(body)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    elsewhere.answer.cache_clear()
    with pytest.raises(PlatformError) as caught:
        elsewhere.answer("driver_module")
    assert str(caught.value) == reason


def test_the_device_is_asked_for_once(tmp_path, monkeypatch):
    log = tmp_path / "log"
    (tmp_path / "counting_module.py").write_text(
        f"import json\ndef main(file):\n    open({str(log)!r}, 'a').write('.')\n    open(file, 'w').write('[1]')\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert elsewhere.answer("counting_module") == elsewhere.answer("counting_module") == json.loads("[1]")
    assert log.read_text() == "."


@pytest.mark.slow
def test_the_doctor_verifies_its_example(kforge_in_process):
    ran = kforge_in_process("doctor", "webgpu", "--json")
    (report,) = json.loads(ran.stdout)
    assert report["works"], report
    assert report["device"] == platforms.find("webgpu").adapter.kernel_device().name
    assert "wgpu" in report["versions"]
