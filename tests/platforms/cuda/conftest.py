from pathlib import Path

import pytest

from kforge.inline import ToolchainError, configuration
from kforge.inline.cuda import toolkit

CANDIDATES = Path(__file__).parent / "candidates"


@pytest.fixture(autouse=True)
def _build_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(configuration, "_current", configuration.Configuration(cache=tmp_path / "cache"))


@pytest.fixture
def nvrtc():
    try:
        return toolkit.compiler()
    except ToolchainError as error:
        pytest.skip(str(error))
