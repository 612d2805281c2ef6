import pytest

MANIFEST = """
name = "{name}"
title = "A platform"
language = "PyTorch"
fence = ["python"]
device = "cpu"
facts = ["It is there."]
"""


@pytest.fixture
def make_platform(tmp_path):
    """Writes a platform's folder and returns it."""

    def make(name, *, folder=None, manifest=MANIFEST, adapter=None):
        place = tmp_path / (folder or name)
        (place / "example").mkdir(parents=True)
        (place / "platform.toml").write_text(manifest.format(name=name))
        (place / "example" / "reference.py").write_text("reference")
        (place / "example" / "kernel.py").write_text("kernel")
        if adapter is not None:
            (place / "adapter.py").write_text(adapter)
        return place

    return make
