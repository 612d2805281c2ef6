"""Writes the whole candidate: the problem's module with a new `forward`, and the kernels that `forward` launches.

`ModelNew` inherits the module's constructor, so it has the same parameters. Inputs of other shapes than those for which
the kernels were written go to the module's own `forward`.
"""

from __future__ import annotations

import ast
import keyword
import textwrap
from typing import TYPE_CHECKING, Any, NamedTuple

from kforge.smith.fusion.joins import Joins
from kforge.smith.fusion.regions import Region, partition, tails
from kforge.smith.ir.functions import REDUCTIONS
from kforge.smith.ir.graph import Ref, contiguous, output, placed, with_pieces
from kforge.smith.languages import Context

if TYPE_CHECKING:
    from kforge.records import Problem
    from kforge.smith.fusion.joins import Part
    from kforge.smith.ir.graph import Graph, Node, Shape
    from kforge.smith.languages import Language, WrittenKernel
    from kforge.smith.plan import Plan

NAMES = {
    "aten.linear.default": "F.linear", "aten.conv1d.default": "F.conv1d", "aten.conv2d.default": "F.conv2d",
    "aten.conv3d.default": "F.conv3d", "aten.matmul.default": "torch.matmul", "aten.mm.default": "torch.mm",
    "aten.bmm.default": "torch.bmm", "aten.addmm.default": "torch.addmm", "aten.cat.default": "torch.cat",
    "aten.tril.default": "torch.tril", "aten.triu.default": "torch.triu",
}  # fmt: skip
"""Usual names of torch's operators in source code. Other operators are called by their registered name
(`torch.ops…`)."""

NO_GRADIENTS = "with torch.no_grad():"


class WrittenProgram(NamedTuple):
    """The source of a candidate, and whether it does anything by itself."""

    source: str
    is_own: bool
    """Whether it launches kernels, or joins matrix products. If not, it calls torch's operators as the module does."""


