"""Writes the body of kernels with sliding windows. A thread goes down one column of the output, and reads each input
row once for all windows that contain it.

`strips.py` divides the work among threads.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kforge.smith.languages.indices import NARROW
from kforge.smith.languages.triton.pooling.strips import VOLUME, Strips
from kforge.smith.languages.triton.statements import INDENT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kforge.smith.ir.windows import Window
    from kforge.smith.languages.triton.pooling.strips import Group
    from kforge.smith.languages.triton.tails import Tail


class SlidingWindow:
    """Writes the body of one kernel with sliding windows."""

    def __init__(
        self,
        window: Window,
        *,
        other: Window | None = None,
        weights: bool = False,
        bias: bool = False,
        channels: int = 1,
    ) -> None:
        """`other` is a second pooling over the same windows. `weights` and `bias` say whether the kernel is a
        convolution, and whether the convolution has a bias."""
        self.window = window
        self.other = other
        self.weights, self.bias, self.channels = weights, bias, channels
        self.work = Strips(window, alone=other is None, weights=weights)

    def lines(self, after: Tail) -> list[str]:
        lines = list(self._lanes()) if self.work.walks else []
        if self.weights and self.work.walks:
            lines += self._weights()
        names = [f"window{number}" for number in range(self.work.overlap)]
        nothing = f"tl.full([{self.work.block}], {_nothing(self.window)}, tl.float32)"
        if self.work.overlap > 1:
            lines += [f"{name} = {nothing}" for name in names]
        lines += [
            "results = ()",
            *(["others = ()"] if self.other else []),
            f"for step in tl.static_range({self.work.strip + self.work.overlap - 1}):",
        ]
        lines += [INDENT + line for line in self._step(names, nothing)]
        # the compiler moves no load before an earlier store, which could change the loaded elements
        lines.append(f"for step in tl.static_range({self.work.strip}):  # all loads are before the first store")
        lines += [INDENT + line for line in self._finished(after)]
        return lines

    def _step(self, names: list[str], nothing: str) -> Iterator[str]:
        """Yield the lines for one output row. They read the input rows that were not read for earlier output rows."""
        window, late = self.window, self.work.overlap - 1
        if self.work.walks:
            yield f"row = top + step{f' - {late}' if late else ''}"
        else:
            yield from self._lanes()
            yield from self._weights() if self.weights else ()
        if late:
            height, stride = window.kernel_size[self.work.down], window.stride[self.work.down]
            for place in range(height - stride, height):
                met = {number: place - number * stride for number in range(self.work.overlap)}
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
            yield f"other0 = tl.full([{self.work.block}], {_nothing(self.other)}, tl.float32)"
        if self.work.walks:
            yield f"for down in {self._loop()}({window.kernel_size[self.work.down]}):"
        lines = self._row("down" if self.work.walks else 0, {"window0": "down" if self.work.walks else 0})
        yield from ((INDENT if self.work.walks else "") + line for line in lines)
        yield "results = results + (window0,)"
        if self.other:
            yield "others = others + (other0,)"

    def _lanes(self) -> Iterator[str]:
        """Yield the lines that compute which columns a program instance processes."""
        window, program = self.window, "tl.program_id(0)"
        if self.work.walks and self.work.strips > 1:
            yield f"top = {program} % {self.work.strips} * {self.work.strip}"
            program = f"({program} // {self.work.strips})"
        elif self.work.walks:
            yield "top = 0"
        else:
            program = f"({program} * {self.work.strip} + step)"
        program += ".to(tl.int64)" if self.work.lanes >= NARROW - 2**20 else ""
        yield f"lane = {program} * {self.work.block} + tl.arange(0, {self.work.block})"
        if self.work.is_ragged:
            yield f"inside = lane < {self.work.lanes}"
            yield f"lane = tl.minimum(lane, {self.work.lanes - 1})"
        below = window.outputs[self.work.across]
        wide = ".to(tl.int64)" if self.work.is_wide else ""
        beside = window.outputs[0] if self.work.rank == VOLUME else 1
        yield f"plane = {f'(lane // {beside * below})' if wide else f'lane // {beside * below}'}{wide}"
        if self.work.rank == VOLUME:
            yield f"slice = lane // {below} % {beside}"
        yield f"column = lane % {below}"
        if self.weights:
            yield f"channel = plane % {self.channels}"

    def _weights(self) -> Iterator[str]:
        if self.work.kept:
            taps = math.prod(self.window.kernel_size)
            yield "weights = ()"
            yield f"for tap in tl.static_range({taps}):"
            yield f"{INDENT}weights = weights + (tl.load(weight + channel * {taps} + tap),)"
        if self.bias and self.work.walks:
            yield "own_bias = tl.load(bias + channel)"

    def _row(self, place: int | str, met: dict[str, int | str]) -> Iterator[str]:
        """Yield the lines for one input row, `place` rows below the first row of the window of the output row `row`.

        `met` has the windows that contain this input row, each with the index of the row within that window.
        """
        window, depth = self.window, ""
        if self.work.walks:
            yield f"from{self.work.down} = {self._from('row', self.work.down, place)}"
        shared = not self.weights and len(met) > 1  # the row's result is the same for all windows
        if shared:
            yield f"line = tl.full([{self.work.block}], {_nothing(self.window)}, tl.float32)"
        if self.work.rank == VOLUME:
            yield f"for deep in {self._loop()}({window.kernel_size[0]}):"
            depth = INDENT
            yield f"{depth}from0 = {self._from('slice', 0, 'deep')}"
        for group in self.work.groups:
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
        """Yield the lines that load the elements of a group, combined to one value per lane."""
        window, as_column = self.window, "[:, None]" if group.width > 1 else ""
        terms, masks = [f"plane * {math.prod(window.sizes)}"], []
        for axis, size in enumerate(window.sizes):
            below = math.prod(window.sizes[axis + 1 :])
            terms.append(f"from{axis} * {below}" if below > 1 else f"from{axis}")
            if self.work.leaves(axis):
                inside = f"(from{axis} >= 0) & (from{axis} < {size})"
                is_same = self.work.walks and axis == self.work.down  # the same for all lanes
                masks.append(f"({inside}){as_column}" if as_column and not is_same else inside)
        yield f"from{self.work.across} = {self._from('column', self.work.across, at)}"
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
        """Return the expression for the input coordinate, along an axis, of a window's element."""
        window = self.window
        stride, dilation, padding = window.stride[axis], window.dilation[axis], window.padding[axis]
        begin = index if stride == 1 else f"{index} * {stride}"
        if isinstance(at, int):
            shift = at * dilation - padding
            return f"{begin} {'+' if shift > 0 else '-'} {abs(shift)}" if shift else begin
        step = at if dilation == 1 else f"({at}) * {dilation}"
        return f"{begin} + {step} - {padding}" if padding else f"{begin} + {step}"

    def _weight(self, row: int | str, at: int | str) -> str:
        """Return the expression for the weight of a window's element in this row and column."""
        window = self.window
        terms = [f"deep * {math.prod(window.kernel_size[1:])}"] if self.work.rank == VOLUME else []
        width = window.kernel_size[self.work.across]
        if self.work.walks:
            terms.append(f"{row * width}" if isinstance(row, int) else f"{row} * {width}")
        terms.append(str(at))
        index = " + ".join(term for term in terms if term != "0") or "0"
        if self.work.kept:
            return f"weights[{index}]"
        return f"tl.load(weight + channel * {math.prod(window.kernel_size)} + {index})"

    def _finished(self, after: Tail) -> Iterator[str]:
        """Yield the lines that finish a window: bias or division, the tail, and the store."""
        window = self.window
        if self.work.walks:
            yield "row = top + step"
        else:
            yield from self._lanes()
        yield "result = results[step]"
        if self.bias:
            yield "result += own_bias" if self.work.walks else "result += tl.load(bias + channel)"
        elif not self.weights and not window.is_maximum:
            yield f"result = result / {self._count()}"
        if self.other:
            yield f"other = others[step]{'' if self.other.is_maximum else f' / {self._count()}'}"
        terms = ["lane"]
        mask = "inside" if self.work.is_ragged else ""
        if self.work.walks:
            below = window.outputs[self.work.across]
            terms = [f"plane * {math.prod(window.outputs)}", f"row * {below}" if below > 1 else "row", "column"]
            if self.work.rank == VOLUME:
                terms.insert(1, f"slice * {math.prod(window.outputs[1:])}")
            if self.work.strips * self.work.strip > window.outputs[self.work.down]:
                yield f"within = {'inside & ' if mask else ''}(row < {window.outputs[self.work.down]})"
                mask = "within"
        yield f"i = {' + '.join(terms)}"
        yield from after.flat("result", mask, "other")

    def _count(self) -> str:
        """Return the expression for the number of elements that the average of a window counts."""
        window = self.window
        if window.counts_padding or not any(window.padding):
            return f"{math.prod(window.kernel_size)}.0"
        names = ["slice", "row", "column"][-self.work.rank :]
        counts = (
            f"(tl.minimum({self._from(name, axis, window.kernel_size[axis])}, {window.sizes[axis]})"
            f" - tl.maximum({self._from(name, axis, 0)}, 0))"
            for axis, name in enumerate(names)
        )
        return f"({' * '.join(counts)}).to(tl.float32)"

    def _loop(self) -> str:
        return "tl.static_range" if self.work.is_written_out else "range"


def _nothing(window: Window) -> str:
    return 'float("-inf")' if window.is_maximum else "0.0"


def _combined(window: Window, into: str, value: str, weight: str = "") -> str:
    if window.is_maximum:
        return f"{into} = larger({into}, {value})"
    return f"{into} += {value} * {weight}" if weight else f"{into} += {value}"
