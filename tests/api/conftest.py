"""The settings of a user who has none, for the library as for the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kforge import inline
from kforge.api import delivery
from kforge.inline import configuration

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def at_home(
    monkeypatch: pytest.MonkeyPatch, clean_environment: dict[str, str], user_cache: Path, tmp_path: Path
) -> None:
    for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "KFORGE_TIMING", "KFORGE_TIMING_CAP"):
        monkeypatch.setenv(name, clean_environment[name])
    for name in ("KFORGE_MODEL", "KFORGE_RUNS", "KFORGE_PLATFORM_PATH", "KFORGE_KEY_FILE", "KFORGE_DATABASE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(configuration, "_current", configuration.Configuration())
    # the modules of these tests are small, and what is tested is the kernel; test_as_called.py has it as it is
    monkeypatch.setattr(delivery, "SLOWER", 0.0)
    inline.configure(cache=user_cache / "builds of tests")