class _ProgramWriter:
    """Writes one candidate: orders the nodes of a graph, lets the language write kernels, and writes `forward`."""

    def __init__(self, problem: Problem, graph: Graph, language: Language, plan: Plan) -> None:
        self.problem = problem
        self.graph = with_pieces(graph)
        self.language = language
        self.places = placed(self.graph)
        self.context = Context(self.graph, plan, self._memory, self._elements, self._empty)
        self.tails: dict[str, Region] = {}
        self.leaders: dict[str, str] = {}
        """For a call that may be computed in the kernel of another call: the name of that other call, which is written
        first."""
        self.kernels: list[WrittenKernel] = []
        self.allocated: set[str] = set()
        self.joins = Joins(self.graph, lambda node: language.call("own", node, None, self.context) is None)
        self.steps: list[str] = []

    def program(self) -> WrittenProgram:
        self._order()
        return WrittenProgram(self._text(), is_own=bool(self.kernels or self.joins.parts))

    def _text(self) -> str:
        library = self.language.library(self.kernels) if self.kernels else ""
        parts = [model_source(self.problem), self._imports(), library, self._program()]
        return "\n\n\n".join(part.strip("\n") for part in parts if part) + "\n"

    # --- forward ------------------------------------------------------------------------------------------------

    def _order(self) -> None:
        """Write the statements of `forward`: each unit (a node or a region) as soon as all its inputs are computed."""
        regions = partition(self.graph, self.language.kinds)
        region_of = {node.name: region for region in regions for node in region.nodes}
        available = {node.name for node in self.graph if node.kind in ("input", "parameter")}
        waiting: list[Node | Region] = []
        for node in self.graph:
            unit = region_of.get(node.name, node)
            if node.name not in available and not any(unit is each for each in waiting):
                waiting.append(unit)
        self.tails = tails(self.graph, regions)
        for name, tail in self.tails.items():
            others = self.language.beside(self.graph[name], tail, self.context)
            self.leaders.update({other.name: name for other in others})
        while waiting:
            unit = next(each for each in waiting if self._reads(each) <= available)
            done = self._emit(unit)
            waiting = [each for each in waiting if not any(each is one for one in done)]
            available.update(*map(_makes, done))

    def _reads(self, unit: Node | Region) -> set[str]:
        """Return the names of the nodes that must be computed before a unit. A call also waits for the inputs of the
        maps that follow it, because both may become one kernel."""
        if isinstance(unit, Region):
            return set(unit.inputs())
        tail = self.tails.get(unit.name)
        beside = tail.inputs() if tail is not None else []
        known = (name for name in beside if self.places[name].base != unit.name and self.leaders.get(name) != unit.name)
        leader = self.leaders.get(unit.name)
        return {*unit.sources, *known, *([leader] if leader is not None else [])}

    def _emit(self, unit: Node | Region) -> list[Node | Region]:
        """Write the statements for a unit, and return the units that are now done: this one, and the maps that follow
        it if both are one kernel."""
        if isinstance(unit, Region):
            kernel = self.language.region(self._kernel_name(unit), unit, self.context)
            self._launch(kernel, unit.outputs(self.graph))
        elif unit.kind == "call":
            return self._call_or_launch(unit)
        elif unit.kind == "scan":
            self.steps.append(f"{unit.name} = {self._scan(unit)}")
        elif unit.kind == "view" and self.places[unit.name].base == unit.name:  # a view that strides cannot express
            source, shape = self._tensor(unit.sources[0]), _tuple(unit.shape)
            self.steps.append(f"{unit.name} = {source}.reshape({shape})")
        return [unit]

    def _call_or_launch(self, node: Node) -> list[Node | Region]:
        if node.name in self.joins.done:
            return [node]
        if (part := self.joins.parts.get(node.name)) is not None:
            self._multiply_into(part, node)
            return [node]
        name = self._call_name(node)
        if (tail := self.tails.get(node.name)) is not None:
            kernel = self.language.call(name, node, tail, self.context)
            if kernel is not None:
                self._launch(kernel, tail.outputs(self.graph))
                return [node, tail, *self.language.beside(node, tail, self.context)]
        if (kernel := self.language.call(name, node, None, self.context)) is not None:
            self._launch(kernel, [node.name])
        else:
            self.steps.append(f"{node.name} = {self._call(node)}")
        return [node]

    def _multiply_into(self, part: Part, node: Node) -> None:
        if part.whole not in self.allocated:
            memory = self._empty(self.graph[part.whole].shape, node.dtype)
            zeros = memory.replace("torch.empty", "torch.zeros") if part.whole in self.joins.padded else memory
            self.steps.append(f"{part.whole} = {zeros}")
            self.allocated.add(part.whole)
        # torch's `out=` works only without gradients
        if not self.steps[-1].startswith(NO_GRADIENTS):
            self.steps.append(NO_GRADIENTS)
        left, right = (self._tensor(each) for each in node.sources)
        self.steps[-1] += f"\n    torch.mm({left}, {right}, out={part})"

    def _launch(self, kernel: WrittenKernel, outputs: list[str]) -> None:
        self.kernels.append(kernel)
        memories = dict.fromkeys(self.places[name].base for name in outputs)
        for node in (self.graph[name] for name in memories if name not in self.allocated):
            used = kernel.reuses.get(node.name)
            memory = self._empty(node.shape, node.dtype) if used is None else self._reused(used, node.shape)
            self.steps.append(f"{node.name} = {memory}")
        self.allocated.update(memories)  # a join is allocated when its first piece is written
        self.steps += kernel.steps

    def _empty(self, shape: tuple[int, ...], dtype: str) -> str:
        kind = "" if dtype == "float32" else f", dtype=torch.{dtype}"
        place = "" if self.language.on_host else f", device={self._given()}.device"
        return f"torch.empty({_tuple(shape)}{kind}{place})"

    def _reused(self, name: str, shape: tuple[int, ...]) -> str:
        """Return an expression for a detached alias of a node's memory, which may be overwritten. It is detached
        because torch does not see the write, and its gradients would be wrong."""
        again = "" if self.graph[name].shape == shape else f".view({_tuple(shape)})"
        return f"{name}.detach().contiguous(){again}"

    def _given(self) -> str:
        """Return the expression for one of the inputs or parameters, for example to read its device."""
        return self._tensor(next(node.name for node in self.graph if node.kind in ("input", "parameter")))

    def _unused(self, plain: str) -> str:
        taken = {kernel.name for kernel in self.kernels}
        name, number = plain, 2
        while name in taken:
            name, number = f"{plain}_{number}", number + 1
        return name

    def _call_name(self, node: Node) -> str:
        return self._unused(f"own_{node.function.split('.')[1]}" if "." in node.function else "own")

    def _kernel_name(self, region: Region) -> str:
        origins = list(dict.fromkeys(node.origin for node in region.nodes if node.origin))
        return self._unused("fused_" + "_".join(origins[:3]) + ("_and_more" if len(origins) > 3 else ""))

    def _memory(self, name: str) -> str:
        """Return the Python expression for a node as an argument of a kernel: in row-major memory. The node must own
        its memory."""
        node = self.graph[name]
        if node.kind == "parameter":
            return f"{_path(node.function)}.contiguous()"
        return f"{name}.contiguous()" if node.kind in ("input", "call", "view") else name

    def _elements(self, name: str) -> str:
        base, strides, offset = self.places[name]
        node = self.graph[name]
        whole = strides == contiguous(node.shape) and not offset and node.size == self.graph[base].size
        return self._memory(base) if whole else f"{self._tensor(name)}.contiguous()"

    def _tensor(self, name: str) -> str:
        """Return the Python expression for a node as an argument of torch's operators. Views are written as calls on
        their source."""
        node = self.graph[name]
        if node.kind == "parameter":
            return _path(node.function)
        if node.kind != "view" or self.places[name].base == name:
            return name
        source = self._tensor(node.sources[0])
        if node.function == "permute":
            return f"{source}.permute({_tuple(node.axes)})"
        if node.function == "slice":
            return f"{source}{_sliced(node, self.graph[node.sources[0]].shape)}"
        return f"{source}.reshape({_tuple(node.shape)})"

    def _scan(self, node: Node) -> str:
        """Return a scan as an expression of torch's operators, for languages without kernels for scans."""
        (axis,), mode, reduction = node.axes, node.arguments, REDUCTIONS[node.function]
        value, flip = self._tensor(node.sources[0]), f".flip({axis})" if mode.backwards else ""
        value += flip
        if mode.exclusive:
            padding = [0, 0] * (len(node.shape) - axis)
            padding[-2:] = [1, -1]
            value = f'F.pad({value}, {padding}, value=float("{reduction.nothing}"))'
        values = ".values" if node.function in ("max", "min") else ""
        return f"torch.{reduction.running}({value}, {axis}){values}{flip}"

    def _call(self, node: Node) -> str:
        positional, named = node.arguments
        if node.function == "<built-in function getitem>":
            return f"{self._argument(positional[0])}[{positional[1]}]"
        arguments = [self._argument(each) for each in positional]
        arguments += [f"{key}={self._argument(value)}" for key, value in named.items()]
        return f"{NAMES.get(node.function, f'torch.ops.{node.function}')}({', '.join(arguments)})"

    def _argument(self, value: Any) -> str:
        match value:
            case Ref(name):
                return self._tensor(name)
            case list():
                return f"[{', '.join(map(self._argument, value))}]"
            case tuple():
                return f"({', '.join(map(self._argument, value))},)"
            case float() if value in (float("inf"), float("-inf")):
                return f'float("{value}")'
        if type(value).__name__ == "device":  # the graph was made on the host, but the program may run elsewhere
            return f"{self._given()}.device"
        return repr(value)  # numbers, strings, None, and torch's dtypes and layouts, whose repr is valid source

    # --- text ---------------------------------------------------------------------------------------------------

    def _imports(self) -> str:
        """Return the import lines that the program needs and the problem's source does not have."""
        wanted = {
            "import torch": True,
            "from torch.nn import functional as F": any("F." in step for step in self.steps),
            **dict.fromkeys(self.language.imports, bool(self.kernels)),
        }
        present = self.problem.source.splitlines()
        return "\n".join(line for line, needed in wanted.items() if needed and line not in present)

    def _program(self) -> str:
        inputs = sorted((n for n in self.graph if n.kind == "input"), key=lambda node: node.arguments)
        names = ", ".join(node.name for node in inputs)
        other = " or ".join(f"{node.name}.shape != {_tuple(node.shape)}" for node in inputs) or "False"
        results = [self._result(name) for name in self.graph.outputs]
        returned = self.graph.structure
        for place, result in enumerate(results):
            returned = returned.replace(output(place), result)
        body = [f"if {other}:", f"    return super().forward({names})", *self.steps, f"return {returned}"]
        text = textwrap.indent("\n".join(body), " " * 8)
        return f"class ModelNew(Model):\n    def forward(self, {names}):\n{text}"

    def _result(self, name: str) -> str:
        """Return the expression for an output. An input, a parameter or a view of one is cloned, since an output must
        be new memory."""
        value, base = self._tensor(name), self.graph[self.places[name].base]
        return f"{value}.clone()" if base.kind in ("input", "parameter") else value


