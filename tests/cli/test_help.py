"""What the command line says about itself."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

import kforge as package

if TYPE_CHECKING:
    from tests.conftest import RunKforge

COMMANDS = (
    "forge",
    "suite",
    "resume",
    "transfer",
    "eval",
    "verify",
    "profile",
    "show",
    "runs",
    "platforms",
    "new-platform",
    "doctor",
    "warm",
    "mcp",
    "openenv",
    "trajectories",
    "experiment",
    "prompts",
    "export",
    "compare",
    "clean",
    "report",
    "serve",
    "exchange",
)


@pytest.mark.parametrize("arguments", [(), ("--help",)])
def test_help_lists_every_command(kforge: RunKforge, arguments: tuple[str, ...]) -> None:
    ran = kforge(*arguments)
    assert (ran.status, ran.stderr) == (0, "")
    listed = re.findall(r"^  ([\w-]+)  ", ran.stdout.partition("Commands:")[2], re.MULTILINE)
    assert tuple(listed) == COMMANDS


@pytest.mark.parametrize("command", [(), *((each,) for each in COMMANDS)])
def test_the_short_option_is_the_same_help(kforge_in_process: RunKforge, command: tuple[str, ...]) -> None:
    short = kforge_in_process(*command, "-h")
    assert (short.status, short.stderr) == (0, "")
    assert short.stdout == kforge_in_process(*command, "--help").stdout


def test_version(kforge: RunKforge) -> None:
    assert kforge("--version") == (0, f"kforge {package.__version__}\n", "")


GROUPS = {"exchange": ("list", "show", "answer")}


@pytest.mark.parametrize(
    "command", [*(each for each in COMMANDS if each not in GROUPS),
                *(f"{group} {each}" for group, names in GROUPS.items() for each in names)]
)  # fmt: skip
def test_every_command_has_help(kforge: RunKforge, command: str) -> None:
    ran = kforge(*command.split(), "--help")
    assert (ran.status, ran.stderr) == (0, "")
    assert f"kforge {command} " in ran.stdout.splitlines()[0]
    assert "--json" in ran.stdout
    undescribed = re.findall(r"^ +(?:-\w, )?--[\w-]+(?: \w+)?$", ran.stdout, re.MULTILINE)
    assert undescribed == [], "an option without a word about it"
