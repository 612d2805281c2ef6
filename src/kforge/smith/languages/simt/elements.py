"""Writes the statements that compute the values of a nest's nodes at one position. Operands are read when they are
first needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge.smith.languages.indices import summed
from kforge.smith.languages.simt.code import Code, Value, all_of
from kforge.smith.languages.simt.functions import map_value, operand

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from kforge.smith.fusion.loops import Buffer, Nest
    from kforge.smith.ir.graph import Graph, Node
    from kforge.smith.languages import Context
    from kforge.smith.languages.indices import IndexText
    from kforge.smith.languages.simt.dialect import Dialect, Kernel

WORDS = "_words"
"""Suffix for the name of an int32 copy of a tensor whose dtype the language's buffers cannot hold."""
ALIGNED = "aligned"
ALIGNED_TEXT = f'''
def {ALIGNED}(tensor):
    """Return the tensor, copied if it does not begin at a multiple of 16 bytes: kernels read four elements at once."""
    return tensor if tensor.data_ptr() % 16 == 0 else tensor.clone()
'''


class Memories:
    """The tensors that a nest reads and writes, as parameters of its kernels. Tensors in the same memory are one
    parameter."""

    def __init__(self, nest: Nest, graph: Graph, besides: Sequence[str] = ()) -> None:
        """Leave out the nodes in `besides`: the kernel computes their values itself, so they are not parameters."""
        self.nest, self.graph = nest, graph
        self.written = {buffer.base for buffer in nest.buffers if buffer.name in nest.outputs}
        self.bases = [base for base in dict.fromkeys(buffer.base for buffer in nest.memories) if base not in besides]

    def name(self, base: str) -> str:
        return f"{base}_{'out' if base in self.written else 'in'}"

    def declare(self, code: Code) -> None:
        for base in self.bases:
            written = base in self.written
            code.parameter(self.name(base), self.graph[base].dtype, written=written)

    def given(self, context: Context) -> dict[str, str]:
        """Return the Python expression that `forward` passes for each parameter."""
        return {self.name(base): context.memory(base) for base in self.bases}


def launched(dialect: Dialect, kernel: Kernel, given: Mapping[str, str]) -> tuple[str, ...]:
    """Return the Python statements that launch a kernel.

    Tensors of dtypes that the language's buffers cannot hold are copied to int32 before, and outputs are copied back
    after the launch.
    """
    before, after, arguments = [], [], []
    for parameter in kernel.parameters:
        expression = given[parameter.name]
        # a tensor that this program did not allocate may begin at any address
        if parameter.name in kernel.aligned and expression.endswith(".contiguous()"):
            expression = f"{ALIGNED}({expression})"
        if parameter.dtype not in dialect.dtypes_as_int32:
            arguments.append(expression)
        elif parameter.written:
            before.append(f"{expression}{WORDS} = {expression}.to(torch.int32)")
            after.append(f"{expression}.copy_({expression}{WORDS})")
            arguments.append(f"{expression}{WORDS}")
        else:
            arguments.append(f"{expression}.to(torch.int32)")
    return (*before, dialect.launch(kernel, arguments), *after)


class Elements:
    """Writes the statements that compute a nest's values at one position, and remembers each node's value. `indices`
    are the index variables that give the position."""

    def __init__(self, code: Code, memories: Memories, indices: tuple[IndexText, ...], suffix: str = "") -> None:
        self.code = code
        self.memories = memories
        self.indices = indices
        self.suffix = suffix
        """Suffix of the names of all values, for kernels in which a thread computes several positions."""
        self.values: dict[str, Value] = {}
        self.reader: Callable[[Buffer], Value | None] = lambda _: None
        """Returns the value of a buffer at this position if it is already known, for example in a register; otherwise
        None."""

    def inside(self) -> Elements:
        """Return an object for a nested block: it knows all values computed so far, and values computed in the block
        are not known outside."""
        inner = Elements(self.code, self.memories, self.indices, self.suffix)
        inner.values, inner.reader = dict(self.values), self.reader
        return inner

    def read(self, name: str) -> Value:
        if name not in self.values:
            buffer = self.memories.nest.buffer(name)
            value = self.reader(buffer) or self.code.load(self.memories.name(buffer.base), self.address(buffer))
            named = self.code.let(self.code.name(f"{name}_value{self.suffix}"), value.kind, value.text)
            self.values[name] = Value(named, value.kind)
        return self.values[name]

    def compute(self, nodes: Iterable[Node]) -> None:
        for node in nodes:
            if node.name not in self.values:
                given = [operand(each, self.read) for each in node.inputs]
                value = map_value(self.code, node, given)
                named = self.code.let(self.code.name(f"{node.name}_value{self.suffix}"), value.kind, value.text)
                self.values[node.name] = Value(named, value.kind)

    def store(self, nodes: Iterable[Node], condition: str = "") -> None:
        """Write to memory the values of those nodes that are outputs. `condition` guards the writes."""
        written = [node for node in nodes if node.name in self.memories.nest.outputs]
        if not written:
            return
        with self.code.when(all_of(condition)):
            for node in written:
                buffer = self.memories.nest.buffer(node.name)
                self.code.store(self.memories.name(buffer.base), self.address(buffer), self.values[node.name])

    def address(self, buffer: Buffer) -> str:
        terms = (index.address(buffer.steps) for index in self.indices)
        return summed(*terms, str(buffer.offset) if buffer.offset else "")