def write(problem: Problem, graph: Graph, language: Language, plan: Plan | None = None) -> WrittenProgram:
    """Return a candidate that computes this graph."""
    return _ProgramWriter(problem, graph, language, plan or language.plan()).program()


def unchanged(problem: Problem, reason: str = "") -> str:
    """Return a program whose `ModelNew` is the problem's module, unchanged. It is the answer if the module cannot be
    traced or the platform has no kernel language. `reason` becomes a comment."""
    why = f"# {reason}\n" if reason else ""
    return f"{why}{model_source(problem)}\n\n\nclass ModelNew(Model):\n    pass\n"


def model_source(problem: Problem) -> str:
    """Return the problem's source without the functions that make its inputs."""
    tree = ast.parse(problem.source)
    dropped = {"get_inputs", "get_init_inputs"}
    lines, kept = problem.source.splitlines(), []
    end = 0
    for node in tree.body:
        if not (isinstance(node, ast.FunctionDef) and node.name in dropped):
            kept += lines[end : node.end_lineno]
        end = node.end_lineno or end
    return "\n".join(kept).strip("\n")


def _makes(unit: Node | Region) -> set[str]:
    return unit.names if isinstance(unit, Region) else {unit.name}


def _sliced(node: Node, shape: Shape) -> str:
    """Return the index expression of a slice, such as `[:, 1:7:2]`. torch has no negative steps, so a reversed slice is
    flipped first."""
    (axis,), (start, step), count = node.axes, node.arguments, node.shape[node.axes[0]]
    flip = f".flip({axis})" if step < 0 else ""
    if step < 0:
        start, step = shape[axis] - 1 - start, -step
    if (start, step, count) == (0, 1, shape[axis]):
        return flip
    end = start + (count - 1) * step + 1 if count else start
    return f"{flip}[{':, ' * axis}{start}:{end}{f':{step}' if step != 1 else ''}]"


def _tuple(sizes: tuple[int, ...]) -> str:
    return repr(tuple(sizes))


def _path(dotted: str) -> str:
    """Return the attribute expression for a dotted name: `getattr(self.layers, '0').weight` for layers.0.weight, since
    not every container supports `[0]`."""
    path = "self"
    for part in dotted.split("."):
        is_name = part.isidentifier() and not keyword.iskeyword(part)
        path = f"{path}.{part}" if is_name else f"getattr({path}, {part!r})"
    return path
