"""The management library's door, against a library of the same shape: types and widths are those of nvml.h."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from kforge.platforms import Limit
from kforge.platforms.nvidia import conditions as nvidia_conditions
from kforge.platforms.nvidia.conditions import Gauge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SOURCE = """
#include <string.h>
static int up = 0;
static int here;
int nvmlInit_v2(void) { up = 1; return INIT; }
int nvmlSystemGetDriverVersion(char* text, unsigned length) {
    if (!up || length < 10) return 3;
    strcpy(text, "580.95.05");
    return 0;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char* address, void** device) {
    if (strcmp(address, "0000:1b:00.0")) return 6;
    *device = &here;
    return 0;
}
#define MINE if (device != &here) return 2;
int nvmlDeviceGetClockInfo(void* device, int which, unsigned* mhz) { MINE *mhz = which == 1 ? 1755 : 3201; return 0; }
int nvmlDeviceGetMaxClockInfo(void* device, int which, unsigned* mhz) { MINE *mhz = 1980; return which == 1 ? 0 : 3; }
int nvmlDeviceGetPowerUsage(void* device, unsigned* mw) { MINE *mw = 412600; return 0; }
int nvmlDeviceGetEnforcedPowerLimit(void* device, unsigned* mw) { MINE *mw = 700000; return 0; }
int nvmlDeviceGetTemperature(void* device, int sensor, unsigned* celsius) { MINE *celsius = 41 + sensor; return 0; }
int nvmlDeviceGetPerformanceState(void* device, int* state) { MINE *state = 0; return 0; }
#ifdef REASONS
int WORD(void* device, unsigned long long* reasons) { MINE *reasons = REASONS; return 0; }
#endif
"""

NEW, OLD = "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"


@pytest.fixture
def nvml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Builds a library and puts it in NVML's place."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")

    def build(**macros: str) -> None:
        library, source = tmp_path / "libnvidia-ml.so.1", tmp_path / "nvml.c"
        source.write_text(SOURCE)
        defines = [f"-D{name}={value}" for name, value in {"INIT": "0", **macros}.items()]
        subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source, *defines], check=True)
        monkeypatch.setattr(nvidia_conditions, "SONAME", str(library))

    nvidia_conditions.load.cache_clear()
    yield build
    nvidia_conditions.load.cache_clear()


def opened() -> Gauge:
    gauge = Gauge.open("0000:1b:00.0")
    assert gauge is not None
    return gauge


def test_what_the_device_tells_is_in_words(nvml: Callable[..., None]) -> None:
    nvml(WORD=NEW, REASONS="0x1")
    assert opened().conditions() == {
        "clock": "1755 MHz of 1980 MHz",
        "memory clock": "3201 MHz",
        "power": "413 W of 700 W",
        "temperature": "41 °C",
        "state": "P0",
    }
    assert nvidia_conditions.driver_version() == "580.95.05"


@pytest.mark.parametrize("word", [NEW, OLD])
@pytest.mark.parametrize(
    ("reasons", "limits"),
    [
        ("0x0", ()),
        ("0x1", ()),
        ("0x102", ()),
        ("0x4", (Limit("its power limit", own=True),)),
        ("0x20", (Limit("heat", own=False),)),
        ("0xC8", ("a slowdown of the hardware", "heat", "its power supply")),
        ("0x100000004ull", (Limit("its power limit", own=True),)),
    ],
)
def test_idle_and_set_clocks_are_no_limits(
    nvml: Callable[..., None], word: str, reasons: str, limits: tuple[Limit | str, ...]
) -> None:
    nvml(WORD=word, REASONS=reasons)
    assert opened().limits() == tuple(Limit(each, own=False) if isinstance(each, str) else each for each in limits)
    held = [each if isinstance(each, str) else each.reason for each in limits]
    assert opened().conditions().get("held back by") == (" and ".join(held) or None)


def test_what_it_does_not_tell_is_left_out(nvml: Callable[..., None]) -> None:
    nvml()
    assert opened().limits() == ()
    assert "held back by" not in opened().conditions()
    assert Gauge.open("0000:2c:00.0") is None


def test_a_library_that_does_not_start_is_none(nvml: Callable[..., None]) -> None:
    nvml(INIT="9")
    assert nvidia_conditions.driver_version() is None
    assert Gauge.open("0000:1b:00.0") is None


def test_no_library_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvidia_conditions, "SONAME", "libno_such_thing.so.1")
    nvidia_conditions.load.cache_clear()
    assert nvidia_conditions.driver_version() is None
    assert Gauge.open("0000:1b:00.0") is None
    nvidia_conditions.load.cache_clear()
