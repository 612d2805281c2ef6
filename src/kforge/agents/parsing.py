"""Reads the program from a model's answer, in the forms that models send: a whole file, or edits of the last one.

Nothing here runs or imports what it reads, and no text makes it raise.
"""

from __future__ import annotations

import ast
import re
import warnings
from typing import TYPE_CHECKING, NamedTuple

from kforge.agents.edits import apply_edits, read_edits
from kforge.agents.markdown import (
    LONGEST,
    TRIES,
    CodeBlock,
    code_blocks,
    json_fault,
    json_values,
    plain,
    without_thinking,
)
from kforge.records import GenerationFailure

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kforge.agents.edits import Replacement

_DEFINES = re.compile(r"^[ \t]*class[ \t]+ModelNew\b", re.MULTILINE)
_CODE_BEGINS = re.compile(r"""^(?:import\s|from\s+\S+\s+import\b|class\s|def\s|@|#|"{3}|'{3}|[A-Za-z_]\w*\s*=)""")
_LEFT_OUT = re.compile(
    r"^[ \t]*(?:#|//)[ \t]*(?:\.\.\.|…)"
    r".*\b(?:rest|same|unchanged|before|existing|previous|omitted|remain\w*|identical)\b",
    re.MULTILINE | re.IGNORECASE,
)
"""A comment that stands for code: `# ... (the rest is unchanged)`."""


class ReadProgram(NamedTuple):
    """A program that was read from an answer."""

    source: str
    remark: str = ""
    """What the model and the user should know about the answer, in a sentence; empty if it has the required form."""


def parse_program(text: str, finish: str = "stop", base: str | None = None) -> ReadProgram | GenerationFailure:
    """Return the program in an answer, or the reason why the answer has no program.

    `finish`: why the answer ended, as the provider says. `base`: the program that edits are applied to; None where
    there is none. Of several programs in an answer the last one is taken, with a remark. A closed block that defines
    `ModelNew` is a program even when Python cannot parse it: that is a compilation failure, and its repair needs the
    source. An answer cut off inside its program is a generation failure.
    """
    if len(text) > LONGEST:
        return GenerationFailure(reason=f"the answer is longer than {LONGEST} characters")
    answer = without_thinking(plain(text))
    blocks = list(code_blocks(answer, _is_program))
    edits = read_edits(answer)
    programs = [block for block in blocks if _DEFINES.search(block.text) and not read_edits(block.text)]
    if isinstance(edits, GenerationFailure):
        return edits if finish != "length" else GenerationFailure(reason=_cut_off(finish))
    if edits and programs:
        return GenerationFailure(reason="the answer has edits and a whole program; give either edits or one whole file")
    if edits:
        return _edited(base, edits, finish)
    if programs:
        return _last_of(programs, finish)
    wrapped = _program_in_json(answer, blocks)
    if wrapped is not None:
        return ReadProgram(_finished(wrapped))
    if finish == "length":
        return GenerationFailure(reason=_cut_off(finish))
    bare = _bare_program(answer)
    return (
        ReadProgram(_finished(bare)) if bare is not None else GenerationFailure(reason=_missing(answer, blocks, finish))
    )


def _edited(base: str | None, edits: list[Replacement], finish: str) -> ReadProgram | GenerationFailure:
    """Return the last program after these edits."""
    if base is None:
        return GenerationFailure(reason="the answer has edits, and there is no last program to edit; give a whole file")
    if finish == "length":
        return GenerationFailure(reason=_cut_off(finish, "the last edit"))
    changed = apply_edits(base, edits)
    if isinstance(changed, GenerationFailure):
        return changed
    if _DEFINES.search(changed) is None:
        return GenerationFailure(reason="after the edits, the program no longer defines the class ModelNew")
    return ReadProgram(changed)


def _last_of(programs: list[CodeBlock], finish: str) -> ReadProgram | GenerationFailure:
    """Return the last of the programs in an answer."""
    last = programs[-1]
    if not last.closed and (finish == "length" or not _is_program(last.text)):
        return GenerationFailure(reason=_cut_off(finish))
    if (left_out := _LEFT_OUT.search(last.text)) is not None:
        return GenerationFailure(
            reason=f"the program leaves code out, at the line {left_out[0].strip()!r}; give the whole file, or edits"
        )
    texts = {_finished(block.text) for block in programs}
    different = sum(not any(other != text and other in text for other in texts) for text in texts)
    remark = f"the answer holds {different} different programs, and the last one was taken" if different > 1 else ""
    return ReadProgram(_finished(last.text), remark)


def _program_in_json(answer: str, blocks: list[CodeBlock]) -> str | None:
    """Return a program inside a JSON string (`{"code": "…"}`), in a block or bare; None if no string holds one."""
    for text in [answer, *(block.text for block in blocks)]:
        for value in json_values(text):
            for string in _strings(value):
                inner = plain(string)
                choices = [inner, *(block.text for block in code_blocks(inner, _is_program))]
                program = next((choice for choice in choices if _is_program(choice)), None)
                if program is not None:
                    return program
    return None


def _strings(value: object) -> Iterator[str]:
    rest = [value]
    while rest:
        item = rest.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict):
            rest.extend(item.values())
        elif isinstance(item, list):
            rest.extend(item)


def _bare_program(answer: str) -> str | None:
    """Return a program without any fence, with prose before it or after it; None if the answer holds no program."""
    lines = answer.split("\n")
    beginnings = [index for index, line in enumerate(lines) if _CODE_BEGINS.match(line)]
    for begin in beginnings[:TRIES]:
        rest = lines[begin:]
        for _ in range(TRIES):
            source = "\n".join(rest)
            parsed = _parse(source)
            if isinstance(parsed, ast.Module):
                if _is_program(source):
                    return source
                break
            # Only a paragraph of prose may be dropped: a text that ends inside an indented block was cut off.
            at = min(parsed.lineno or 1, len(rest)) - 1
            if at == 0 or rest[at].startswith((" ", "\t")) or rest[at - 1].strip():
                break
            rest = rest[:at]
    return None


def _is_program(source: str) -> bool:
    """Whether Python parses the source, and it defines a class `ModelNew`."""
    if _DEFINES.search(source) is None:
        return False
    tree = _parse(source)
    return isinstance(tree, ast.Module) and any(
        isinstance(node, ast.ClassDef) and node.name == "ModelNew" for node in ast.walk(tree)
    )


def _parse(source: str) -> ast.Module | SyntaxError:
    try:
        with warnings.catch_warnings():
            # Invalid escapes in a program do not matter here.
            warnings.simplefilter("ignore")
            return ast.parse(source)
    except SyntaxError as error:
        return error
    except (ValueError, RecursionError, MemoryError) as error:
        return SyntaxError(str(error))


def _finished(source: str) -> str:
    return source.strip("\n").rstrip() + "\n"


def _cut_off(finish: str, part: str = "the program") -> str:
    limit = "at its length limit " if finish == "length" else ""
    return f"the answer was cut off {limit}before {part} was complete; think less and write a shorter program"


def _missing(answer: str, blocks: list[CodeBlock], finish: str) -> str:
    if finish == "content_filter":
        return "the provider's content filter stopped the answer"
    if not answer.strip():
        return "the answer is empty, or holds nothing but thinking"
    if (fault := json_fault(answer)) is not None and answer.lstrip().startswith(("{", "```json")):
        return f"the answer is invalid JSON ({fault}); give the program in a code block instead"
    if blocks:
        return "no code block of the answer defines the class ModelNew"
    if _DEFINES.search(answer):
        return "the answer has no code block, and its bare text does not parse as Python"
    return "the answer has no code block and no class ModelNew"
