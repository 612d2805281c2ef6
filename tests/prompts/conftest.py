from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--regenerate-golden",
        action="store_true",
        help="write the rendered prompts over tests/prompts/golden instead of comparing them (then read the diff)",
    )


@pytest.fixture
def golden(request: pytest.FixtureRequest):
    """Compares a text with its golden file: `pytest tests/prompts --regenerate-golden` writes the files anew."""

    def compare(name: str, text: str) -> None:
        path = Path(__file__).parent / "golden" / f"{name}.txt"
        # The option is known only when pytest is given this folder, so a whole run always compares.
        if request.config.getoption("--regenerate-golden", default=False):
            path.write_text(text, "utf-8")
        assert text == path.read_text("utf-8")

    return compare
