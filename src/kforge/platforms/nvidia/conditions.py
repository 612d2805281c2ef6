"""Reads clocks, power and temperature of an NVIDIA GPU from its management library (NVML), in microseconds per value.

NVML counts the devices of the machine, not those that a process may see, so a device is found by its PCI address.
Values that a device or driver does not report are left out. `nvidia-smi` uses the same library.
"""

from __future__ import annotations

import ctypes
from functools import cache
from types import MappingProxyType
from typing import Any

from kforge.platforms.contracts import Limit

SONAME = "libnvidia-ml.so.1"

LIMITS = MappingProxyType(
    {
        0x04: Limit("its power limit", own=True),
        0x08: Limit("a slowdown of the hardware", own=False),
        0x10: Limit("the clocks of other devices", own=False),
        0x20: Limit("heat", own=False),
        0x40: Limit("heat", own=False),
        0x80: Limit("its power supply", own=False),
    }
)
"""NVML's reasons for lower clocks that count as limits, by bit. Idling, and clocks that a user has set, do not
count."""

_SM, _MEMORY = 1, 2  # nvmlClockType_t
_ON_THE_CHIP = 0  # nvmlTemperatureSensors_t
_VERSION_BYTES = 96


class Gauge:
    """One device, as NVML sees it."""

    def __init__(self, library: ctypes.CDLL, device: ctypes.c_void_p) -> None:
        self._library = library
        self._device = device

    @classmethod
    def open(cls, address: str) -> Gauge | None:
        """Return the device at this PCI address. None if NVML is missing or does not know the device."""
        library = load()
        device = ctypes.c_void_p()
        if library is None:
            return None
        asked = _ask(library, "nvmlDeviceGetHandleByPciBusId_v2", address.encode(), ctypes.byref(device))
        return cls(library, device) if asked else None

    def conditions(self) -> dict[str, str]:
        """Return the present clocks, power, temperature, performance state and limits, as texts by name. Clocks and
        power are shown with their maximum."""
        power, cap = self._number("nvmlDeviceGetPowerUsage"), self._number("nvmlDeviceGetEnforcedPowerLimit")
        celsius = self._number("nvmlDeviceGetTemperature", _ON_THE_CHIP)
        state = self._number("nvmlDeviceGetPerformanceState")
        held = sorted({limit.reason for limit in self.limits()})
        told = {
            "clock": self._clock(_SM),
            "memory clock": self._clock(_MEMORY),
            "power": None if power is None else f"{power / 1000:.0f} W{_of(cap and cap // 1000, 'W')}",
            "temperature": None if celsius is None else f"{celsius} °C",
            "state": None if state is None else f"P{state}",
            "held back by": " and ".join(held) or None,
        }
        return {name: value for name, value in told.items() if value is not None}

    def limits(self) -> tuple[Limit, ...]:
        """Return the reasons why clocks are lower now. Empty if there are none, or if the device does not report
        them."""
        reasons = self._number("nvmlDeviceGetCurrentClocksEventReasons", kind=ctypes.c_ulonglong)
        if reasons is None:  # the function's name before driver 535
            reasons = self._number("nvmlDeviceGetCurrentClocksThrottleReasons", kind=ctypes.c_ulonglong)
        return tuple(limit for bit, limit in LIMITS.items() if (reasons or 0) & bit)

    def _clock(self, which: int) -> str | None:
        now = self._number("nvmlDeviceGetClockInfo", which)
        return None if now is None else f"{now} MHz{_of(self._number('nvmlDeviceGetMaxClockInfo', which), 'MHz')}"

    def _number(self, function: str, *which: int, kind: Any = ctypes.c_uint) -> int | None:
        value = kind()
        arguments = (self._device, *map(ctypes.c_int, which), ctypes.byref(value))
        return int(value.value) if _ask(self._library, function, *arguments) else None


def driver_version() -> str | None:
    """Return the driver's own version, such as 580.95.05. None if NVML does not report it."""
    library, text = load(), ctypes.create_string_buffer(_VERSION_BYTES)
    if library is None or not _ask(library, "nvmlSystemGetDriverVersion", text, ctypes.c_uint(len(text))):
        return None
    return text.value.decode(errors="replace")


@cache
def load() -> ctypes.CDLL | None:
    """Return the initialized NVML library. None if it is missing or cannot be initialized."""
    try:
        library = ctypes.CDLL(SONAME)
    except OSError:
        return None
    return library if _ask(library, "nvmlInit_v2") else None


def _ask(library: ctypes.CDLL, function: str, *arguments: object) -> bool:
    """Call a function of NVML, and return whether the function exists and succeeded."""
    found = getattr(library, function, None)
    return found is not None and found(*arguments) == 0


def _of(most: int | None, unit: str) -> str:
    return f" of {most} {unit}" if most else ""
