"""Writes the kernels that prepare the input of a convolution: they scale it, split it into half-precision parts, add
zero padding, and put channels last.

The channels at each position of a window are then contiguous. Each sample has one scale.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kforge.smith.ir.windows import by
from kforge.smith.languages.indices import NARROW, block_of
from kforge.smith.languages.triton.product.halves import HALVES, SCALE, SIZE, Parts, indented

if TYPE_CHECKING:
    from kforge.smith.patterns.convolutions import Convolution, Transposed

PIECE = 8192
"""Number of elements that one program instance searches for the largest one. A sample has at most 512 pieces, which
are longer if necessary."""
SPOTS = 64
"""Number of positions, and of channels, of the block that one program instance transposes."""


@dataclass(frozen=True)
class SplitConvolution:
    """Sizes of a convolution whose input is padded and split into half-precision parts before it is multiplied."""

    samples: int
    channels: int
    groups: int
    sizes: tuple[int, ...]
    before: tuple[int, ...]
    """Number of zeros before the input, along each axis."""
    padded: tuple[int, ...]
    places: tuple[int, ...]
    window: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    weight: Parts
    """The split weights. A batch is a group of the convolution, and a row is a filter."""
    outputs: tuple[int, ...]
    phases: tuple[int, ...]
    """Number of outputs per window position, along each axis. Above one only for a transposed convolution. The first
    filters compute the first output of a position, and so on."""
    missing: tuple[int, ...]
    """Number of outputs of the first window position that lie before the first real output, along each axis. They are
    not stored."""

    @property
    def size(self) -> int:
        """Number of elements of the padded input."""
        return self.samples * math.prod(self.padded) * self.channels

    @property
    def count(self) -> int:
        """Number of window positions of all samples."""
        return self.samples * math.prod(self.places)

    @property
    def pieces(self) -> int:
        """Number of program instances that search one sample for its largest element."""
        return min(512, -(-self.channels * math.prod(self.sizes) // PIECE))

    @property
    def programs(self) -> int:
        """Number of program instances that split the input."""
        return self.samples * -(-math.prod(self.padded) // SPOTS) * -(-self.channels // SPOTS)

    @property
    def out(self) -> int:
        """Number of output channels."""
        return self.groups * self.weight.given.count // math.prod(self.phases)

    @property
    def wide(self) -> str:
        """Source text that converts an index to 64 bits. Empty if 32 bits are enough."""
        far = max(2 * self.size, self.samples * self.out * math.prod(self.outputs))
        return ".to(tl.int64)" if far >= NARROW - 2**20 else ""

    def step(self, axis: int) -> int:
        """Return the stride along an axis of the padded input."""
        return math.prod(self.padded[axis + 1 :]) * self.channels

    @classmethod
    def ordinary(cls, form: Convolution, weight: Parts) -> SplitConvolution:
        window = form.window
        ones, zeros = (1,) * len(window.sizes), (0,) * len(window.sizes)
        padded = tuple(size + 2 * pad for size, pad in zip(window.sizes, window.padding, strict=True))
        return cls(
            form.images, form.channels, form.groups, window.sizes, window.padding, padded, window.outputs,
            window.kernel_size, window.stride, window.dilation, weight, window.outputs, ones, zeros,
        )  # fmt: skip

    @classmethod
    def transposed(cls, form: Transposed, weight: Parts) -> SplitConvolution:
        ones = (1,) * len(form.sizes)
        padded = tuple(count + size - 1 for count, size in zip(form.places, form.window, strict=True))
        return cls(
            form.images, form.channels, form.groups, form.sizes, form.before, padded, form.places,
            form.window, ones, ones, weight, form.outputs, form.stride, form.missing,
        )  # fmt: skip


def largest(name: str, found: SplitConvolution) -> str:
    """Return a kernel that finds, for each piece of a sample, the largest finite element and whether some element is
    not finite."""
    count = found.channels * math.prod(found.sizes)
    share = -(-count // found.pieces)
    lines = [
        f"sample = tl.program_id(0){found.wide} // {found.pieces}",
        f"begin = tl.program_id(0) % {found.pieces} * {share}",
        f"end = tl.minimum(begin + {share}, {count})",
        "largest = tl.zeros([4096], tl.float32)",
        "odd = tl.zeros([4096], tl.float32)",
        "for start in range(begin, end, 4096):",
        "    i = start + tl.arange(0, 4096)",
        f"    value = tl.load(x + sample * {count} + i, mask=i < end, other=0.0)",
        *("    " + line for line in SIZE),
        "    largest = tl.maximum(largest, tl.where(finite, size, 0.0))",
        "    odd = tl.maximum(odd, tl.where(finite, 0.0, 1.0))",
        "tl.store(out + tl.program_id(0), tl.max(largest, axis=0))",
        f"tl.store(out + {found.samples * found.pieces} + tl.program_id(0), tl.max(odd, axis=0))",
    ]
    head = f"# the largest element of each sample, in {found.pieces} pieces\n@triton.jit\n"
    return f"{head}def {name}(x, out):\n" + indented(lines)


def split_input(name: str, found: SplitConvolution) -> str:
    """Return the kernel that scales, splits and pads the input, and puts its channels last."""
    spots = math.prod(found.padded)
    across, down = -(-found.channels // SPOTS), -(-spots // SPOTS)
    pieces = block_of(found.pieces)
    lines = [
        f"block = tl.program_id(0){found.wide}",
        f"sample = block // {across * down}",
        f"spot = (block // {across} % {down} * {SPOTS} + tl.arange(0, {SPOTS}))[:, None]",
        f"channel = (block % {across} * {SPOTS} + tl.arange(0, {SPOTS}))[None, :]",
        f"piece = tl.arange(0, {pieces})",
        f"at = parts + sample * {found.pieces} + piece",
        f"largest = tl.max(tl.load(at, mask=piece < {found.pieces}, other=0.0), axis=0)",
        f"odd = tl.load(at + {found.samples * found.pieces}, mask=piece < {found.pieces}, other=0.0)",
        "odd = tl.max(odd, axis=0)",
        *SCALE,
        f"tl.store(inverses + sample, inverse, mask=block % {across * down} == 0)",
        f"inside = (channel < {found.channels}) & (spot < {spots})",
    ]
    terms = [f"sample * {found.channels * math.prod(found.sizes)}", f"channel * {math.prod(found.sizes)}"]
    masks = ["inside"]
    for axis, size in enumerate(found.sizes):
        below, step = math.prod(found.padded[axis + 1 :]), math.prod(found.sizes[axis + 1 :])
        count = f"spot // {below} % {found.padded[axis]}" if below > 1 else f"spot % {found.padded[axis]}"
        lines.append(f"from{axis} = {count} - {found.before[axis]}")
        terms.append(f"from{axis} * {step}" if step > 1 else f"from{axis}")
        masks.append(f"(from{axis} >= 0) & (from{axis} < {size})")
    lines += [
        f"value = tl.load(x + {' + '.join(terms)}, mask={' & '.join(masks)}, other=0.0)",
        *SIZE,
        *HALVES,
        f"at = (sample * {spots} + spot) * {found.channels} + channel",
        "tl.store(halves + at, high, mask=inside)",
        f"tl.store(halves + {found.size} + at, low, mask=inside)",
    ]
    head = f"# {found.samples} samples, padded to {by(found.padded)}, channels last, split into halves\n@triton.jit\n"
    return f"{head}def {name}(x, parts, halves, inverses):\n" + indented(lines)
