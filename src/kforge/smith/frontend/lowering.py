"""Lowers torch's operators: replaces each by map, reduce, scan and view nodes. Operators without a lowering stay calls
of torch.

Each lowering function takes the graph builder and the operator's arguments, with the name of a node for each tensor. It
returns the name of the node that holds the result, and raises `NotLowered` for arguments that it does not support.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from kforge.smith.frontend.views import VIEWS, View, axes_of
from kforge.smith.ir.graph import Ref

if TYPE_CHECKING:
    from kforge.smith.ir.graph import Builder, Operand, Shape


class NotLowered(Exception):
    """Raised if an operator cannot be lowered with these arguments, so that it stays a call of torch."""


Lowering = Callable[..., str]


def _map(function: str) -> Lowering:
    return lambda b, *operands: b.map(function, *operands)


def _scaled(function: str) -> Lowering:
    """Return a lowering for add or sub, whose second operand torch multiplies by the argument `alpha`."""

    def lower(b: Builder, x: Operand, y: Operand, alpha: float = 1) -> str:
        return b.map(function, x, y if alpha == 1 else b.map("mul", y, alpha))

    return lower


def _compare(function: str) -> Lowering:
    return lambda b, x, y: b.map(function, x, y, dtype="bool")


def _of_truths(lower: Lowering) -> Lowering:
    """Return `lower` for bool tensors only: torch's bitwise operators are logical on them. Integers raise
    NotLowered."""

    def checked(b: Builder, *operands: Operand) -> str:
        if any(b.dtype(each) != "bool" for each in operands):
            raise NotLowered
        return lower(b, *operands)

    return checked


def _masked_fill(b: Builder, x: str, mask: str, value: Operand) -> str:
    return b.map("where", mask, _number(value), x, dtype=b.dtype(x))


def _converted(b: Builder, x: str, dtype: object = None, *_: Any, **__: Any) -> str:
    if str(dtype) != "torch.float32":
        raise NotLowered
    return x if b.dtype(x) == "float32" else b.map("float", x, dtype="float32")


# --- activations ------------------------------------------------------------------------------------------------


def _relu(b: Builder, x: str) -> str:
    return b.map("maximum", x, 0.0)


def _clamp(b: Builder, x: str, low: Operand | None = None, high: Operand | None = None) -> str:
    if low is not None:
        x = b.map("maximum", x, _number(low))
    return x if high is None else b.map("minimum", x, _number(high))


def _leaky_relu(b: Builder, x: str, slope: float = 0.01) -> str:
    return b.map("where", b.map("gt", x, 0.0, dtype="bool"), x, b.map("mul", x, slope))


def _elu(b: Builder, x: str, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> str:
    below = b.map("minimum", x, 0.0)
    grown = b.map("expm1", below if input_scale == 1 else b.map("mul", below, input_scale))
    return b.map("where", b.map("gt", x, 0.0, dtype="bool"), b.map("mul", x, scale), b.map("mul", grown, alpha * scale))


def _selu(b: Builder, x: str) -> str:
    return _elu(b, x, 1.6732632423543772, 1.0507009873554805)


def _gelu(b: Builder, x: str, approximate: str = "none") -> str:
    if approximate == "tanh":
        cube = b.map("mul", b.map("mul", x, x), x)
        inner = b.map("mul", b.map("add", x, b.map("mul", cube, 0.044715)), math.sqrt(2 / math.pi))
        bell = b.map("tanh", inner)
    else:
        bell = b.map("erf", b.map("mul", x, math.sqrt(0.5)))
    return b.map("mul", b.map("mul", x, 0.5), b.map("add", bell, 1.0))


def _silu(b: Builder, x: str) -> str:
    return b.map("mul", x, b.map("sigmoid", x))


def _softplus(b: Builder, x: str, beta: float = 1.0, threshold: float = 20.0) -> str:
    """Lower softplus as max(z, 0) + log(1 + exp(-|z|)), which never overflows. torch returns z itself above
    `threshold`, which is the same value in float32 if the threshold is at least 15."""
    if threshold < 15:
        raise NotLowered  # here the shortcut changes the result
    z = x if beta == 1 else b.map("mul", x, beta)
    value = b.map("add", b.map("maximum", z, 0.0), b.map("log1p", b.map("exp", b.map("neg", b.map("abs", z)))))
    return value if beta == 1 else b.map("div", value, beta)


def _mish(b: Builder, x: str) -> str:
    """Lower mish as x n / (n + 2) with n = e^x (e^x + 2): one exp, and no digits cancel. Above 20 the quotient is 1."""
    grown = b.map("exp", b.map("minimum", x, 20.0))
    n = b.map("mul", grown, b.map("add", grown, 2.0))
    return b.map("mul", x, b.map("div", n, b.map("add", n, 2.0)))


def _log_sigmoid(b: Builder, x: str) -> str:
    return b.map("neg", _softplus(b, b.map("neg", x)))


def _softsign(b: Builder, x: str) -> str:
    return b.map("div", x, b.map("add", b.map("abs", x), 1.0))


def _hardtanh(b: Builder, x: str, low: float = -1.0, high: float = 1.0) -> str:
    return _clamp(b, x, low, high)


def _hardsigmoid(b: Builder, x: str) -> str:
    return b.map("div", _clamp(b, b.map("add", x, 3.0), 0.0, 6.0), 6.0)


def _hardswish(b: Builder, x: str) -> str:
    return b.map("mul", x, _hardsigmoid(b, x))


def _pow(b: Builder, x: str, exponent: Operand) -> str:
    match exponent:
        case 2 | 2.0:
            return b.map("mul", x, x)
        case 3 | 3.0:
            return b.map("mul", b.map("mul", x, x), x)
        case 0.5:
            return b.map("sqrt", x)
        case -0.5:
            return b.map("rsqrt", x)
        case -1 | -1.0:
            return b.map("div", 1.0, x)
        case 1 | 1.0:
            return x
    raise NotLowered


# --- reductions, softmax, norms -------------------------------------------------------------------------------------


def _finished(b: Builder, x: str, reduced: str, axes: tuple[int, ...], keep: bool) -> str:
    if keep:
        return reduced
    shape = b.shape(x)
    return b.reshape(reduced, tuple(size for axis, size in enumerate(shape) if axis not in axes))


def _reduction(function: str) -> Lowering:
    def lower(b: Builder, x: str, given: Any = None, keep: bool = False, **_: Any) -> str:
        axes = axes_of(b, x, given)
        return _finished(b, x, b.reduce(function, x, axes), axes, keep)

    return lower


def _mean_over(b: Builder, x: str, axes: tuple[int, ...]) -> str:
    count = math.prod(b.shape(x)[axis] for axis in axes)
    return b.map("div", b.reduce("sum", x, axes), float(count))


def _mean(b: Builder, x: str, given: Any = None, keep: bool = False, **_: Any) -> str:
    axes = axes_of(b, x, given)
    return _finished(b, x, _mean_over(b, x, axes), axes, keep)


def _variance(root: bool) -> Lowering:
    def lower(b: Builder, x: str, given: Any = None, correction: float | None = 1, keep: bool = False, **_: Any) -> str:
        if isinstance(given, bool):  # the overload var(x, unbiased)
            given, correction = None, int(given)
        axes = axes_of(b, x, given)
        count = math.prod(b.shape(x)[axis] for axis in axes)
        divisor = count - (1 if correction is None else correction)
        if divisor <= 0:
            raise NotLowered
        apart = b.map("sub", x, _mean_over(b, x, axes))
        value = b.map("div", b.reduce("sum", b.map("mul", apart, apart), axes), float(divisor))
        return _finished(b, x, b.map("sqrt", value) if root else value, axes, keep)

    return lower


def _vector_norm(b: Builder, x: str, order: float = 2, given: Any = None, keep: bool = False, **_: Any) -> str:
    axes = axes_of(b, x, given)
    match order:
        case 2:
            value = b.map("sqrt", b.reduce("sum", b.map("mul", x, x), axes))
        case 1:
            value = b.reduce("sum", b.map("abs", x), axes)
        case math.inf:
            value = b.reduce("max", b.map("abs", x), axes)
        case _:
            raise NotLowered
    return _finished(b, x, value, axes, keep)


def _scan(function: str) -> Lowering:
    def lower(b: Builder, x: str, axis: int) -> str:
        shape = b.shape(x)
        if not shape or shape[axis] < 2:
            raise NotLowered
        return b.scan(function, x, axis % len(shape))

    return lower


def _scan_of_values(function: str) -> View:
    """Return a lowering for `cummax` or `cummin` that gives the values only; nothing may read the indices
    (`VALUES_ONLY`)."""
    return lambda b, x, axis: (_scan(function)(b, x, axis),)


def _matrix_norm(
    b: Builder, x: str, order: Any = "fro", given: Sequence[int] = (-2, -1), keep: bool = False, **_: Any
) -> str:
    if order != "fro":
        raise NotLowered
    return _vector_norm(b, x, 2, list(given), keep)


def _softmax(b: Builder, x: str, axis: int, *_: Any, **__: Any) -> str:
    apart = b.map("sub", x, b.reduce("max", x, (axis,)))
    grown = b.map("exp", apart)
    return b.map("div", grown, b.reduce("sum", grown, (axis,)))


def _log_softmax(b: Builder, x: str, axis: int, *_: Any, **__: Any) -> str:
    apart = b.map("sub", x, b.reduce("max", x, (axis,)))
    return b.map("sub", apart, b.map("log", b.reduce("sum", b.map("exp", apart), (axis,))))


def _logsumexp(b: Builder, x: str, given: Any, keep: bool = False) -> str:
    axes = axes_of(b, x, given)
    top = b.reduce("max", x, axes)
    total = b.reduce("sum", b.map("exp", b.map("sub", x, top)), axes)
    return _finished(b, x, b.map("add", top, b.map("log", total)), axes, keep)


def _normalized(b: Builder, x: str, axes: tuple[int, ...], eps: float) -> str:
    apart = b.map("sub", x, _mean_over(b, x, axes))
    variance = _mean_over(b, b.map("mul", apart, apart), axes)
    return b.map("mul", apart, b.map("rsqrt", b.map("add", variance, eps)))


def _affine(b: Builder, x: str, weight: str | None, bias: str | None) -> str:
    x = x if weight is None else b.map("mul", x, weight)
    return x if bias is None else b.map("add", x, bias)


def _layer_norm(
    b: Builder, x: str, over: Sequence[int], weight: Any = None, bias: Any = None, eps: float = 1e-5, *_: Any
) -> str:
    rank = len(b.shape(x))
    return _affine(b, _normalized(b, x, tuple(range(rank - len(over), rank)), eps), weight, bias)


def _rms_norm(b: Builder, x: str, over: Sequence[int], weight: Any = None, eps: float | None = None) -> str:
    rank = len(b.shape(x))
    mean = _mean_over(b, b.map("mul", x, x), tuple(range(rank - len(over), rank)))
    scaled = b.map("mul", x, b.map("rsqrt", b.map("add", mean, 1.1920928955078125e-07 if eps is None else eps)))
    return _affine(b, scaled, weight, None)


def _group_norm(
    b: Builder, x: str, groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, *_: Any
) -> str:
    """Lower group_norm, on the shape [batch, group, channel of the group, spatial element]."""
    shape = b.shape(x)
    batch, channels, places = shape[0], shape[1], math.prod(shape[2:])
    split: Shape = (batch, groups, channels // groups, places)
    by_channel: Shape = (1, groups, channels // groups, 1)
    value = _normalized(b, b.reshape(x, split), (2, 3), eps)
    weight, bias = (None if each is None else b.reshape(each, by_channel) for each in (weight, bias))
    return b.reshape(_affine(b, value, weight, bias), shape)


def _per_channel(b: Builder, value: str | None, rank: int) -> str | None:
    return None if value is None else b.reshape(value, (1, *b.shape(value), *([1] * (rank - 2))))


def _instance_norm(
    b: Builder, x: str, weight: Any, bias: Any, mean: Any, variance: Any, own: bool, _momentum: float, eps: float,
    *_: Any,
) -> str:  # fmt: skip
    if not own or mean is not None or variance is not None:
        raise NotLowered
    rank = len(b.shape(x))
    value = _normalized(b, x, tuple(range(2, rank)), eps)
    return _affine(b, value, _per_channel(b, weight, rank), _per_channel(b, bias, rank))


def _batch_norm(
    b: Builder, x: str, weight: Any, bias: Any, mean: Any, variance: Any, training: bool, _momentum: float,
    eps: float, *_: Any,
) -> str:  # fmt: skip
    rank = len(b.shape(x))
    if training and mean is None and variance is None:
        value = _normalized(b, x, tuple(axis for axis in range(rank) if axis != 1), eps)
        return _affine(b, value, _per_channel(b, weight, rank), _per_channel(b, bias, rank))
    if training:
        raise NotLowered  # the operator also updates its running statistics
    middle, spread = _per_channel(b, mean, rank), _per_channel(b, variance, rank)
    if middle is None or spread is None:
        raise NotLowered
    value = b.map("mul", b.map("sub", x, middle), b.map("rsqrt", b.map("add", spread, eps)))
    return _affine(b, value, _per_channel(b, weight, rank), _per_channel(b, bias, rank))


# --- losses ---------------------------------------------------------------------------------------------------------

_MEAN, _SUM = 1, 2


def _reduced_loss(b: Builder, each: str, how: int) -> str:
    if how == _MEAN:
        return _mean(b, each)
    return _reduction("sum")(b, each) if how == _SUM else each


def _mse_loss(b: Builder, x: str, target: str, how: int = _MEAN) -> str:
    apart = b.map("sub", x, target)
    return _reduced_loss(b, b.map("mul", apart, apart), how)


def _l1_loss(b: Builder, x: str, target: str, how: int = _MEAN) -> str:
    return _reduced_loss(b, b.map("abs", b.map("sub", x, target)), how)


def _huber(scale: Callable[[float], float]) -> Lowering:
    """Return a lowering for smooth_l1_loss or huber_loss, which differ by a factor: `scale` of the width."""

    def lower(b: Builder, x: str, target: str, how: int = _MEAN, width: float = 1.0) -> str:
        if width <= 0:
            raise NotLowered
        size = b.map("abs", b.map("sub", x, target))
        square = b.map("mul", b.map("mul", size, size), 0.5 / width)
        line = b.map("sub", size, 0.5 * width)
        each = b.map("where", b.map("lt", size, width, dtype="bool"), square, line)
        factor = scale(width)
        return _reduced_loss(b, each if factor == 1 else b.map("mul", each, factor), how)

    return lower


def _binary_cross_entropy(
    b: Builder, x: str, truth: str, weight: str | None = None, positive: str | None = None, how: int = _MEAN
) -> str:
    """Lower binary cross entropy of logits: (1 - t) x - w log(sigmoid(x)) with w = 1 + (positive - 1) t, for a target
    t."""
    sure = _log_sigmoid(b, x)
    if positive is not None:
        more = b.map("add", b.map("mul", b.map("sub", positive, 1.0), truth), 1.0)
        sure = b.map("mul", more, sure)
    each = b.map("sub", b.map("mul", b.map("sub", 1.0, truth), x), sure)
    return _reduced_loss(b, each if weight is None else b.map("mul", each, weight), how)


def _at_labels(b: Builder, x: str, labels: str, how: int, ignored: int, smoothing: float) -> tuple[str, str, str]:
    """Return three nodes: x at each label, a mask of the labels that are not ignored, and the mean of x over the
    classes.

    The mean is for label smoothing. torch's gather reads x at the labels, since no kernel of the smith can do that.
    """
    shape = b.shape(x)
    axis = min(1, len(shape) - 1)
    if b.dtype(labels) != "int64" or b.shape(labels) != (*shape[:axis], *shape[axis + 1 :]) or how not in (0, 1, 2):
        raise NotLowered
    one: Shape = (*shape[:axis], 1, *shape[axis + 1 :])
    upright = b.reshape(labels, one)
    counts = b.call("counts", "aten.ne.Scalar", ([Ref(upright), ignored], {}), one, "bool")
    index = b.call("index", "aten.clamp_min.default", ([Ref(upright), 0], {}), one, "int64")
    picked = b.call("picked", "aten.gather.default", ([Ref(x), axis, Ref(index)], {}), one, "float32")
    return picked, counts, _mean_over(b, x, (axis,)) if smoothing else picked


def _counted(b: Builder, x: str, each: str, counts: str, how: int) -> str:
    """Return the loss over all labels, reduced as `how` says. Labels that the mask `counts` excludes do not count."""
    shape = b.shape(x)
    axis = min(1, len(shape) - 1)
    each = _finished(b, x, b.map("where", counts, each, 0.0, dtype="float32"), (axis,), False)
    if how != _MEAN:
        return _reduced_loss(b, each, how)
    number = _finished(b, x, b.map("float", counts, dtype="float32"), (axis,), False)
    return b.map("div", _reduction("sum")(b, each), _reduction("sum")(b, number))


def _cross_entropy(
    b: Builder, x: str, labels: str, weight: Any = None, how: int = _MEAN, ignored: int = -100, smoothing: float = 0.0
) -> str:
    """Lower cross entropy: log(sum(exp(x))) minus x at the label. Smoothing mixes in the mean of x over the classes."""
    if weight is not None:
        raise NotLowered
    picked, counts, mean = _at_labels(b, x, labels, how, ignored, smoothing)
    axis = min(1, len(b.shape(x)) - 1)
    whole = _logsumexp(b, x, (axis,), True)
    aim = picked
    if smoothing:
        aim = b.map("add", b.map("mul", picked, 1.0 - smoothing), b.map("mul", mean, smoothing))
    return _counted(b, x, b.map("sub", whole, aim), counts, how)


def _nll_loss(b: Builder, x: str, labels: str, weight: Any = None, how: int = _MEAN, ignored: int = -100) -> str:
    if weight is not None:
        raise NotLowered
    picked, counts, _ = _at_labels(b, x, labels, how, ignored, 0.0)
    return _counted(b, x, b.map("neg", picked), counts, how)


def _number(value: Operand) -> Operand:
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


POINTWISE: Mapping[str, Lowering] = MappingProxyType(
    {
        "add": _scaled("add"), "sub": _scaled("sub"), "mul": _map("mul"), "div": _map("div"), "neg": _map("neg"),
        "rsub": lambda b, x, y, alpha=1: _scaled("sub")(b, y, x, alpha),
        "abs": _map("abs"), "sqrt": _map("sqrt"), "rsqrt": _map("rsqrt"), "exp": _map("exp"), "log": _map("log"),
        "expm1": _map("expm1"), "log1p": _map("log1p"), "tanh": _map("tanh"), "erf": _map("erf"),
        "sigmoid": _map("sigmoid"), "floor": _map("floor"), "ceil": _map("ceil"),
        "maximum": _map("maximum"), "minimum": _map("minimum"),
        "reciprocal": lambda b, x: b.map("div", 1.0, x), "square": lambda b, x: b.map("mul", x, x), "pow": _pow,
        "where": _map("where"), "lt": _compare("lt"), "le": _compare("le"), "gt": _compare("gt"),
        "ge": _compare("ge"), "eq": _compare("eq"), "ne": _compare("ne"), "logical_and": _compare("and"),
        "logical_or": _compare("or"), "logical_not": lambda b, x: b.map("not", x, dtype="bool"),
        "bitwise_and": _of_truths(_compare("and")), "bitwise_or": _of_truths(_compare("or")),
        "bitwise_not": _of_truths(lambda b, x: b.map("not", x, dtype="bool")), "masked_fill": _masked_fill,
        "relu": _relu, "relu6": lambda b, x: _clamp(b, x, 0.0, 6.0), "clamp": _clamp,
        "clamp_min": _clamp, "clamp_max": lambda b, x, high: _clamp(b, x, None, high), "leaky_relu": _leaky_relu,
        "elu": _elu, "selu": _selu, "gelu": _gelu, "silu": _silu, "mish": _mish, "softplus": _softplus,
        "log_sigmoid": _log_sigmoid, "softsign": _softsign, "hardtanh": _hardtanh, "hardsigmoid": _hardsigmoid,
        "hardswish": _hardswish,
    }
)  # fmt: skip
"""Lowerings of elementwise operators. Their operands are not expanded first, because a map node broadcasts them."""

CONVERSIONS: Mapping[str, Lowering] = MappingProxyType({"to": _converted, "_to_copy": _converted})
"""Lowerings of dtype conversions. Their kernels read all of `READ_DTYPES`; other kernels read `LOWERED_DTYPES` only."""

LABELLED: Mapping[str, Lowering] = MappingProxyType({"cross_entropy_loss": _cross_entropy, "nll_loss_nd": _nll_loss})
"""Lowerings of losses whose second operand is a tensor of integer class labels."""

VALUES_ONLY = frozenset({"cummax", "cummin"})
"""Operators that return values and indices. They are lowered only if nothing in the graph reads the indices."""


def _dropout(_: Builder, x: str, share: float, training: bool) -> str:
    """Return the operand itself. Raises NotLowered if dropout is active (in training, with a probability above
    zero)."""
    if share and training:
        raise NotLowered
    return x


LOWERINGS: Mapping[str, Lowering | View] = MappingProxyType(
    {
        **POINTWISE,
        "sum": _reduction("sum"), "amax": _reduction("max"), "amin": _reduction("min"), "mean": _mean,
        "prod": _reduction("prod"), "cumsum": _scan("sum"), "cumprod": _scan("prod"), "cummax": _scan_of_values("max"),
        "cummin": _scan_of_values("min"), "linalg_matrix_norm": _matrix_norm, **CONVERSIONS,
        "var": _variance(root=False), "std": _variance(root=True), "linalg_vector_norm": _vector_norm,
        "softmax": _softmax, "log_softmax": _log_softmax, "logsumexp": _logsumexp, "layer_norm": _layer_norm,
        "rms_norm": _rms_norm, "group_norm": _group_norm, "instance_norm": _instance_norm, "batch_norm": _batch_norm,
        "mse_loss": _mse_loss, "l1_loss": _l1_loss, "smooth_l1_loss": _huber(lambda _: 1.0),
        "huber_loss": _huber(lambda width: width), "binary_cross_entropy_with_logits": _binary_cross_entropy,
        **LABELLED, "dropout": _dropout,
        **VIEWS,
    }
)  # fmt: skip
