"""Lines of a kernel: values of nodes under their names, loads of what they read, and stores.

A block of elements has one axis for each index. An input is read where it is first needed, under the masks of those
indices that it moves along.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kforge.smith.languages.triton.functions import MAPS, number

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kforge.smith.graph import Graph, Node, Operand
    from kforge.smith.languages.triton.indices import Index
    from kforge.smith.loops import Nest

INDENT = "    "
_TAKES_BOOLS = frozenset({"and", "or", "not", "eq", "ne", "float"})


@dataclass
class Statements:
    """The body of a kernel, or of a loop in it."""

    graph: Graph
    nest: Nest
    indices: tuple[Index, ...]
    masks: dict[str, str]
    """By the name of an index, the mask that it needs; none where its blocks end where it does."""
    lines: list[str] = field(default_factory=list)
    depth: int = 1
    values: dict[str, str] = field(default_factory=dict)
    hint: str = ""
    """An option of loads: how long a cache should keep what they read."""

    def say(self, line: str) -> None:
        self.lines.append(INDENT * self.depth + line)

    def nested(self, hint: str = "") -> Statements:
        """The body of a loop: it knows what is known here, and what it finds out stays there."""
        return Statements(
            self.graph, self.nest, self.indices, self.masks, self.lines, self.depth + 1, dict(self.values), hint
        )

    def compute(self, nodes: Iterable[Node]) -> None:
        for node in nodes:
            if node.name not in self.values:
                operands = [self._operand(each, node, place) for place, each in enumerate(node.inputs)]
                self.say(f"{node.name} = {MAPS[node.function].format(*operands)}")
                self.values[node.name] = node.name

    def read(self, name: str) -> str:
        """The variable that holds a node's value."""
        if name not in self.values:
            buffer = self.nest.buffer(name)
            mask = self._mask(buffer.steps)
            other = ", other=0.0" if mask and buffer.dtype == "float32" else ", other=0" if mask else ""
            self.say(f"{name}_value = tl.load({name}_in{self._address(buffer.steps)}{mask}{other}{self.hint})")
            self.values[name] = f"{name}_value"
        return self.values[name]

    def store(self, nodes: Iterable[Node]) -> None:
        for node in nodes:
            if node.name in self.nest.outputs:
                steps = self.nest.buffer(node.name).steps
                # a single element still needs a pointer of the block's shape
                address = f"{node.name}_out{self._address(steps) or f' + {self.indices[0].name}'}"
                self.say(f"tl.store({address}, {self.values[node.name]}{self._mask(steps)})")

    def _address(self, steps: tuple[int, ...]) -> str:
        terms = [address for index in self.indices if (address := index.address(steps))]
        return f" + {' + '.join(terms)}" if terms else ""

    def _mask(self, steps: tuple[int, ...]) -> str:
        needed = [self.masks[index.name] for index in self.indices if index.moves(steps) and index.name in self.masks]
        return f", mask={' & '.join(needed)}" if needed else ""

    def _operand(self, operand: Operand, node: Node, place: int) -> str:
        if isinstance(operand, bool):
            return str(operand)
        if isinstance(operand, int | float):
            return number(float(operand))
        value = self.read(operand)
        is_choice = node.function == "where" and place == 0
        if self.graph[operand].dtype == "bool" and node.function not in _TAKES_BOOLS and not is_choice:
            return f"{value}.to(tl.float32)" if node.dtype == "float32" else value
        return value


def launch(name: str, grid: Sequence[int], given: Sequence[str], warps: int, stages: int = 0) -> str:
    """The statement that runs a kernel."""
    programs = f"({', '.join(map(str, grid))}{',' if len(grid) == 1 else ''})"
    options = f"num_warps={warps}" + (f", num_stages={stages}" if stages else "")
    return f"{name}[{programs}]({', '.join([*given, options])})"


def parameters(nest: Nest) -> str:
    """Names of the buffers; none is one that a kernel has for itself."""
    return ", ".join(f"{each.name}_{'out' if each.name in nest.outputs else 'in'}" for each in nest.buffers)


def title(nest: Nest) -> str:
    """What a kernel computes, and of how many."""
    nodes = [*nest.before, *(n for sweep in nest.sweeps for n in (*sweep.elements, *sweep.reductions, *sweep.after))]
    origins = list(dict.fromkeys(node.origin for node in nodes if node.origin))
    sizes = " x ".join(str(loop.size) for loop in nest.loops) or "1"
    return f"{', '.join(origins) or 'maps'}: {sizes}"
