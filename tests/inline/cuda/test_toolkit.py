import importlib
import sys

import pytest

from kforge.inline import ToolchainError
from kforge.inline.cuda import toolkit


@pytest.fixture
def bare(monkeypatch, tmp_path):
    """A machine without wheels, toolkit, nvcc and loader entries."""
    for name in ("compiler", "include_folders"):
        getattr(toolkit, name).cache_clear()
    monkeypatch.setattr(toolkit, "USUAL_PLACES", ())
    monkeypatch.setattr(toolkit, "_SONAMES", ())
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site")])
    for name in [name for name in sys.modules if name.split(".")[0] in ("nvidia", "triton")]:
        monkeypatch.delitem(sys.modules, name)
    yield tmp_path
    for name in ("compiler", "include_folders"):
        getattr(toolkit, name).cache_clear()


def put(folder, *names, text=""):
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_text(text)
    importlib.invalidate_caches()


def test_no_nvrtc_is_said_in_one_line(bare):
    with pytest.raises(ToolchainError, match=r"^no NVRTC found \(looked in .*\); pip install nvidia-cuda-nvrtc$"):
        toolkit.compiler()
    assert toolkit.include_folders(13) == ()


def test_wheels_come_before_a_toolkit(bare, monkeypatch):
    monkeypatch.setenv("CUDA_HOME", str(bare / "home"))
    put(bare / "home" / "lib64", "libnvrtc.so.12", "libnvrtc.so.12.9.86", "libnvrtc-builtins.so.12.9.86")
    assert toolkit.compiler().version == "12.9.86"
    toolkit.compiler.cache_clear()
    put(bare / "site" / "nvidia" / "cu13" / "lib", "libnvrtc.so.13", "libnvrtc-builtins.so.13.0", "libnvrtc.alt.so.13")
    found = toolkit.compiler()
    assert (found.version, found.major) == ("13.0", 13)
    assert found.builtins.name == "libnvrtc-builtins.so.13.0"
    assert toolkit.compiler(12).version == "12.9.86"
    with pytest.raises(ToolchainError, match=r"NVRTC 13\.0 is newer than the driver, which loads up to 11"):
        toolkit.compiler(11)


def test_headers_of_the_same_major_version_come_first(bare, monkeypatch):
    monkeypatch.setenv("CUDA_HOME", str(bare / "home"))
    for place, version in ((bare / "home", 12090), (bare / "site" / "nvidia" / "cu13", 13000)):
        put(place / "include", "cuda_fp16.h", "cuda_runtime_api.h", text=f"#define CUDART_VERSION  {version}\n")
    (bare / "home" / "include" / "cccl").mkdir()
    wheel, home = bare / "site" / "nvidia" / "cu13" / "include", bare / "home" / "include"
    assert toolkit.include_folders(13) == (wheel, home, home / "cccl")
    assert toolkit.include_folders(12) == (home, home / "cccl", wheel)
