import copy
import pickle
import platform

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from kforge import inline
from kforge.inline import LaunchError


def test_the_kernel_computes(scale):
    x = torch.randn(1000)
    out = torch.full_like(x, torch.nan)
    assert scale.scale(x, out, x.numel(), 2.5) is None
    torch.testing.assert_close(out, 2.5 * x, rtol=0, atol=0)


def test_scalars_come_back():
    library = inline.compile("""
        extern "C" double half(int n) { return n / 2.0; }
        extern "C" bool odd(unsigned char n) { return n % 2; }
        extern "C" long long low(void) { return -9223372036854775807LL - 1; }
    """)
    assert library.half(-3) == -1.5
    assert library.odd(255) is True
    assert library.low() == -(2**63)


@pytest.mark.parametrize(
    ("argument", "value", "message"),
    [
        (1, torch.empty(4).double(), "scale: argument 2 (out) must be float32, got float64"),
        (0, torch.empty(4, device="meta"), "scale: argument 1 (x) must be in host memory, got a tensor on meta"),
        (0, torch.empty(8)[::2], "scale: argument 1 (x) must be contiguous; pass its .contiguous()"),
        (0, torch.empty(4).to_sparse(), "scale: argument 1 (x) must be a dense tensor, got a sparse one"),
        (0, [1.0], "scale: argument 1 (x) must be a tensor, got list"),
        (1, None, "scale: argument 2 (out) must be a tensor, got NoneType"),
        (2, 4.0, "scale: argument 3 (n) must be an int, got float"),
        (2, 2**63, f"scale: argument 3 (n) must fit int64_t ({-(2**63)} to {2**63 - 1}), got {2**63}"),
        (3, "2", "scale: argument 4 (factor) must be a float, got str"),
        (3, 1e39, "scale: argument 4 (factor) must fit float, got 1e+39"),
        (3, 10**400, "scale: argument 4 (factor) must fit float, got an int that is too large"),
    ],
)
def test_a_wrong_argument_is_one_clear_line(scale, argument, value, message):
    arguments = [torch.empty(4), torch.empty(4), 4, 1.0]
    arguments[argument] = value
    with pytest.raises(LaunchError) as caught:
        scale.scale(*arguments)
    assert str(caught.value) == message


def test_the_argument_count_is_checked(scale):
    with pytest.raises(LaunchError, match=r"^scale: takes 4 arguments \(x, out, n, factor\), got 1$"):
        scale.scale(torch.empty(1))


def test_numbers_of_other_make_are_taken(scale):
    x, out = torch.ones(4), torch.zeros(4)
    scale.scale(x, out, torch.tensor(4), torch.tensor(3.0))
    assert out.tolist() == [3.0] * 4
    scale.scale(x, out, True, float("inf"))
    assert out.tolist() == [float("inf"), 3.0, 3.0, 3.0]


def test_a_bool_is_not_an_int():
    library = inline.compile('extern "C" int f(bool causal) { return causal; }')
    assert library.f(True) == 1
    with pytest.raises(LaunchError, match=r"^f: argument 1 \(causal\) must be a bool, got int$"):
        library.f(1)


HALF = "__fp16" if platform.machine() == "aarch64" else "_Float16"
"""As g++ 12 calls it; newer ones know the second everywhere."""
FLOATS = {"float64", "float32", "float16", "bfloat16"}
DTYPES = FLOATS | {"int64", "int32", "int16", "int8", "uint16", "uint8", "bool"}


@pytest.mark.parametrize(
    ("spelling", "takes"),
    [
        ("float", {"float32"}),
        ("double", {"float64"}),
        ("int64_t", {"int64"}),
        ("long long", {"int64"}),
        ("int", {"int32"}),
        ("std::int16_t", {"int16"}),
        ("int8_t", {"int8"}),
        ("unsigned char", {"uint8", "bool"}),
        ("bool", {"bool"}),
        ("uint16_t", {"uint16", "bfloat16", "float16"}),
        (HALF, {"float16"}),
        ("void", DTYPES),
    ],
)
def test_a_pointer_takes_tensors_of_its_own_type_only(spelling, takes):
    library = inline.compile(f'#include <cstdint>\nextern "C" void f(const {spelling}* x) {{}}')
    taken = set()
    for name in sorted(DTYPES):
        try:
            library.f(torch.empty(2, dtype=getattr(torch, name)))
        except LaunchError as error:
            assert str(error).endswith(f"got {name}")  # noqa: PT017 - most of them must raise, and some must not
        else:
            taken.add(name)
    assert taken == takes


def test_an_unknown_kernel_is_an_attribute_error_that_lists_the_kernels(scale):
    with pytest.raises(AttributeError, match="no kernel named 'scales' in this library; it has: scale"):
        scale.scales(1)
    assert not hasattr(scale, "scales")
    assert dir(scale) == ["scale"]


def test_a_kernel_may_have_any_name():
    library = inline.compile('extern "C" int kernels() { return 7; }\nextern "C" int self() { return 8; }')
    assert (library.kernels(), library.self()) == (7, 8)


def test_a_library_is_copied_and_pickled_with_its_module(scale):
    for twin in (copy.deepcopy(scale), pickle.loads(pickle.dumps(scale))):
        out = torch.empty(1)
        twin.scale(torch.ones(1), out, 1, 4.0)
        assert out.item() == 4.0


@pytest.mark.filterwarnings("ignore:Accessing the data pointer of FakeTensor")
def test_tensors_without_memory_are_refused(scale):
    refusal = r"^scale: argument 1 \(x\) must be a tensor with its own memory, got a fake or wrapped one$"
    with FakeTensorMode():
        fake = torch.empty(4)
    with pytest.raises(LaunchError, match=refusal):
        scale.scale(fake, torch.empty(4), 4, 1.0)
    with pytest.raises(LaunchError, match=refusal):
        torch.vmap(lambda row: scale.scale(row, torch.empty(4), 4, 1.0))(torch.empty(2, 4))


def test_an_empty_tensor_is_taken(scale):
    scale.scale(torch.empty(0), torch.empty(0, 3), 0, 1.0)


@pytest.mark.parametrize(
    "error",
    [
        inline.CompileError("short", "the whole log"),
        inline.LaunchError("f: argument 1 must be a tensor"),
        inline.ToolchainError("no compiler"),
        inline.UnknownKernel("no kernel named 'g'"),
    ],
)
def test_errors_cross_process_borders_whole(error):
    twin = pickle.loads(pickle.dumps(error))
    assert (type(twin), str(twin), vars(twin)) == (type(error), str(error), vars(error))
    assert isinstance(twin, inline.InlineError)
