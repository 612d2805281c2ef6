"""A terminal of 80 columns: a real pseudo-terminal for the command, and what stands on its screen."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

COLUMNS = 80
PIECES = re.compile(r"\x1b\[(?P<argument>[?\d;]*)(?P<command>[A-Za-z])|(?P<control>[\r\n])|(?P<text>[^\x1b\r\n]+)")


class Shown(NamedTuple):
    """How a command ended, and what a terminal showed of it."""

    status: int
    text: str
    """Everything that was ever shown, without the terminal's control sequences."""
    screen: list[str]
    """The lines that stand there at the end, also those that have scrolled away."""

    @property
    def lines(self) -> list[str]:
        return re.split(r"[\r\n]+", self.text)


def run_in_terminal(arguments: list[str], cwd: Path, environment: Mapping[str, str], typed: bytes = b"") -> Shown:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
    plain = {name: value for name, value in environment.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    process = subprocess.Popen(
        [sys.executable, "-m", "kforge", *arguments], cwd=cwd, env=plain | {"TERM": "xterm"},
        stdin=theirs, stdout=theirs, stderr=theirs,
    )  # fmt: skip
    os.close(theirs)
    os.write(ours, typed)
    told = b""
    with suppress(OSError):  # how Linux tells that the other side is closed
        while piece := os.read(ours, 65536):
            told += piece
    os.close(ours)
    text = told.decode("utf-8")
    return Shown(process.wait(), PIECES.sub(lambda piece: piece["text"] or piece["control"] or "", text), screen(text))


def screen(text: str) -> list[str]:
    """Of what rich sends: text, line ends, the cursor going up, and lines that are erased."""
    lines, row, column = [""], 0, 0
    for piece in PIECES.finditer(text):
        match piece["command"] or piece["control"] or "":
            case "\r":
                column = 0
            case "\n":
                row += 1
                lines += [""] * (row + 1 - len(lines))
            case "A":
                row = max(0, row - int(piece["argument"] or 1))
            case "K":
                lines[row] = ""
            case "" if piece["text"]:
                for letter in piece["text"]:
                    if column == COLUMNS:
                        row, column = row + 1, 0
                        lines += [""] * (row + 1 - len(lines))
                    lines[row] = lines[row].ljust(column)[:column] + letter + lines[row][column + 1 :]
                    column += 1
    return [line.rstrip() for line in lines]
