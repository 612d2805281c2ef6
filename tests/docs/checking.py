"""Finds links, anchors, commands, make targets and paths in a page of documentation that do not exist."""

from __future__ import annotations

import re
import shlex
from contextlib import redirect_stdout
from functools import cache
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import typer.main

from kforge.cli.app import app

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]

FENCE = re.compile(r"^(?P<mark>```+)(?P<language>[^\n`]*)\n(?P<text>.*?)^(?P=mark)[ \t]*$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)
ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:")
REPOSITORY_PATH = re.compile(r"(?:src|tests|benchmarks|docs|examples)/[\w./*<>-]*(?:::\w+)?")
PLACEHOLDER = re.compile(r"<[^>]*>|\b[A-Z]{2,}\b")
"""`NAME`, `STATE` and `<device>` in a path stand for any name."""
TARGET = re.compile(r"^([\w-]+(?: [\w-]+)*) *:(?!=)", re.MULTILINE)
SHELL = ("", "sh", "bash", "console")
ENDS_A_COMMAND = ("&&", "||", ";", "|", "&")


class Block(NamedTuple):
    language: str
    text: str


def faults(page: Path, text: str) -> list[str]:
    """One line for each thing that the page names and that is not there."""
    blocks = [Block(found["language"].strip(), found["text"]) for found in FENCE.finditer(text)]
    prose = FENCE.sub("", text)
    spans = INLINE.findall(prose)
    return [
        *_dead_links(page, INLINE.sub("", prose), text),
        *_dead_commands([line for block in blocks if block.language in SHELL for line in _lines(block.text)], spans),
        *_dead_paths([*spans, *(line for block in blocks if block.language in SHELL for line in _lines(block.text))]),
    ]


def _lines(text: str) -> list[str]:
    return [line.removeprefix("$ ") for line in text.replace("\\\n", " ").splitlines()]


# --- links ------------------------------------------------------------------------------------------------


def _dead_links(page: Path, prose: str, text: str) -> Iterator[str]:
    for target in LINK.findall(prose):
        if ELSEWHERE.match(target):
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        if name and not file.exists():
            yield f"link to {target}: no such file"
        elif not file.is_relative_to(ROOT):
            yield f"link to {target}: outside of the repository"
        elif anchor and anchor not in anchors(file.read_text() if name else text):
            yield f"link to {target}: no such heading"


def anchors(text: str) -> set[str]:
    """The anchors that GitHub gives the headings of a page."""
    found: dict[str, int] = {}
    for heading in HEADING.findall(FENCE.sub("", text)):
        shown = LINK.sub(lambda link: link[0][1:].partition("]")[0], heading)
        anchor = re.sub(r"[^\w\- ]", "", shown.lower()).replace(" ", "-")
        count = found[anchor] = found.get(anchor, -1) + 1
        if count:
            found[f"{anchor}-{count}"] = 0
    return set(found)


# --- commands ---------------------------------------------------------------------------------------------


def _dead_commands(lines: list[str], spans: list[str]) -> Iterator[str]:
    """Whole commands in fenced blocks; in a sentence a command may be named without its arguments."""
    for text, whole in (*((line, True) for line in lines), *((span, False) for span in spans)):
        for words in _commands(text):
            match words:
                case ["make", *arguments]:
                    yield from (f"`{text}`: no make target {name}" for name in arguments if _is_no_target(name))
                case ["kforge", *arguments] if arguments and "…" not in text and "COMMAND" not in arguments:
                    reason = _refusal(arguments, whole=whole)
                    if reason is not None:
                        yield f"`{text}`: {reason}"


def _commands(line: str) -> Iterator[list[str]]:
    """The commands of a line, without variables before and redirections behind them."""
    if not re.search(r"\b(?:kforge|make)\b", line):
        return
    try:
        words = shlex.split(line, comments=True)
    except ValueError:  # a quotation mark of a sentence
        return
    command: list[str] = []
    for word in (*words, ";"):
        if word in ENDS_A_COMMAND or word.startswith((">", "<", "2>")):
            if command:
                yield [command[0].rpartition("/")[2], *command[1:]]
            command = []
        elif command or not re.fullmatch(r"[A-Z_]+=.*", word):
            command.append(word)


def _is_no_target(word: str) -> bool:
    return "=" not in word and not word.startswith("-") and word not in _targets()


@cache
def _targets() -> frozenset[str]:
    return frozenset(name for line in TARGET.findall((ROOT / "Makefile").read_text()) for name in line.split())


def _refusal(arguments: list[str], *, whole: bool) -> str | None:
    """Why the command line does not take these arguments; None where it does. Nothing is run.

    Of a command that is not whole, only its name and its options are looked at.
    """
    if {"--install-completion", "--show-completion"} & set(arguments):  # parsing them installs it
        return None
    group = typer.main.get_command(app)
    try:
        with redirect_stdout(StringIO()):  # of --help
            context = group.make_context("kforge", list(arguments))
            while left := [*getattr(context, "_protected_args", ()), *context.args]:
                if not hasattr(context.command, "resolve_command"):
                    break
                name, command, rest = context.command.resolve_command(context, left)
                context = command.make_context(name, rest, parent=context)
    except Exception as error:  # click's, or that of a click inside typer: known by their shape
        if not hasattr(error, "format_message"):
            if type(error).__name__ == "Exit":  # so does --help
                return None
            raise
        reason = str(error.format_message())
        return reason if whole or reason.startswith("No such") else None
    return None


# --- paths, snippets --------------------------------------------------------------------------------------


def _dead_paths(texts: list[str]) -> Iterator[str]:
    for text in texts:
        for word in text.split():
            if (path := word.strip("`'\",;:()")) and REPOSITORY_PATH.fullmatch(path):
                name, _, test = path.partition("::")
                found = list(ROOT.glob(PLACEHOLDER.sub("*", name.rstrip("/."))))
                if not found:
                    yield f"`{text}`: there is no {name}"
                elif test and f"def {test}(" not in found[0].read_text():
                    yield f"`{text}`: {name} has no {test}"


def broken_snippets(text: str) -> list[str]:
    """Why Python snippets of a page are no Python."""
    broken = []
    for found in FENCE.finditer(text):
        if found["language"].strip() == "python":
            try:
                compile(found["text"], "snippet", "exec")
            except SyntaxError as error:
                broken.append(f"a Python snippet does not compile: {error}")
    return broken
