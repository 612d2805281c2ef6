"""Writes the lines of a Triton kernel: values, loads and stores.

A block of elements has one axis for each index variable. An input is loaded when it is first needed, under the masks of
the indices on which its address depends.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from kforge.smith.languages.triton.functions import map_text, number

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kforge.smith.fusion.loops import Buffer, Nest
    from kforge.smith.ir.graph import Graph, Node, Operand
    from kforge.smith.languages.indices import IndexText

INDENT = "    "
LAST = 65_535
"""Most program instances along the second axis of a launch. The first axis allows 2^31."""
KEPT = ', eviction_policy="evict_last"'
"""Option for loads of elements that the next places read again."""
_TAKES_BOOLS = frozenset({"and", "or", "not", "eq", "ne", "float"})


@dataclass
class Statements:
    """The body of a kernel, or of a loop in it, while it is being written."""

    graph: Graph
    nest: Nest
    indices: tuple[IndexText, ...]
    masks: dict[str, str]
    """The mask of each index variable, by name. An index without a mask never goes beyond its end."""
    lines: list[str] = field(default_factory=list)
    depth: int = 1
    values: dict[str, str] = field(default_factory=dict)
    hint: str = ""
    """An option for loads that says how long the cache should keep the elements."""

    def say(self, line: str) -> None:
        self.lines.append(INDENT * self.depth + line)

    def nested(self, hint: str = "", whole: Sequence[str] = ()) -> Statements:
        """Return a body for a loop. It knows the values computed so far, and its own values are not known outside.

        `whole` names the indices that need no mask inside the loop.
        """
        masks = {name: mask for name, mask in self.masks.items() if name not in whole}
        return replace(self, masks=masks, depth=self.depth + 1, values=dict(self.values), hint=hint)

    def beside(self, hint: str = "") -> Statements:
        """Return a body at the same depth, for code after a loop. It knows the values computed so far, but does not add
        to them."""
        return replace(self, values=dict(self.values), hint=hint)

    def compute(self, nodes: Iterable[Node]) -> None:
        for node in nodes:
            if node.name not in self.values:
                operands = [self._operand(each, node, place) for place, each in enumerate(node.inputs)]
                self.say(f"{node.name} = {map_text(node, self.graph).format(*operands)}")
                self.values[node.name] = node.name

    def read(self, name: str) -> str:
        """Return the name of the variable that holds a node's value, and write the load if it is not loaded yet."""
        if name not in self.values:
            buffer = self.nest.buffer(name)
            mask = self._mask(index for index in self.indices if index.moves(buffer.steps))
            other = ", other=0.0" if mask and buffer.dtype == "float32" else ", other=0" if mask else ""
            address = f"{memory_name(buffer, self.nest)}{self._address(buffer)}"
            self.say(f"{name}_value = tl.load({address}{mask}{other}{self._hint(buffer)})")
            self.values[name] = f"{name}_value"
        return self.values[name]

    def store(self, nodes: Iterable[Node]) -> None:
        for node in nodes:
            if node.name in self.nest.outputs:
                buffer = self.nest.buffer(node.name)
                moving = [index for index in self.indices if index.moves(buffer.steps)]
                # an index of size 1 in a longer block: adding it to the address gives the pointer the block's shape,
                # and its mask lets only the first value be stored
                still = [index for index in self.indices if index.size == 1 and index.name in self.masks]
                shaping = still if moving else still or [self.indices[0]]
                address = memory_name(buffer, self.nest) + "".join(f" + {index.name}" for index in shaping)
                mask = self._mask([*moving, *still])
                # data that is not read again should not evict other data
                hint = self.hint if "evict_first" in self.hint else ""
                self.say(f"tl.store({address}{self._address(buffer)}, {self.values[node.name]}{mask}{hint})")

    def _hint(self, buffer: Buffer) -> str:
        """Return the hint for loading a buffer. Elements that several places share should stay in the cache, since the
        next place reads them again."""
        shared = any(index.size > 1 and not index.moves(buffer.steps) for index in self.indices)
        return KEPT if self.hint and shared else self.hint

    def _address(self, buffer: Buffer) -> str:
        terms = [address for index in self.indices if (address := index.address(buffer.steps))]
        terms += [str(buffer.offset)] if buffer.offset else []
        return "".join(f" + {term}" for term in terms)

    def _mask(self, indices: Iterable[IndexText]) -> str:
        needed = [self.masks[index.name] for index in indices if index.name in self.masks]
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
    """Return the Python statement that launches a kernel."""
    programs = f"({', '.join(map(str, grid))}{',' if len(grid) == 1 else ''})"
    options = f"num_warps={warps}" + (f", num_stages={stages}" if stages else "")
    return f"{name}[{programs}]({', '.join([*given, options])})"


def grid_of(tiles: int, batches: int) -> tuple[list[int], str, str]:
    """Return the launch grid for a number of tiles per batch, and the expressions for the tile and the batch of a
    program instance."""
    if batches <= LAST:
        return [tiles, batches], "tl.program_id(0)", "tl.program_id(1)"
    return [tiles * batches], f"(tl.program_id(0) % {tiles})", f"(tl.program_id(0) // {tiles})"


def parameters(nest: Nest) -> str:
    """Return the kernel's parameter names. Their suffix keeps them different from all other names in the kernel."""
    return ", ".join(memory_name(buffer, nest) for buffer in nest.memories)


def memory_name(buffer: Buffer, nest: Nest) -> str:
    """Return the name of a buffer's parameter: the name of the node that owns its memory, with `_out` or `_in`."""
    return f"{buffer.base}_{'out' if buffer.name in nest.outputs else 'in'}"
