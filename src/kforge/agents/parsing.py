"""Reads what models really send: a program from an answer, a recommendation from an analysis.

Nothing here runs or imports what it reads, and no text makes it raise.
"""

from __future__ import annotations

import ast
import re
import warnings
from typing import TYPE_CHECKING

from kforge.agents.markdown import TRIES, CodeBlock, code_blocks, json_values, plain, without_thinking
from kforge.records import GenerationFailure, Recommendation

if TYPE_CHECKING:
    from collections.abc import Iterator

LONGEST = 1_000_000
"""Most characters of a program."""

_DEFINES = re.compile(r"^[ \t]*class[ \t]+ModelNew\b", re.MULTILINE)
_CODE_BEGINS = re.compile(r"""^(?:import\s|from\s+\S+\s+import\b|class\s|def\s|@|#|"{3}|'{3}|[A-Za-z_]\w*\s*=)""")

# --- programs ---------------------------------------------------------------------------------------------


def parse_program(text: str, finish: str = "stop") -> str | GenerationFailure:
    """Return the program in an answer, the last one if it has several, or the reason why the answer has no program.

    A closed block that defines `ModelNew` is a program even when Python cannot parse it: that is a compilation failure,
    and its repair needs the source. An answer cut off inside its program is a generation failure.
    """
    if len(text) > LONGEST:
        return GenerationFailure(reason=f"the answer is longer than {LONGEST} characters")
    answer = without_thinking(plain(text))
    blocks = list(code_blocks(answer, _is_program))
    programs = [block for block in blocks if _DEFINES.search(block.text)]
    if programs:
        last = programs[-1]
        if not last.closed and (finish == "length" or not _is_program(last.text)):
            return GenerationFailure(reason=_cut_off(finish))
        return _finished(last.text)
    wrapped = _program_in_json(answer, blocks)
    if wrapped is not None:
        return _finished(wrapped)
    if finish == "length":
        return GenerationFailure(reason=_cut_off(finish))
    bare = _bare_program(answer)
    return _finished(bare) if bare is not None else GenerationFailure(reason=_missing(answer, blocks, finish))


def _program_in_json(answer: str, blocks: list[CodeBlock]) -> str | None:
    """Return a program inside a JSON string: `{"code": "…"}`, in a block or bare."""
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
    """Return a program without any fence, with prose before it or after it."""
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


def _cut_off(finish: str) -> str:
    limit = "at its length limit " if finish == "length" else ""
    return f"the answer was cut off {limit}before the program was complete; think less and write a shorter program"


def _missing(answer: str, blocks: list[CodeBlock], finish: str) -> str:
    if finish == "content_filter":
        return "the provider's content filter stopped the answer"
    if not answer.strip():
        return "the answer is empty, or holds nothing but thinking"
    if blocks:
        return "no code block of the answer defines the class ModelNew"
    if _DEFINES.search(answer):
        return "the answer has no code block, and its bare text does not parse as Python"
    return "the answer has no code block and no class ModelNew"


# --- recommendations --------------------------------------------------------------------------------------

FIELDS = tuple(Recommendation.model_fields)
_LABEL = re.compile(r"^[\s>*_#\-\d.]*(?P<name>[A-Za-z][A-Za-z _\-]{0,30}?)[*_`\s]*:[*_\s]*(?P<value>.*)$")


class Unreadable(str):
    """Why an answer is not a recommendation, in words that the model can act on."""

    __slots__ = ()


def parse_recommendation(text: str) -> Recommendation | Unreadable:
    """Return the one recommendation in an answer: a JSON object in a block or bare, or lines of `key: value`."""
    answer = without_thinking(plain(text[:LONGEST]))
    if not answer.strip():
        return Unreadable("the answer is empty, or holds nothing but thinking")
    blocks = [block.text for block in code_blocks(answer, lambda _: False)]
    problem: Unreadable | None = None
    for part in [*blocks, answer]:
        for value in json_values(part):
            read = _recommendation(value)
            if isinstance(read, Recommendation):
                return read
            problem = problem or read
    read = _recommendation(_labelled(answer))
    return read if isinstance(read, Recommendation) else problem or read


def _recommendation(value: object) -> Recommendation | Unreadable:
    if isinstance(value, dict) and len(value) == 1 and isinstance(inner := next(iter(value.values())), (dict, list)):
        value = inner
    if isinstance(value, list):
        if len(value) != 1:
            return Unreadable(f"it gives {len(value)} recommendations, and exactly one is asked for")
        value = value[0]
    if not isinstance(value, dict):
        return Unreadable("it holds no JSON object")
    given = {_field(str(key)): _words(item) for key, item in value.items()}
    missing = [field for field in FIELDS if not given.get(field)]
    if missing:
        return Unreadable(f"it lacks {', '.join(missing)}")
    return Recommendation(**{field: given[field] for field in FIELDS})


def _field(key: str) -> str:
    return re.sub(r"[\s_\-]+", "_", key.strip().lower())


def _words(value: object) -> str:
    if isinstance(value, list):
        return "; ".join(_words(item) for item in value)
    return "" if value is None or isinstance(value, dict) else " ".join(str(value).split())


def _labelled(answer: str) -> dict[str, str]:
    """Return lines of `key: value`; a line without a known key continues the value before it."""
    given: dict[str, str] = {}
    current = ""
    for line in answer.split("\n"):
        label = _LABEL.match(line)
        if label is not None and _field(label["name"]) in FIELDS:
            current = _field(label["name"])
            given[current] = label["value"].strip()
        elif current and line.strip() and not line.lstrip().startswith(("```", "~~~")):
            given[current] += " " + line.strip()
    return given
