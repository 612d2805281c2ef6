"""Writes kernels with sliding windows: a thread goes down one column of the output, and reads few elements.

A row of the input is read once for all windows that it is part of: these are computed at the same time, in separate
registers. Every thread has one column, because neighbouring windows are not aligned: two columns of one thread would
need two loads that each skip every other element. Where windows are two or four columns apart, that many neighbours do
lie together, and are one load.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kforge.smith.languages.indices import NARROW, block_of
from kforge.smith.languages.triton.statements import INDENT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kforge.smith.ir.windows import Window
    from kforge.smith.languages.triton.tails import Tail

THREADS = 128
ROWS = 16
"""Rows of the output per thread; the thread reads a window's height more."""
STEPS = 8
"""Outputs per thread for signals with one axis: this many loads are in flight."""
PROGRAMS = 1056
"""Fewest programs, eight for each processor of a large device. With fewer, strips are made shorter."""
LOADS = 320
"""Most loads of a thread that are written out one after the other."""
UNDER_WAY = 16
"""Most windows of a column that are computed at the same time."""
KEPT = 64
"""Most weights that are kept in registers."""
VOLUME = 3
"""Number of axes of a volume. Its slices lie beside each other, as its columns do."""


@dataclass(frozen=True)
class Group:
    """Neighbouring elements of a window's row that are read in the same way: `width` at a time, `count` times."""

    first: int
    count: int
    width: int = 1


