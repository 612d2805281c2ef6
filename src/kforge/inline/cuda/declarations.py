"""Finds the `__global__` functions and templates in a CUDA source, so that the arguments of every launch can be
checked."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from kforge.inline import abi
from kforge.inline.errors import CompileError
from kforge.inline.grammar import (
    Signature,
    closing_bracket,
    read_parameters,
    read_statement,
    tokenize,
    without_attributes,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_DTYPES = {
    "torch.float32": "float",
    "torch.float64": "double",
    "torch.float16": "__half",
    "torch.bfloat16": "__nv_bfloat16",
    "torch.int8": "int8_t",
    "torch.int16": "int16_t",
    "torch.int32": "int32_t",
    "torch.int64": "int64_t",
    "torch.uint8": "uint8_t",
    "torch.bool": "bool",
}


@dataclass(frozen=True)
class Declaration:
    """One kernel as the source declares it. The parameters of a template can be read only once its template arguments
    are known."""

    name: str
    path: tuple[str, ...]
    """The namespaces around the kernel, outermost first."""
    words: tuple[str, ...]
    """The tokens between the parentheses of its parameter list."""
    c_linkage: bool
    template: tuple[tuple[str, tuple[str, ...]], ...] | None = None
    """Names and default values of the template parameters. None for a plain function."""

    @property
    def expression(self) -> str:
        """The qualified name of the kernel, as NVRTC takes it."""
        return "::".join((*self.path, self.name))

    def signature(self) -> Signature:
        """Return the kernel's parameters. Raises CompileError for a parameter type that cannot be passed from
        Python."""
        return _signature(self.name, self.words)

    def instance(self, arguments: Sequence[Any]) -> tuple[str, Signature]:
        """Return NVRTC's name expression and the signature of the template with these arguments. Raises
        CompileError."""
        assert self.template is not None
        given = [_spelled(self.name, argument) for argument in arguments]
        needed = sum(1 for _, default in self.template if not default)
        if not needed <= len(given) <= len(self.template):
            raise CompileError(
                f"{self.name}: takes {len(self.template)} template arguments "
                f"({', '.join(name for name, _ in self.template)}), got {len(given)}"
            )
        meanings: dict[str, tuple[str, ...]] = {}
        for (name, default), text in zip_longest(self.template, given):
            # A default may name the parameters before it.
            meanings[name] = tuple(tokenize(text)) if text is not None else _replaced(default or (name,), meanings)
        words = _replaced(self.words, meanings)
        listed = f"<{', '.join(given)}>"
        return f"{self.expression}{listed}", _signature(f"{self.name}{listed}", words)


def _replaced(words: Sequence[str], meanings: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(part for word in words for part in meanings.get(word, (word,)))


def parse(source: str) -> dict[str, Declaration]:
    """Return all kernels of a source by name. If a kernel is declared and defined, the definition counts.

    Nothing is refused here, because the compiler's own messages about a broken source are better. Different kernels
    with the same name are listed by `clashes`.
    """
    return {one.name: one for one in sorted(_declarations(source), key=lambda found: found.defined)}


def clashes(source: str) -> list[str]:
    """Return the names that several different kernels share, which Python could not tell apart."""
    shapes: dict[str, set[tuple[str, ...]]] = {}
    for one in _declarations(source):
        if one.defined:
            shapes.setdefault(one.name, set()).add((*one.path, *(word for word in one.words if word in _TYPE_WORDS)))
    return [name for name, found in shapes.items() if len(found) > 1]


_TYPE_WORDS = frozenset((*abi.SPELLINGS, "unsigned", "signed", "*", ","))


@dataclass(frozen=True)
class _Found(Declaration):
    """A kernel's declaration as the parser found it, and whether it has a body."""

    defined: bool = False


def _declarations(source: str) -> Iterator[_Found]:
    tokens = tokenize(source)
    yield from _inside(tokens, 0, len(tokens), (), c_linkage=False)


def _inside(tokens: list[str], position: int, end: int, path: tuple[str, ...], *, c_linkage: bool) -> Iterator[_Found]:
    """Yield the kernels of one scope: a file, a namespace or an `extern "C"` block."""
    while position < end:
        head, has_body, after = read_statement(tokens, position, end)
        opening = position + len(head)
        if has_body and head[:1] == ["namespace"]:
            names = tuple(word for word in head[1:] if word not in ("::", "inline"))
            yield from _inside(tokens, opening + 1, after - 1, (*path, *names), c_linkage=c_linkage)
        elif has_body and head == ["extern", '"C"']:
            yield from _inside(tokens, opening + 1, after - 1, path, c_linkage=True)
        elif "__global__" in head:
            found = _declaration(head, path, c_linkage=c_linkage or '"C"' in head, defined=has_body)
            if found is not None:
                yield found
        position = after


def _declaration(head: list[str], path: tuple[str, ...], *, c_linkage: bool, defined: bool) -> _Found | None:
    template = None
    if head[:2] == ["template", "<"]:
        closing = _template_end(head)
        template = tuple(_template_parameter(part) for part in _split(head[2:closing]))
        head = head[closing + 1 :]
    words = without_attributes(head)
    if "(" not in words:
        return None
    opening = words.index("(")
    name = words[opening - 1] if opening else ""
    if not name.isidentifier() or "template" in words[:opening]:  # an explicit instantiation: the template is there too
        return None
    inner = tuple(words[opening + 1 : closing_bracket(words, opening)])
    return _Found(name, path, inner, c_linkage, template, defined)


def _template_end(head: Sequence[str]) -> int:
    """Return the position of the `>` that closes the template parameter list. A comparison in parentheses does not
    close it."""
    depth, position = 0, 1
    while position < len(head):
        word = head[position]
        if word in ("(", "[", "{"):
            position = closing_bracket(head, position)
        depth += (word == "<") - (word == ">")
        if not depth:
            break
        position += 1
    return position


def _template_parameter(words: list[str]) -> tuple[str, tuple[str, ...]]:
    """Return the name and the default value of a template parameter such as `typename T = float` or `int N`."""
    split = words.index("=") if "=" in words else len(words)
    return (words[split - 1] if split else ""), tuple(words[split + 1 :])


def _split(words: Sequence[str]) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    round_depth = angle_depth = 0
    for word in words:
        round_depth += (word == "(") - (word == ")")
        if not round_depth:  # else it is a comparison
            angle_depth += (word == "<") - (word == ">")
        if word == "," and not round_depth and not angle_depth:
            parts.append([])
        else:
            parts[-1].append(word)
    return [part for part in parts if part]


def _signature(name: str, words: Sequence[str]) -> Signature:
    nothing = abi.element(["void"])
    assert nothing is not None
    return Signature(name, read_parameters(name, words), nothing)


def _spelled(name: str, argument: Any) -> str:
    """Return a template argument as C++ source: a type's name, an int, a bool, or one of torch's dtypes. Raises
    CompileError for anything else."""
    if argument is True or argument is False:
        return str(argument).lower()
    if isinstance(argument, int | str):
        return str(argument)
    spelling = _DTYPES.get(str(argument))
    if spelling is None:
        raise CompileError(f"{name}: a template argument must be a C++ type's name, an int, a bool or a dtype")
    return spelling
