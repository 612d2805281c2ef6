"""The whole candidate: the problem's module with another `forward`, and the kernels that it launches.

`ModelNew` inherits the constructor, so its state is the module's own, and inputs of other shapes than those that the
kernels were written for go to the module's own `forward`.
"""

from __future__ import annotations

import ast
import textwrap
from typing import TYPE_CHECKING, Any

from kforge.smith import cpp, definitions, special
from kforge.smith.graph import Ref, contiguous, placed, with_pieces
from kforge.smith.loops import nest
from kforge.smith.plan import Plan
from kforge.smith.regions import Region, partition

if TYPE_CHECKING:
    from kforge.records import Problem
    from kforge.smith.graph import Graph, Node, Shape
    from kforge.smith.loops import Nest

NAMES = {
    "aten.linear.default": "F.linear", "aten.conv1d.default": "F.conv1d", "aten.conv2d.default": "F.conv2d",
    "aten.conv3d.default": "F.conv3d", "aten.matmul.default": "torch.matmul", "aten.mm.default": "torch.mm",
    "aten.bmm.default": "torch.bmm", "aten.addmm.default": "torch.addmm", "aten.cat.default": "torch.cat",
}  # fmt: skip
"""Operators by the names that people call them; others are called as torch registers them."""


class _Writer:
    def __init__(self, problem: Problem, graph: Graph, plan: Plan) -> None:
        self.problem = problem
        self.graph = with_pieces(graph)
        self.plan = plan
        self.places = placed(self.graph)
        self.allocated: set[str] = set()
        self.kernels: list[tuple[str, Nest]] = []
        self.specials: dict[str, str] = {}
        self.steps: list[str] = []

    def text(self) -> str:
        self._order()
        parts = [model_source(self.problem), self._imports(), self._library(), self._program()]
        return "\n\n\n".join(part.strip("\n") for part in parts if part) + "\n"

    # --- forward ------------------------------------------------------------------------------------------------

    def _order(self) -> None:
        """Every unit as soon as what it reads is there."""
        regions = partition(self.graph)
        region_of = {node.name: region for region in regions for node in region.nodes}
        available = {node.name for node in self.graph if node.kind in ("input", "parameter")}
        waiting: list[Node | Region] = []
        for node in self.graph:
            unit = region_of.get(node.name, node)
            if node.name not in available and not any(unit is each for each in waiting):
                waiting.append(unit)
        while waiting:
            unit = next(each for each in waiting if set(_reads(each)) <= available)
            waiting = [each for each in waiting if each is not unit]
            available |= _makes(unit)
            self._emit(unit)

    def _emit(self, unit: Node | Region) -> None:
        if isinstance(unit, Region):
            self._launch(unit)
        elif unit.kind == "call":
            self._call_or_launch(unit)
        elif unit.kind == "view" and self.places[unit.name].base == unit.name:  # one that strides cannot say
            source, shape = self._tensor(unit.sources[0]), _tuple(unit.shape)
            self.steps.append(f"{unit.name} = {source}.reshape({shape})")

    def _call_or_launch(self, node: Node) -> None:
        name = self._unused(f"own_{node.function.split('.')[1]}" if "." in node.function else "own")
        if (text := special.kernel(node, self.graph, name)) is None:
            self.steps.append(f"{node.name} = {self._call(node)}")
            return
        self.specials[name] = text
        base, strides, offset = self.places[node.sources[0]]
        source = self.graph[node.sources[0]]
        plain = strides == contiguous(source.shape) and not offset and source.size == self.graph[base].size
        given = self._memory(base) if plain else f"{self._tensor(source.name)}.contiguous()"
        self._allocate(node)
        self.steps.append(f"library.{name}({given}, {node.name})")

    def _allocate(self, node: Node) -> None:
        """Once: a join is there as soon as its first piece is made."""
        if node.name in self.allocated:
            return
        self.allocated.add(node.name)
        dtype = "" if node.dtype == "float32" else f", dtype=torch.{node.dtype}"
        self.steps.append(f"{node.name} = torch.empty({_tuple(node.shape)}{dtype})")

    def _unused(self, plain: str) -> str:
        taken = {name for name, _ in self.kernels} | set(self.specials)
        name, number = plain, 2
        while name in taken:
            name, number = f"{plain}_{number}", number + 1
        return name

    def _launch(self, region: Region) -> None:
        kernel = nest(region, self.graph, keep_above=self.plan.keep)
        name = self._kernel_name(region)
        self.kernels.append((name, kernel))
        for output in kernel.outputs:
            self._allocate(self.graph[self.places[output].base])
        arguments = ", ".join(self._memory(buffer.base) for buffer in kernel.memories)
        self.steps.append(f"library.{name}({arguments})")

    def _kernel_name(self, region: Region) -> str:
        origins = list(dict.fromkeys(node.origin for node in region.nodes if node.origin))
        return self._unused("fused_" + "_".join(origins[:3]) + ("_and_more" if len(origins) > 3 else ""))

    def _memory(self, name: str) -> str:
        """A node as a kernel takes it: in row-major memory."""
        node = self.graph[name]
        if node.kind == "parameter":
            return f"{_path(node.function)}.contiguous()"
        return f"{name}.contiguous()" if node.kind in ("input", "call", "view") else name

    def _tensor(self, name: str) -> str:
        """A node as torch's operators take it."""
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
        return repr(value)  # numbers, strings, None, and torch's dtypes, devices and layouts, which read as themselves

    # --- text ---------------------------------------------------------------------------------------------------

    def _imports(self) -> str:
        """What the problem's own source does not import already."""
        wanted = {
            "import torch": True,
            "from torch.nn import functional as F": any("F." in step for step in self.steps),
            "from kforge import inline": bool(self.kernels or self.specials),
        }
        present = self.problem.source.splitlines()
        return "\n".join(line for line, needed in wanted.items() if needed and line not in present)

    def _library(self) -> str:
        if not self.kernels and not self.specials:
            return ""
        emitted = [cpp.emit(name, kernel, self.graph, self.plan) for name, kernel in self.kernels]
        texts = "\n".join([*emitted, *self.specials.values()])
        by_hand = [name for name in ("larger", "smaller") if any(f"{name}(" in text for text in self.specials.values())]
        needed = definitions.texts([*by_hand, *(name for _, kernel in self.kernels for name in cpp.helpers_of(kernel))])
        headers = ["algorithm", "cmath", "cstdint", "cstring", "vector"]
        used = [h for h in headers if h in ("cmath", "cstdint") or _marks(h) in needed + texts]
        source = "\n".join([*(f"#include <{header}>" for header in used), needed, texts])
        return f'library = inline.compile(r"""\n{source.strip()}\n""")'

    def _program(self) -> str:
        inputs = sorted((n for n in self.graph if n.kind == "input"), key=lambda node: node.arguments)
        names = ", ".join(node.name for node in inputs)
        other = " or ".join(f"{node.name}.shape != {_tuple(node.shape)}" for node in inputs) or "False"
        results = [self._result(name) for name in self.graph.outputs]
        returned = results[0] if self.graph.structure == "tensor" else ", ".join(results)
        if self.graph.structure == "list":
            returned = f"[{returned}]"
        elif self.graph.structure == "tuple" and len(results) == 1:
            returned += ","
        body = [f"if {other}:", f"    return super().forward({names})", *self.steps, f"return {returned}"]
        text = textwrap.indent("\n".join(body), " " * 8)
        return f"class ModelNew(Model):\n    def forward(self, {names}):\n{text}"

    def _result(self, name: str) -> str:
        """An output must not be an input, or a view of one."""
        value, base = self._tensor(name), self.graph[self.places[name].base]
        return f"{value}.clone()" if base.kind in ("input", "parameter") else value