class SlidingWindow:
    """Writes the body of a kernel. Lanes count the columns of all planes, and the slices of a volume."""

    def __init__(
        self,
        window: Window,
        *,
        other: Window | None = None,
        weights: bool = False,
        bias: bool = False,
        channels: int = 1,
    ) -> None:
        """`other`: a second operation on the same windows."""
        self.window = window
        self.other = other
        self.weights, self.bias, self.channels = weights, bias, channels
        self.rank = len(window.sizes)
        self.walks = self.rank > 1
        self.down, self.across = self.rank - 2, self.rank - 1
        """The axis that a thread walks along, and the axis along which its lanes lie."""
        taps = math.prod(window.window)
        self.kept = taps <= KEPT
        self.overlap = self._overlap() if self.walks and other is None else 1
        self.strip = self._strip() if self.walks else self._steps()
        self.strips = -(-window.outputs[self.down] // self.strip) if self.walks else 1
        self.groups = self._groups()

    # --- shapes ---------------------------------------------------------------------------------------------------

    @property
    def lanes(self) -> int:
        outputs = self.window.outputs
        return self.window.planes * math.prod(outputs) // (outputs[self.down] if self.walks else 1)

    @property
    def block(self) -> int:
        return max(32, min(THREADS, block_of(self.lanes)))

    @property
    def warps(self) -> int:
        return self.block // 32

    @property
    def programs(self) -> int:
        return self.strips * -(-self.lanes // (self.block * (1 if self.walks else self.strip)))

    def _overlap(self) -> int:
        """Return how many windows a row is part of, where computing them at the same time pays; else 1."""
        height, stride = self.window.window[self.down], self.window.stride[self.down]
        found = -(-height // stride)
        beside = math.prod(self.window.window) // height
        shared = self.window.dilation[self.down] == 1 and found <= UNDER_WAY and height * beside <= LOADS
        return found if shared and (self.kept or not self.weights) else 1

    def _strip(self) -> int:
        window, rows = self.window, self.window.outputs[self.down]
        height, stride = window.window[self.down], window.stride[self.down]
        beside = math.prod(window.window) // height

        def fits(strip: int) -> bool:
            new, before = (min(height, stride), max(0, height - stride)) if self.overlap > 1 else (height, 0)
            loads = (strip * new + before) * beside
            programs = -(-rows // strip) * -(-self.lanes // THREADS)
            return loads <= LOADS and programs >= PROGRAMS

        strip = min(ROWS, rows)
        while strip > 1 and not fits(strip):
            strip = -(-strip // 2)
        return -(-rows // -(-rows // strip))  # strips of equal length

    def _steps(self) -> int:
        """Return the number of outputs per thread for a signal with one axis."""
        steps = STEPS
        while steps > 1 and (steps * self.window.window[0] > LOADS or self.lanes < PROGRAMS * THREADS * steps):
            steps //= 2
        return steps

    def _groups(self) -> list[Group]:
        """Return how a window's row is read: in whole strides where they are aligned."""
        window, axis = self.window, self.across
        first, count, stride = -window.padding[axis], window.window[axis], window.stride[axis]
        begin = -(-first // stride) * stride
        whole = (first + count - begin) // stride
        aligned = stride in (2, 4) and window.dilation[axis] == 1 and window.sizes[axis] % stride == 0
        if self.weights or not aligned or whole < 1:
            return [Group(0, count)]
        end = begin + whole * stride
        groups = [Group(0, begin - first), Group(begin - first, whole, stride), Group(end - first, first + count - end)]
        return [group for group in groups if group.count]

    # --- text -----------------------------------------------------------------------------------------------------

    def lines(self, after: Tail) -> list[str]:
        lines = list(self._lanes()) if self.walks else []
        if self.weights and self.walks:
            lines += self._weights()
        names = [f"window{number}" for number in range(self.overlap)]
        nothing = f"tl.full([{self.block}], {_nothing(self.window)}, tl.float32)"
        if self.overlap > 1:
            lines += [f"{name} = {nothing}" for name in names]
        lines += [
            "results = ()",
            *(["others = ()"] if self.other else []),
            f"for step in tl.static_range({self.strip + self.overlap - 1}):",
        ]
        lines += [INDENT + line for line in self._step(names, nothing)]
        # a compiler moves no load before a store, which could change what is loaded
        lines.append(f"for step in tl.static_range({self.strip}):  # all loads come before the first store")
        lines += [INDENT + line for line in self._finished(after)]
        return lines

    def _step(self, names: list[str], nothing: str) -> Iterator[str]:
        """Yield the code for one row of the output, with the rows of the input that were not read before."""
        window, late = self.window, self.overlap - 1
        if self.walks:
            yield f"row = top + step{f' - {late}' if late else ''}"
        else:
            yield from self._lanes()
            yield from self._weights() if self.weights else ()
        if late:
            height, stride = window.window[self.down], window.stride[self.down]
            for place in range(height - stride, height):
                met = {number: place - number * stride for number in range(self.overlap)}
                before = -(-(late * stride - place) // stride)  # steps at which this row belongs to no window
                lines = self._row(place, {names[number]: at for number, at in met.items() if at >= 0})
                if before > 0:
                    yield f"if step >= {before}:"
                yield from ((INDENT if before > 0 else "") + line for line in lines)
            yield f"if step >= {late}:"
            yield f"{INDENT}results = results + (window0,)"
            yield f"{', '.join(names)} = {', '.join([*names[1:], nothing])}"
            return
        yield f"window0 = {nothing}"
        if self.other:
            yield f"other0 = tl.full([{self.block}], {_nothing(self.other)}, tl.float32)"
        if self.walks:
            yield f"for down in {self._loop()}({window.window[self.down]}):"
        lines = self._row("down" if self.walks else 0, {"window0": "down" if self.walks else 0})
        yield from ((INDENT if self.walks else "") + line for line in lines)
        yield "results = results + (window0,)"
        if self.other:
            yield "others = others + (other0,)"

    def _lanes(self) -> Iterator[str]:
        """Yield the lines that say which columns a program has."""
        window, program = self.window, "tl.program_id(0)"
        if self.walks and self.strips > 1:
            yield f"top = {program} % {self.strips} * {self.strip}"
            program = f"({program} // {self.strips})"
        elif self.walks:
            yield "top = 0"
        else:
            program = f"({program} * {self.strip} + step)"
        program += ".to(tl.int64)" if self.lanes >= NARROW - 2**20 else ""
        yield f"lane = {program} * {self.block} + tl.arange(0, {self.block})"
        if self._is_ragged:
            yield f"inside = lane < {self.lanes}"
            yield f"lane = tl.minimum(lane, {self.lanes - 1})"
        below = window.outputs[self.across]
        wide = ".to(tl.int64)" if self._is_wide else ""
        beside = window.outputs[0] if self.rank == VOLUME else 1
        yield f"plane = {f'(lane // {beside * below})' if wide else f'lane // {beside * below}'}{wide}"
        if self.rank == VOLUME:
            yield f"slice = lane // {below} % {beside}"
        yield f"column = lane % {below}"
        if self.weights:
            yield f"channel = plane % {self.channels}"

    def _weights(self) -> Iterator[str]:
        if self.kept:
            taps = math.prod(self.window.window)
            yield "weights = ()"
            yield f"for tap in tl.static_range({taps}):"
            yield f"{INDENT}weights = weights + (tl.load(weight + channel * {taps} + tap),)"
        if self.bias and self.walks:
            yield "own_bias = tl.load(bias + channel)"

    def _row(self, place: int | str, met: dict[str, int | str]) -> Iterator[str]:
        """Yield the code for one row of the input, at `place` rows below the first of `row`'s window. `met`: by window,
        which of its rows this is."""
        window, depth = self.window, ""
        if self.walks:
            yield f"from{self.down} = {self._from('row', self.down, place)}"
        shared = not self.weights and len(met) > 1  # the row's result is the same for all windows
        if shared:
            yield f"line = tl.full([{self.block}], {_nothing(self.window)}, tl.float32)"
        if self.rank == VOLUME:
            yield f"for deep in {self._loop()}({window.window[0]}):"
            depth = INDENT
            yield f"{depth}from0 = {self._from('slice', 0, 'deep')}"
        for group in self.groups:
            inner, at = depth, str(group.first)
            if group.count > 1:
                yield f"{depth}for across in {self._loop()}({group.count}):"
                inner += INDENT
                at = f"across * {group.width}" if group.width > 1 else "across"
                at += f" + {group.first}" if group.first else ""
            yield from (inner + line for line in self._read(group, int(at) if at.isdigit() else at))
            for name in ["line"] if shared else met:
                weight = self._weight(met[name], at) if self.weights else ""
                yield inner + _combined(self.window, name, "value", weight)
            if self.other:
                yield inner + _combined(self.other, "other0", "other" if group.width > 1 else "value")
        if shared:
            yield from (_combined(self.window, name, "line") for name in met)

    def _read(self, group: Group, at: int | str) -> Iterator[str]:
        """Yield the load of a group's elements, combined to one value per lane."""
        window, turned = self.window, "[:, None]" if group.width > 1 else ""
        terms, masks = [f"plane * {math.prod(window.sizes)}"], []
        for axis, size in enumerate(window.sizes):
            below = math.prod(window.sizes[axis + 1 :])
            terms.append(f"from{axis} * {below}" if below > 1 else f"from{axis}")
            if self._leaves(axis):
                inside = f"(from{axis} >= 0) & (from{axis} < {size})"
                is_same = self.walks and axis == self.down  # the same for all lanes
                masks.append(f"({inside}){turned}" if turned and not is_same else inside)
        yield f"from{self.across} = {self._from('column', self.across, at)}"
        address = " + ".join(terms)
        if group.width > 1:
            address = f"({address})[:, None] + tl.arange(0, {group.width})[None, :]"
        mask = f", mask={' & '.join(masks)}, other={_nothing(self.window)}" if masks else ""
        load = f"tl.load(x + {address}{mask})"
        if group.width == 1:
            yield f"value = {load}"
            return
        yield f"values = {load}"
        for name, each in (("value", window), ("other", self.other)):
            if each is not None:
                yield f"{name} = {'tl.reduce(values, 1, larger)' if each.is_maximum else 'tl.sum(values, axis=1)'}"

    def _from(self, index: str, axis: int, at: int | str) -> str:
        """Return the coordinate of a window's element along an axis."""
        window = self.window
        stride, dilation, padding = window.stride[axis], window.dilation[axis], window.padding[axis]
        begin = index if stride == 1 else f"{index} * {stride}"
        if isinstance(at, int):
            shift = at * dilation - padding
            return f"{begin} {'+' if shift > 0 else '-'} {abs(shift)}" if shift else begin
        step = at if dilation == 1 else f"({at}) * {dilation}"
        return f"{begin} + {step} - {padding}" if padding else f"{begin} + {step}"

    def _weight(self, row: int | str, at: int | str) -> str:
        """Return the weight of a window's element: `deep`, in this row, at this column."""
        window = self.window
        terms = [f"deep * {math.prod(window.window[1:])}"] if self.rank == VOLUME else []
        width = window.window[self.across]
        if self.walks:
            terms.append(f"{row * width}" if isinstance(row, int) else f"{row} * {width}")
        terms.append(str(at))
        index = " + ".join(term for term in terms if term != "0") or "0"
        return f"weights[{index}]" if self.kept else f"tl.load(weight + channel * {math.prod(window.window)} + {index})"

    def _finished(self, after: Tail) -> Iterator[str]:
        """Yield the code that finishes a complete window."""
        window = self.window
        if self.walks:
            yield "row = top + step"
        else:
            yield from self._lanes()
        yield "result = results[step]"
        if self.bias:
            yield "result += own_bias" if self.walks else "result += tl.load(bias + channel)"
        elif not self.weights and not window.is_maximum:
            yield f"result = result / {self._count()}"
        if self.other:
            yield f"other = others[step]{'' if self.other.is_maximum else f' / {self._count()}'}"
        terms = ["lane"]
        mask = "inside" if self._is_ragged else ""
        if self.walks:
            below = window.outputs[self.across]
            terms = [f"plane * {math.prod(window.outputs)}", f"row * {below}" if below > 1 else "row", "column"]
            if self.rank == VOLUME:
                terms.insert(1, f"slice * {math.prod(window.outputs[1:])}")
            if self.strips * self.strip > window.outputs[self.down]:
                yield f"within = {'inside & ' if mask else ''}(row < {window.outputs[self.down]})"
                mask = "within"
        yield f"i = {' + '.join(terms)}"
        yield from after.flat("result", mask, "other")

    def _count(self) -> str:
        """Return how many elements of a window an average counts."""
        window = self.window
        if window.counts_padding or not any(window.padding):
            return f"{math.prod(window.window)}.0"
        names = ["slice", "row", "column"] if self.rank == VOLUME else ["row", "column"] if self.walks else ["column"]
        counts = (
            f"(tl.minimum({self._from(name, axis, window.window[axis])}, {window.sizes[axis]})"
            f" - tl.maximum({self._from(name, axis, 0)}, 0))"
            for axis, name in enumerate(names)
        )
        return f"({' * '.join(counts)}).to(tl.float32)"

    # --- facts ----------------------------------------------------------------------------------------------------

    @property
    def _is_ragged(self) -> bool:
        """Whether some lanes of the last program have nothing to do."""
        return self.lanes % (self.block * (1 if self.walks else self.strip)) > 0

    @property
    def _is_wide(self) -> bool:
        window = self.window
        return window.planes * max(math.prod(window.outputs), math.prod(window.sizes)) >= NARROW - 2**20

    def _loop(self) -> str:
        return "tl.static_range" if math.prod(self.window.window) <= LOADS else "range"

    def _leaves(self, axis: int) -> bool:
        """Return whether some window reaches beyond the plane along this axis."""
        window = self.window
        rows = self.strips * self.strip if axis == self.down and self.walks else window.outputs[axis]
        last = (rows - 1) * window.stride[axis] - window.padding[axis]
        return (
            window.padding[axis] > 0 or last + (window.window[axis] - 1) * window.dilation[axis] >= window.sizes[axis]
        )


def _nothing(window: Window) -> str:
    return 'float("-inf")' if window.is_maximum else "0.0"


def _combined(window: Window, into: str, value: str, weight: str = "") -> str:
    if window.is_maximum:
        return f"{into} = larger({into}, {value})"
    return f"{into} += {value} * {weight}" if weight else f"{into} += {value}"
