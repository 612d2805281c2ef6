"""Writes kernels for regions with reductions in Triton.

    whole    a program instance holds all elements of its places in registers: memory is read once
    looped   a program instance goes through the elements in steps, once per sweep; after the first sweep, most of
             them are in the cache
    split    few places with many elements: several instances share each place. They take its steps in turn, so that
             reads at one time are close together in memory. They store partial results, which the next kernel
             combines, always in the same order
    relayed  two sweeps over much memory: instances of both sweeps alternate in one kernel. Those of the second sweep
             follow so soon that the cache still has the elements

`partition.py` chooses between these, and the sizes of blocks. If a sweep depends on the one before, as in a softmax,
both are merged into one pass if possible (`joint_sweeps.py`).

Sums are added up per lane and then in pairs, so that rounding errors do not grow with the number of elements.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kforge.smith.fusion.loops import elements_needed
from kforge.smith.languages.indices import block_of, summed
from kforge.smith.languages.triton.functions import REDUCTIONS
from kforge.smith.languages.triton.reduction.blocks import PROGRAMS, Block
from kforge.smith.languages.triton.reduction.joint_sweeps import LOWEST
from kforge.smith.languages.triton.reduction.partition import cut, of_places
from kforge.smith.languages.triton.statements import Statements, launch, parameters

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kforge.smith.fusion.loops import Nest
    from kforge.smith.ir.graph import Graph, Node
    from kforge.smith.languages.triton.plan import TritonPlan
    from kforge.smith.languages.triton.reduction.joint_sweeps import Joint

AHEAD = PROGRAMS // 2
"""Number of program instances of the first sweep that run at the same time. Instances of the second sweep follow
those of the first at a distance of this number plus the number of parts of a place."""


class ReductionEmitter:
    """Writes the kernels of one loop nest with reductions: their source (`texts`) and the statements that launch them
    (`launches`)."""

    def __init__(self, name: str, nest: Nest, graph: Graph, plan: TritonPlan, given: list[str]) -> None:
        self.name = name
        self.given = given
        self.graph = graph
        self.block = Block(nest)
        self.place, self.i = self.block.place, self.block.i
        # values that a later sweep needs are computed again: arithmetic is cheap here
        self.nest, self.joints, self.shape = cut(replace(nest, kept=()), self.block, plan)
        if self.block.rows and self.shape.places == 1:
            self.block.of_one_place()
        self.reductions = [node for sweep in nest.sweeps for node in sweep.reductions]
        self.texts: list[str] = []
        self.launches: list[str] = []
        if self.shape.relayed:
            self._relay()
        elif self.shape.parts > 1:
            self._split()
        else:
            self._alone()

    @property
    def parts_size(self) -> int:
        """Number of partial results that kernels, or instances of one kernel, pass to each other. 0 if there are
        none."""
        return len(self.reductions) * self.place.size * self.shape.parts if self._between() else 0

    @property
    def counters(self) -> int:
        """Number of counters by which instances of a relayed kernel wait for others. The caller must set them to zero.
        0 if none are needed."""
        return self.block.programs(self.shape.places) if self.shape.relayed else 0

    def _between(self) -> list[str]:
        """Return the names of the arguments for partial results and counters."""
        return ["parts", "ready"] if self.shape.relayed else ["parts"] if self.shape.parts > 1 else []

    # --- one kernel -----------------------------------------------------------------------------------------------

    def _alone(self) -> None:
        body = self._begun(1)
        body.compute(self.nest.before)
        body.store(self.nest.before)
        step = self.shape.step
        for number, sweep in enumerate(self.nest.sweeps):
            if self.shape.whole:
                body.compute(sweep.elements)
                body.store(sweep.elements)
                self._reduce_block(body, sweep.reductions)
            else:
                self._loop(body, number, "0", step)
                self._reduce_lanes(body, sweep.reductions, "0", step)
            body.compute(sweep.after)
            body.store((*sweep.reductions, *sweep.after))
        self._finish(self.name, self.nest.title, body, 1)

    def _begun(self, parts: int) -> Statements:
        """Return a new kernel body with its index variables, and masks if a block reaches beyond the end."""
        width, step = self.shape.places, self.shape.step
        masks = {}
        if self.place.size % width:
            masks["place"] = f"(place < {self.place.size})"
        if self.i.size % step:
            masks["i"] = f"(i < {self.i.size})"
        body = Statements(self.graph, self.nest, (self.place, self.i), masks)
        if not self.shape.relayed:
            for line in self.block.places_of(width, parts):
                body.say(line)
        if self.shape.whole:
            body.say(f"i = tl.arange(0, {step}){self.block.along_i}")
        return body

    def _along(self, line: str) -> str:
        """Return a line that reduces a block, adapted to blocks with one axis, for which the result is a scalar."""
        return line.replace(", keep_dims=True", "") if self.block.alone else line

    def _reduce_block(self, body: Statements, reductions: Iterable[Node]) -> None:
        for node in reductions:
            reduction, value = REDUCTIONS[node.function], body.read(node.sources[0])
            if mask := body.masks.get("i"):
                value = f"tl.where({mask}, {value}, {reduction.start})"
            body.say(self._along(f"{node.name} = {reduction.along.format(value, self.block.axis)}"))
            body.values[node.name] = node.name

    # --- loops ----------------------------------------------------------------------------------------------------

    def _loop(self, body: Statements, number: int, begin: str, stride: int) -> None:
        """Write one sweep in steps that are `stride` elements apart. Each lane keeps running values of its own."""
        sweep = self.nest.sweeps[number]
        step = self.shape.step
        block = self.block.shape(self.shape.places, step)
        firsts = {joint.first.name: joint for joint in self._joints_of(sweep.reductions)}
        for node in sweep.reductions:
            is_running = node.name in firsts and node.function == "max"
            begun = LOWEST if is_running else REDUCTIONS[node.function].start
            body.say(f"{node.name}_lanes = tl.full({block}, {begun}, tl.float32)")
        for node in (node for joint in firsts.values() for node in joint.weighted):
            body.say(f"{node.name}_lost = tl.full({block}, 0.0, tl.float32)")
        self._read_places(body, number)
        last = number == len(self.nest.sweeps) - 1
        # the next sweep reads the same elements again; after the last sweep nothing reads them
        hint = "" if len(self.nest.sweeps) == 1 else f', eviction_policy="evict_{"first" if last else "last"}"'
        end = self.i.size
        if "i" in body.masks and stride == step:  # only the rest after whole steps needs a mask
            end -= end % step
        body.say(f"for start in range({begin}, {end}, {stride}):")
        self._step(body.nested(hint, () if end == self.i.size else ("i",)), number, stride, firsts)
        if end < self.i.size:
            body.say(f"start = {end}  # the rest, less than a whole step")
            self._step(body.beside(hint), number, stride, firsts)

    def _step(self, inner: Statements, number: int, stride: int, firsts: dict[str, Joint]) -> None:
        """Write one step: the elements from `start` on, and the update of the running values."""
        sweep = self.nest.sweeps[number]
        inner.say(f"i = (start + tl.arange(0, {self.shape.step})){self.block.along_i}")
        needed = elements_needed(self.nest, number)
        inner.compute(needed)
        own = {node.name for node in sweep.elements}
        inner.store(node for node in needed if node.name in own)
        for node in sweep.reductions:
            if node.name in self.joints:
                continue
            reduction, value, mask = REDUCTIONS[node.function], inner.read(node.sources[0]), inner.masks.get("i", "")
            if node.name in firsts:
                joint = firsts[node.name]
                factors = [inner.read(factor) if factor else "" for factor in joint.factors]
                for line in joint.lanes(value, factors, mask, stride):
                    inner.say(line)
                continue
            if mask:
                value = f"tl.where({mask}, {value}, {reduction.start})"
            inner.say(f"{node.name}_lanes = {reduction.combine.format(f'{node.name}_lanes', value)}")

    def _read_places(self, body: Statements, number: int) -> None:
        """Write, before a loop, the loads of values that do not change within the loop."""
        for node in elements_needed(self.nest, number):
            for source in node.sources:
                if any(b.name == source and not self.i.moves(b.steps) for b in self.nest.buffers):
                    body.read(source)

    def _reduce_lanes(self, body: Statements, reductions: Iterable[Node], begin: str, stride: int) -> None:
        step, reductions = self.shape.step, list(reductions)
        counts, total = str(float(self.i.size // stride)), str(float(self.i.size // stride * step))
        means = [joint for joint in self._joints_of(reductions) if joint.kind == "apart"]
        if means and self.i.size % stride:
            lane = summed("" if begin == "0" else begin, f"tl.arange(0, {step}){self.block.along_i}")
            counts, total = "counts", self._elements_of("part") if stride > step else str(self.i.size)
            body.say(f"counts = (({self.i.size + stride - 1} - ({lane})) // {stride}).to(tl.float32)")
        for joint in means:  # the lanes hold means: turn them into sums
            body.say(f"{joint.first.name}_lanes = {joint.first.name}_lanes * {counts}")
        self._put_together(body, reductions, "lanes", counts, total)

    def _joints_of(self, reductions: Iterable[Node]) -> list[Joint]:
        found = {self.joints[n.name].first.name: self.joints[n.name] for n in reductions if n.name in self.joints}
        return list(found.values())

    def _put_together(self, body: Statements, reductions: Iterable[Node], parts: str, counts: str, total: str) -> None:
        """Write the lines that combine partial results into reductions. `parts` is the suffix of the variables
        that hold them. Each stands for `counts` elements, and all together for `total`."""
        reductions = list(reductions)
        joints = self._joints_of(reductions)
        taken = {name for joint in joints for name in (joint.first.name, *(n.name for n in joint.nodes))}
        for joint in joints:
            for line in joint.together(parts, counts, total, self.block.axis):
                body.say(self._along(line))
        for node in reductions:
            if node.name not in taken:
                along = REDUCTIONS[node.function].along.format(f"{node.name}_{parts}", self.block.axis)
                body.say(self._along(f"{node.name} = {along}"))
            body.values[node.name] = node.name

    # --- several kernels ------------------------------------------------------------------------------------------

    def _elements_of(self, part: str) -> str:
        """Return an expression for the number of elements of a part: whole steps, and for one part the incomplete step
        at the end."""
        full, rest = divmod(self.i.size, self.shape.step)
        parts = self.shape.parts
        last = f"tl.where({part} == {full % parts}, {rest}, 0)" if rest else ""
        return f"({summed(f'({full + parts - 1} - {part}) // {parts} * {self.shape.step}', last)})"

    def _split(self) -> None:
        """Write one kernel per sweep, and a last kernel if values per place are outputs."""
        sweeps = self.nest.sweeps
        for number in range(len(sweeps)):
            body = self._begun(self.shape.parts)
            self._part_of_sweep(body, number)
            name = f"{self.name}_sweep{number + 1}"
            self._finish(name, f"{self.nest.title}, sweep {number + 1} of {len(sweeps)}", body, self.shape.parts)
        if any(node.name in self.nest.outputs for node in of_places(self.nest)):
            body = self._begun(1)
            self._known_so_far(body, len(sweeps))
            body.store(of_places(self.nest))
            self._finish(f"{self.name}_end", f"{self.nest.title}, put together", body, 1)

    def _part_of_sweep(self, body: Statements, number: int) -> None:
        """Write the part of a sweep that one program instance does, and store its partial results."""
        self._known_so_far(body, number)
        begin, stride = f"part * {self.shape.step}", self.shape.parts * self.shape.step
        reductions = self.nest.sweeps[number].reductions
        self._loop(body, number, begin, stride)
        self._reduce_lanes(body, reductions, begin, stride)
        for node in reductions:
            mask = f", mask={body.masks['place']}" if "place" in body.masks else ""
            body.say(f"tl.store(parts + {self._part_at(node, 'part')}, {node.name}{mask})")

    def _known_so_far(self, body: Statements, number: int) -> None:
        """Write the values per place that are known after this many sweeps, combined from their partial results."""
        body.compute(self.nest.before)
        parts = block_of(self.shape.parts)
        each = f"tl.arange(0, {parts}){self.block.along_i}"
        masks = [body.masks["place"]] if "place" in body.masks else []
        masks += [f"({each} < {self.shape.parts})"] if parts != self.shape.parts else []
        # other instances of this kernel have just written them, so the L1 cache must be bypassed
        fresh = ', cache_modifier=".cg"' if self.shape.relayed else ""
        for sweep in self.nest.sweeps[:number]:
            for node in sweep.reductions:
                start = REDUCTIONS[node.function].start
                mask = f", mask={' & '.join(masks)}, other={start}" if masks else ""
                body.say(f"{node.name}_parts = tl.load(parts + {self._part_at(node, each)}{mask}{fresh})")
            counts = str(float(self.i.size // self.shape.parts))
            is_even = parts == self.shape.parts and self.i.size % (parts * self.shape.step) == 0
            if not is_even and any(joint.kind == "apart" for joint in self._joints_of(sweep.reductions)):
                body.say(f"each = {each}")
                own = self._elements_of("each")
                own = own if parts == self.shape.parts else f"tl.where(each < {self.shape.parts}, {own}, 0)"
                body.say(f"counts = {own}.to(tl.float32)")
                counts = "counts"
            self._put_together(body, sweep.reductions, "parts", counts, str(float(self.i.size)))
            body.compute(sweep.after)

    # --- one kernel of two sweeps ---------------------------------------------------------------------------------

    def _relay(self) -> None:
        """Write one kernel for two sweeps. Its program instances come in pairs: one of the first sweep, and one of the
        second sweep for an earlier part.

        No instance waits for one with a higher number, so the kernel cannot deadlock.
        """
        shape, parts = self.shape, self.shape.parts
        blocks = self.block.programs(shape.places)
        behind = parts + AHEAD
        body = self._begun(parts)
        body.say("turn = tl.program_id(0) // 2")
        for number in range(2):
            turn = "turn" if number == 0 else f"(turn - {behind})"
            within = f"turn < {blocks * parts}" if number == 0 else f"turn >= {behind}"
            body.say(f"if (tl.program_id(0) % 2 == {number}) & ({within}):")
            inner = body.nested()
            inner.say(f"part = {turn} % {parts}")
            inner.say(f"group = {turn} // {parts}")
            inner.say(f"place = {self.block.places_in(f'group{self.block.wide}', shape.places)}")
            if number == 1:
                inner.say('done = tl.atomic_add(ready + group, 0, sem="acquire")')
                inner.say(f"while done < {parts}:")
                inner.nested().say('done = tl.atomic_add(ready + group, 0, sem="acquire")')
                inner.say("tl.debug_barrier()")
            self._part_of_sweep(inner, number)
            if number == 0:
                inner.say("tl.debug_barrier()  # all threads have stored their results before the count goes up")
                inner.say('tl.atomic_add(ready + group, 1, sem="release")')
        said = f"{self.nest.title}, two sweeps whose program instances alternate"
        self._finish(self.name, said, body, 1, 2 * (blocks * parts + behind))

    def _part_at(self, node: Node, part: str) -> str:
        return self.block.part_at(self.reductions.index(node), self.shape.parts, part)

    def _finish(self, name: str, said: str, body: Statements, programs_of_a_place: int, programs: int = 0) -> None:
        between = self._between()
        given = ", ".join([parameters(self.nest), *between])
        self.texts.append(f"# {said}\n@triton.jit\ndef {name}({given}):\n" + "\n".join(body.lines) + "\n")
        programs = programs or self.block.programs(self.shape.places) * programs_of_a_place
        self.launches.append(launch(name, [programs], [*self.given, *between], self.shape.warps))
