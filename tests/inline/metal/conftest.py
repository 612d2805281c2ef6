"""All tests of the emulator share one cache, so that its runtime is built once."""

import pytest

from kforge import inline
from kforge.inline import configuration


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


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
