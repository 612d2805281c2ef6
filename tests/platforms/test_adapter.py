import pytest
import torch

from kforge import inline, platforms
from kforge.errors import PlatformError
from kforge.inline import configuration
from kforge.platforms import Adapter, KernelDevice, Manifest, Tool, host


@pytest.fixture(autouse=True)
def _build_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(configuration, "_current", configuration.Configuration(cache=tmp_path / "cache"))


def manifest(**changes):
    fields = {"name": "x", "title": "X", "language": "X", "fence": ("python",), "device": "cpu", "facts": ("a",)}
    return Manifest(**(fields | changes))


def test_probe_says_in_one_line_what_is_missing():
    either = Tool(commands=("no-such-tool", "nor-this"), purpose="weaves")
    assert Adapter(manifest(toolchain=(either,))).probe() == "no no-such-tool or nor-this on PATH (weaves)"
    assert Adapter(manifest(requires=("no_such_package",))).probe() == (
        "the Python package no_such_package is not installed"
    )
    named = Tool(commands=("no-such-tool",), purpose="weaves", install="apt install loom")
    assert Adapter(manifest(toolchain=(named,))).probe() == (
        "no no-such-tool on PATH (weaves); install it: apt install loom"
    )
    assert Adapter(manifest(requires=("no_such_package",), install="pip install loom")).probe() == (
        "the Python package no_such_package is not installed; install it: pip install loom"
    )
    found = Tool(commands=("no-such-tool", "sh"), purpose="speaks")
    assert Adapter(manifest(toolchain=(found,), requires=("torch",))).probe() is None


def test_versions_are_those_of_what_is_installed(tmp_path, monkeypatch):
    for name, script in {
        "loom": "echo 'loom (Weavers 1.2-3) 4.5.6'; echo 'Copyright 1801.1'",
        "shuttle": "echo handmade >&2",
    }.items():
        tool = tmp_path / name
        tool.write_text(f"#!/bin/sh\n{script}\n")
        tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    tools = tuple(Tool(commands=(name,), purpose="weaves") for name in ("loom", "shuttle", "no-such-tool"))
    assert Adapter(manifest(toolchain=tools, requires=("torch",))).versions() == {
        "loom": "4.5.6",
        "shuttle": "handmade",
        "torch": torch.__version__,
    }


def test_an_unusable_device_is_one_line():
    Adapter(manifest()).prepare()
    with pytest.raises(PlatformError) as caught:
        Adapter(manifest(device="xpu")).prepare()
    assert str(caught.value).startswith("torch cannot use the device 'xpu': ")
    assert "\n" not in str(caught.value)


def test_the_processor_is_described():
    assert host.describe().endswith(" threads") or host.describe().endswith(" thread")
    assert Adapter(manifest()).describe_device() == host.describe()


def test_a_kernel_device_is_named_instead_of_the_host():
    class Elsewhere(Adapter):
        def kernel_device(self):
            return KernelDevice("an abacus (beads 1.0)", in_worker=False)

    adapter = Elsewhere(manifest())
    assert adapter.describe_device() == "an abacus (beads 1.0)"
    assert adapter.device() == "cpu", "where the tensors are"


@pytest.mark.parametrize("name", ["cpu", "null"])
def test_flush_is_sized_by_the_cache_and_capped(name):
    adapter = platforms.find(name).adapter
    caches = host.caches()
    assert caches == sorted(caches)
    assert adapter.flush_bytes <= 64 << 20
    # whatever the last level claims, the cores' own caches are driven out
    assert not caches or adapter.flush_bytes >= min(2 * caches[-1], 2 * caches[-2] * host.threads())
    adapter.flush()
    adapter.flush()
    buffer = adapter._host_flush._buffer
    assert len(buffer) == adapter.flush_bytes
    assert (buffer == 2).all()


@pytest.mark.parametrize("name", ["cpu", "null"])
def test_measured_peaks_are_believable(name):
    peaks = platforms.find(name).adapter.measure_peaks()
    assert peaks.device == host.describe()
    assert 1e8 < peaks.bytes_per_second < 1e13
    assert 1e8 < peaks.flops_per_second < 1e15


@pytest.mark.parametrize("name", ["cpu", "null"])
def test_the_single_shot_example_is_right_and_shares_its_state(name):
    platform = platforms.find(name)
    assert platform.adapter.probe() is None
    platform.adapter.prepare()
    reference, kernel = {}, {}
    exec(platform.example.reference, reference)
    exec(platform.example.kernel, kernel)
    model = reference["Model"](*reference["get_init_inputs"]())
    program = kernel["ModelNew"](*reference["get_init_inputs"]())
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter)
    program.load_state_dict(model.state_dict())
    exact = model.double()
    features = reference["FEATURES"]
    shapes = {"timed": (reference["ROWS"], features), "three axes": (2, 3, features), "one row": (features,)}
    with torch.no_grad():
        for shape in shapes.values():
            x = torch.randn(shape) + 0.5
            torch.testing.assert_close(program(x).double(), exact(x.double()), rtol=1e-5, atol=1e-5)
        strided = torch.randn(features, 8).T
        torch.testing.assert_close(program(strided).double(), exact(strided.double()), rtol=1e-5, atol=1e-5)


def test_the_kernel_of_the_example_is_a_kernel_and_checks_its_launch():
    kernel = {}
    exec(platforms.find("cpu").example.kernel, kernel)
    assert dir(kernel["library"]) == ["rms_norm"]
    with pytest.raises(inline.LaunchError, match=r"^rms_norm: argument 1 \(x\) must be float32, got float64$"):
        kernel["ModelNew"](4)(torch.ones(2, 4, dtype=torch.float64))


@pytest.mark.parametrize(("name", "driver"), [("an abacus", "beads"), ("an abacus", ("",)), ("", ())])
def test_a_kernel_device_of_other_types_is_refused(name, driver) -> None:
    with pytest.raises(TypeError, match="tuple of parts of paths"):
        KernelDevice(name, in_worker=True, driver=driver)