def write(problem: Problem, graph: Graph, plan: Plan | None = None) -> str:
    """The source text of a candidate that computes this graph."""
    plan = plan or Plan()
    return _Writer(problem, graph, plan).text() if plan.kernels else unchanged(problem)


def unchanged(problem: Problem, reason: str = "") -> str:
    """The module as it is, for what cannot be traced or has no kernel language here."""
    why = f"# {reason}\n" if reason else ""
    return f"{why}{model_source(problem)}\n\n\nclass ModelNew(Model):\n    pass\n"


def model_source(problem: Problem) -> str:
    """The problem's source without what only makes its inputs."""
    tree = ast.parse(problem.source)
    dropped = {"get_inputs", "get_init_inputs"}
    lines, kept = problem.source.splitlines(), []
    end = 0
    for node in tree.body:
        if not (isinstance(node, ast.FunctionDef) and node.name in dropped):
            kept += lines[end : node.end_lineno]
        end = node.end_lineno or end
    return "\n".join(kept).strip("\n")


def _reads(unit: Node | Region) -> list[str]:
    return unit.inputs() if isinstance(unit, Region) else list(unit.sources)


def _makes(unit: Node | Region) -> set[str]:
    return unit.names if isinstance(unit, Region) else {unit.name}


def _sliced(node: Node, shape: Shape) -> str:
    """`[:, 1:7:2]`; torch has no slices with negative steps, but can turn the order around first."""
    (axis,), (start, step), count = node.axes, node.arguments, node.shape[node.axes[0]]
    turned = f".flip({axis})" if step < 0 else ""
    if step < 0:
        start, step = shape[axis] - 1 - start, -step
    if (start, step, count) == (0, 1, shape[axis]):
        return turned
    end = start + (count - 1) * step + 1 if count else start
    return f"{turned}[{':, ' * axis}{start}:{end}{f':{step}' if step != 1 else ''}]"


def _tuple(sizes: tuple[int, ...]) -> str:
    return repr(tuple(sizes))


def _path(dotted: str) -> str:
    """`self.layers[0].weight` of layers.0.weight."""
    return "self" + "".join(f"[{part}]" if part.isdigit() else f".{part}" for part in dotted.split("."))


def _marks(header: str) -> str:
    return {"algorithm": "std::", "cstring": "std::memcpy", "vector": "std::vector"}[header]
