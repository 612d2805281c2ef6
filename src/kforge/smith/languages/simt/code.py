"""Writes the statements of a kernel in any dialect. Values carry their dtype, and blocks are written by `with`
statements."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from kforge.smith.languages.simt.dialect import INDENT, Dialect, Kernel, Parameter

if TYPE_CHECKING:
    from collections.abc import Iterator


MOST_COPIED = 800
"""Most lines that unrolling a loop by copying its body may produce. A loop with more lines is not unrolled."""


class Value(NamedTuple):
    """An expression in the dialect, and its kind (a dtype: float32, int32, int64 or bool)."""

    text: str
    kind: str


class Code:
    """Writes the body of a kernel, statement by statement."""

    def __init__(self, dialect: Dialect, kernel: Kernel) -> None:
        self.dialect = dialect
        self.kernel = kernel
        self.depth = 1
        self._names: dict[str, int] = {}
        self._known: dict[str, Parameter] = {}

    def say(self, line: str) -> None:
        self.kernel.lines.append(INDENT * self.depth + line)

    def name(self, plain: str) -> str:
        """Return a name that this kernel has not used yet, by adding a number if necessary."""
        plain = plain.lstrip("_")  # some dialects reserve names that begin with an underscore
        number = self._names[plain] = self._names.get(plain, 0) + 1
        return plain if number == 1 else f"{plain}_{number}"

    # --- values -------------------------------------------------------------------------------------------------

    def let(self, name: str, kind: str, text: str) -> str:
        """Declare a constant with this value, and return its name."""
        self.say(self.dialect.declare(kind, name, text, constant=True))
        return name

    def var(self, name: str, kind: str, text: str) -> str:
        self.say(self.dialect.declare(kind, name, text, constant=False))
        return name

    def assign(self, name: str, text: str) -> None:
        self.say(f"{name} = {text};")

    def array(self, kind: str, name: str, count: int) -> str:
        self.say(self.dialect.array(kind, name, count))
        return name

    def shared(self, kind: str, name: str, count: int) -> str:
        """Declare an array in the shared memory of a thread group, and return its name in the kernel's body."""
        if not any(each == name for _, each, _ in self.kernel.arrays):
            self.kernel.arrays.append((kind, name, count))
        return self.dialect.memory(self.kernel, name)

    def converted(self, value: Value, kind: str) -> str:
        return value.text if value.kind == kind else self.dialect.cast(kind, value.text)

    # --- memory -------------------------------------------------------------------------------------------------

    def parameter(self, name: str, dtype: str, *, written: bool = False, shared: bool = False) -> str:
        """Register a tensor, and return its name. It becomes a parameter of the kernel only when it is first used."""
        self._known[name] = Parameter(name, dtype, written, shared)
        return name

    def memory(self, name: str) -> str:
        """Return the name of a parameter in the kernel's body, and add it to the kernel's parameters."""
        if self._known[name] not in self.kernel.parameters:
            self.kernel.parameters.append(self._known[name])
        return self.dialect.memory(self.kernel, name)

    def load(self, name: str, index: str) -> Value:
        """Return the value of a parameter's element."""
        dtype = self._known[name].dtype
        text = f"{self.memory(name)}[{index}]"
        kind = self.dialect.kind(dtype)
        if dtype == "bool":
            return Value(f"({text} != {'0' if self.dialect.in_memory('bool') != 'bool' else 'false'})", "bool")
        return Value(self.dialect.cast(kind, text) if dtype == "uint8" else text, kind)

    def store(self, name: str, index: str, value: Value) -> None:
        dtype, memory = self._known[name].dtype, self.memory(name)
        if dtype == "bool" and self.dialect.in_memory("bool") != "bool":
            truth = self.converted(value, "bool")
            self.say(f"{memory}[{index}] = {self.dialect.select(truth, '1', '0')};")
            return
        self.say(f"{memory}[{index}] = {self.converted(value, self.dialect.kind(dtype))};")

    # --- blocks -------------------------------------------------------------------------------------------------

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        self.say(f"{head} {{")
        self.depth += 1
        yield
        self.depth -= 1
        self.say("}")

    @contextmanager
    def loop(
        self, index: str, end: str | int, start: str = "0", step: str | int = 1, *, kind: str = "int32",
        unroll: bool = False,
    ) -> Iterator[None]:  # fmt: skip
        lines, begin = self.kernel.lines, len(self.kernel.lines)
        if (
            unroll
            and self.dialect.unrolls_by_copies
            and start == "0"
            and isinstance(end, int)
            and isinstance(step, int)
        ):
            self.depth += 1
            yield
            self.depth -= 1
            body, places = lines[begin:], range(0, end, step)
            del lines[begin:]
            if len(body) * len(places) <= MOST_COPIED:
                for place in places:
                    self.say("{")
                    lines.append(
                        INDENT * (self.depth + 1) + self.dialect.declare(kind, index, str(place), constant=True)
                    )
                    lines += body
                    self.say("}")
                return
            self.say(f"{self.dialect.loop(kind, index, start, str(end), str(step))} {{")
            lines += body
            self.say("}")
            return
        if unroll and (line := self.dialect.unroll()):
            self.say(line)
        with self.block(self.dialect.loop(kind, index, start, str(end), str(step))):
            yield

    @contextmanager
    def when(self, condition: str) -> Iterator[None]:
        """Open a block that runs if the condition holds. An empty condition always holds, and opens no block."""
        if not condition:
            yield
            return
        with self.block(f"if ({condition})"):
            yield

    def barrier(self) -> None:
        self.say(self.dialect.barrier())


def all_of(*conditions: str) -> str:
    """Return the condition that all of these conditions hold. Empty ones are left out."""
    given = [each for each in conditions if each]
    return " && ".join(given) if len(given) < 2 else " && ".join(f"({each})" for each in given)
