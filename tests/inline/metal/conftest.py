"""All tests of the emulator share one cache, so that its runtime is built once."""

import os

import pytest

from kforge import inline
from kforge.inline import configuration


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    base = tmp_path_factory.getbasetemp()
    # the processes of one run, each with a base folder of its own, share the one above
    return (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "metal-cache"


@pytest.fixture(autouse=True)
def cache(folder, monkeypatch):
    monkeypatch.setattr(configuration, "_current", configuration.Configuration(cache=folder))
    return folder


@pytest.fixture(scope="session")
def build(folder):
    """Compile a source where no test's own configuration is in force: for fixtures that many tests share."""

    def built(source):
        before = configuration.current()
        inline.configure(cache=folder)
        try:
            return inline.compile(source, "metal")
        finally:
            configuration._current = before

    return built
