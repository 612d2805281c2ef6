"""Kernels that really run: on a GPU, or on the host by lavapipe."""

import copy
import pickle

import pytest
import torch

from kforge import inline
from kforge.inline import CompileError, LaunchError, launches

THREAD = "@builtin(global_invocation_id) t: vec3<u32>"
SCALE = """
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<f32>;
struct Numbers { count: u32, factor: f32 }
@group(0) @binding(2) var<uniform> numbers: Numbers;
override group: u32 = 64;

@compute @workgroup_size(group)
fn scale(@builtin(global_invocation_id) thread: vec3<u32>) {
    if (thread.x < numbers.count) { out[thread.x] = numbers.factor * x[thread.x]; }
}
"""


@pytest.fixture(scope="module")
def scale():
    return inline.compile(SCALE, "webgpu")


def copying(kind_in, kind_out=None, body="out[t.x] = x[t.x];"):
    """A kernel `f` that copies its elements."""
    return inline.compile(
        f"""
        @group(0) @binding(0) var<storage, read> x: array<{kind_in}>;
        @group(0) @binding(1) var<storage, read_write> out: array<{kind_out or kind_in}>;
        @compute @workgroup_size(1) fn f({THREAD}) {{ {body} }}
        """,
        "webgpu",
    )


def test_the_kernel_computes_and_bounds_hold(scale):
    for count in (1, 63, 64, 65, 100_003):
        x = torch.randn(count)
        out = torch.full((count + 7,), torch.nan)
        assert scale.scale(x, out, count, 2.5, threads=count) is None
        torch.testing.assert_close(out[:count], 2.5 * x, rtol=0, atol=0)
        assert out[count:].isnan().all()


def test_only_the_order_within_tensors_and_within_numbers_counts(scale):
    x, out = torch.randn(10), torch.zeros(10)
    scale.scale(10, x, 3.0, out, threads=10)
    assert torch.equal(out, 3 * x)


def test_the_size_of_a_group_comes_from_the_launch_where_the_source_leaves_it_open():
    library = inline.compile(
        f"""
        @group(0) @binding(0) var<storage, read_write> out: array<u32>;
        override wide: u32;
        override high: u32 = 2;
        var<workgroup> together: array<u32, wide>;
        @compute @workgroup_size(wide, high)
        fn f({THREAD}, @builtin(local_invocation_index) l: u32, @builtin(num_workgroups) n: vec3<u32>) {{
            if (l < wide) {{ together[l] = l; }}
            workgroupBarrier();
            if (t.x == 0u && t.y == 0u) {{ out[0] = wide; out[1] = high; out[2] = n.x; out[3] = together[wide - 1u]; }}
        }}
        """,
        "webgpu",
    )
    out = torch.zeros(4, dtype=torch.uint32)
    library.f(out, threads=(100, 4), group_size=(16, 4))
    assert out.tolist() == [16, 4, 7, 15]
    with pytest.raises(LaunchError, match="f: group_size must be given: wide has no default in the source"):
        library.f(out, threads=1)


def test_a_group_size_that_differs_from_the_source_is_refused(scale):
    library = copying("f32")
    x = torch.randn(3)
    with pytest.raises(LaunchError) as caught:
        library.f(x, torch.zeros(3), threads=3, group_size=32)
    assert str(caught.value) == "f: group_size=32 differs from @workgroup_size(1, 1, 1) in the source"


def test_several_kernels_of_a_source_take_their_own_variables():
    library = inline.compile(
        f"""
        @group(0) @binding(0) var<storage, read_write> a: array<f32>;
        @group(0) @binding(1) var<storage, read> b: array<f32>;
        @group(0) @binding(2) var<uniform> n: u32;
        @compute @workgroup_size(4) fn one({THREAD}) {{ if (t.x < n) {{ a[t.x] = 1.0; }} }}
        @compute @workgroup_size(4) fn add({THREAD}) {{ a[t.x] += b[t.x]; }}
        """,
        "webgpu",
    )
    assert dir(library) == ["add", "one"]
    a, b = torch.zeros(8), torch.arange(8.0)
    library.one(a, 5, threads=8)
    library.add(a, b, threads=8)
    assert a.tolist() == [1, 2, 3, 4, 5, 5, 6, 7]


def test_barriers_and_workgroup_memory():
    library = inline.compile(
        """
        @group(0) @binding(0) var<storage, read> x: array<f32>;
        @group(0) @binding(1) var<storage, read_write> out: array<f32>;
        var<workgroup> sums: array<f32, 64>;
        @compute @workgroup_size(64)
        fn total(@builtin(local_invocation_id) l: vec3<u32>, @builtin(workgroup_id) g: vec3<u32>) {
            sums[l.x] = x[g.x * 64u + l.x];
            workgroupBarrier();
            for (var half = 32u; half > 0u; half /= 2u) {
                if (l.x < half) { sums[l.x] += sums[l.x + half]; }
                workgroupBarrier();
            }
            if (l.x == 0u) { out[g.x] = sums[0]; }
        }
        """,
        "webgpu",
    )
    x, out = torch.randint(-9, 9, (50, 64)).float(), torch.empty(50)
    library.total(x, out, threads=x.numel())
    assert torch.equal(out, x.sum(1))


def test_numbers_of_every_kind_arrive():
    library = inline.compile(
        f"""
        struct N {{ a: i32, v: vec3<f32>, b: u32, w: vec2<u32>, c: f32 }}
        @group(0) @binding(1) var<uniform> n: N;
        @group(0) @binding(3) var<uniform> last: f32;
        @group(0) @binding(0) var<storage, read_write> out: array<f32>;
        @compute @workgroup_size(1) fn f({THREAD}) {{
            out[0] = f32(n.a); out[1] = n.v.x; out[2] = n.v.z; out[3] = f32(n.b); out[4] = f32(n.w.y); out[5] = n.c;
            out[6] = last;
        }}
        """,
        "webgpu",
    )
    out = torch.zeros(7)
    library.f(out, -5, [0.5, 1.5, 2.5], True, (3, 4), float("inf"), 7, threads=1)
    assert out.tolist() == [-5, 0.5, 2.5, 1, 4, float("inf"), 7]


@pytest.mark.parametrize("dtype", [torch.bool, torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64])
@pytest.mark.parametrize("kind", ["i32", "u32"])
def test_integers_are_converted_by_value_both_ways(dtype, kind):
    low, high = (0, 1) if dtype == torch.bool else (torch.iinfo(dtype).min, torch.iinfo(dtype).max)
    low = max(low, -(2**31) if kind == "i32" else 0)
    high = min(high, 2**31 - 1 if kind == "i32" else 2**32 - 1)
    x = torch.tensor([low, 0, 1, high], dtype=torch.int64).to(dtype)
    out = torch.zeros_like(x)
    copying(kind).f(x, out, threads=4)
    assert torch.equal(out, x)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halves_are_widened_and_outputs_rounded(dtype):
    x = torch.randn(101).to(dtype)
    out = torch.empty_like(x)
    copying("f32", body="out[t.x] = x[t.x] * 1.1;").f(x, out, threads=101)
    assert torch.equal(out, (x.float() * torch.tensor(1.1)).to(dtype))


def test_an_integer_that_does_not_fit_is_refused_on_the_way_in():
    library = copying("i32")
    with pytest.raises(LaunchError) as caught:
        library.f(torch.tensor([0, 2**31]), torch.zeros(2, dtype=torch.int64), threads=2)
    assert str(caught.value) == (
        "f: argument 1 (x) holds 2147483648, which does not fit i32 (-2147483648 to 2147483647)"
    )
    with pytest.raises(LaunchError, match=r"argument 1 \(x\) holds -1, which does not fit u32"):
        copying("u32").f(torch.tensor([-1], dtype=torch.int32), torch.zeros(1, dtype=torch.int32), threads=1)


def test_an_integer_that_does_not_fit_is_refused_on_the_way_out():
    library = copying("i32")
    with pytest.raises(LaunchError) as caught:
        library.f(torch.tensor([300]), torch.zeros(1, dtype=torch.uint8), threads=1)
    assert str(caught.value) == "f: argument 2 (out): the kernel wrote 300, which does not fit uint8 (0 to 255)"
    with pytest.raises(LaunchError, match="the kernel wrote 2, which does not fit bool"):
        library.f(torch.tensor([2]), torch.zeros(1, dtype=torch.bool), threads=1)


def test_an_output_may_hold_anything_before_it_is_written():
    x, out = torch.tensor([5, -6, 7]), torch.full((3,), 2**40)
    copying("i32").f(x, out, threads=3)
    assert out.tolist() == [5, -6, 7]
    with pytest.raises(LaunchError, match=r"has not overwritten all of them; make the tensor with torch\.zeros"):
        copying("i32").f(x, torch.full((3,), 2**40), threads=2)
    with pytest.raises(LaunchError, match=r"argument 2 \(out\) holds 1099511627776"):
        copying("i32", body="out[t.x] += x[t.x];").f(x, torch.full((3,), 2**40), threads=3)
    mask = torch.full((3,), 37, dtype=torch.uint8).view(torch.bool)
    copying("u32").f(torch.tensor([True, False, True]), mask, threads=3)
    assert mask.view(torch.uint8).tolist() == [1, 0, 1]


def test_vectors_need_whole_tensors():
    library = copying("vec4<f32>")
    x, out = torch.randn(8), torch.zeros(8)
    library.f(x, out, threads=2)
    assert torch.equal(out, x)
    with pytest.raises(LaunchError, match=r"is vec4<f32>: must have a multiple of 4 elements, got 7"):
        library.f(x[:7], out, threads=2)


def test_empty_tensors_and_no_threads(scale):
    empty = torch.empty(0)
    scale.scale(empty, empty.clone(), 0, 1.0, threads=1)
    out = torch.zeros(1)
    scale.scale(torch.ones(1), out, 1, 1.0, threads=0)
    assert out.item() == 0


@pytest.mark.parametrize(
    ("arguments", "threads", "message"),
    [
        (lambda x: (x, x.clone(), 8), 8, "needs 2 tensors and 2 numbers (in order: x, out, count, factor), but got 2 "
         "tensors and 1 numbers"),
        (lambda x: (x, 8, 1.0), 8, "needs 2 tensors and 2 numbers (in order: x, out, count, factor), but got 1 tensors "
         "and 2 numbers"),
        (lambda x: (x, x, 8, 1.0), 8, "out and x share memory, and one is written; use one variable for both in "
         "the kernel, or pass a .clone()"),
        (lambda x: (x[1:], x, 8, 1.0), 8, "out and x share memory, and one is written; use one variable for both in "
         "the kernel, or pass a .clone()"),
        (lambda x: (x.double(), x, 8, 1.0), 8, "argument 1 (x) is f32: must be float32 or float16 or bfloat16, got "
         "float64"),
        (lambda x: (x, x.view(2, 4).t(), 8, 1.0), 8, "argument 2 (out) must be contiguous; pass its .contiguous()"),
        (lambda x: (x.to("meta"), x, 8, 1.0), 8, "argument 1 (x) must be in host memory, got a tensor on meta"),
        (lambda x: (x, x.clone(), -1, 1.0), 8, "number count must fit u32 (0 to 4294967295), got -1"),
        (lambda x: (x, x.clone(), 1.5, 1.0), 8, "number count is u32: must be an int, got float"),
        (lambda x: (x, x.clone(), 8, 1e39), 8, "number factor must fit f32, got 1e+39"),
        (lambda x: (x, x.clone(), 8, "1"), 8, "number factor is f32: must be a float, got str"),
        (lambda x: (x, x.clone(), 8, 1.0), -1, "threads must be one to three numbers from 0 on, got -1"),
    ],
)  # fmt: skip
def test_a_wrong_launch_is_one_clear_line(scale, arguments, threads, message):
    with pytest.raises(LaunchError) as caught:
        scale.scale(*arguments(torch.zeros(8)), threads=threads)
    assert str(caught.value) == f"scale: {message}"


def test_more_groups_than_a_dimension_has_are_refused(scale):
    x = torch.zeros(1)
    with pytest.raises(LaunchError) as caught:
        scale.scale(x, x.clone(), 1, 1.0, threads=2**40)
    assert "a launch has at most" in str(caught.value)
    assert str(caught.value).endswith("let the kernel loop over its elements, or use another dimension")


def test_a_tensor_larger_than_a_buffer_is_refused_by_name(scale):
    large = torch.empty(scale.scale._device.most_bytes // 4 + 1)  # never touched, so it takes no memory
    with pytest.raises(LaunchError, match=r"argument 1 \(x\) has \d+ bytes; .* takes at most \d+ bytes in a buffer"):
        scale.scale(large, torch.zeros(1), 1, 1.0, threads=1)


def test_a_compile_error_has_its_line_and_the_whole_log():
    with pytest.raises(CompileError) as caught:
        inline.compile(SCALE.replace("numbers.count", "nothing"), "webgpu")
    first, *rest = str(caught.value).splitlines()
    assert first == "kernel.wgsl:10:20: error: no definition in scope for identifier: `nothing`"
    assert any("if (thread.x < nothing)" in line for line in rest)
    assert "In wgpuDeviceCreateShaderModule" in caught.value.log


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the source has no kernel"),
        ("fn f() {}", "the source has no kernel"),
        ("@compute @workgroup_size(9999) fn f() {}", "workgroup size [9999, 1, 1]"),
        (
            "var<workgroup> big: array<f32, 1000000>; @compute @workgroup_size(1) fn f() { big[0] = 1.0; }",
            "f: its workgroup memory takes 4000000 bytes",
        ),
    ],
)
def test_what_cannot_be_a_kernel_does_not_build(text, message):
    with pytest.raises(CompileError) as caught:
        inline.compile(text, "webgpu")
    assert message in str(caught.value)


def test_flags_are_refused():
    with pytest.raises(CompileError, match="WGSL has no compiler flags"):
        inline.compile(SCALE, "webgpu", flags=["-O3"])


def test_the_standards_directive_for_subgroups_is_accepted():
    library = inline.compile(
        "enable subgroups;\n@group(0) @binding(0) var<storage, read_write> out: array<f32>;\n"
        f"@compute @workgroup_size(4) fn f({THREAD}) {{ out[t.x] = subgroupMax(1.0); }}",
        "webgpu",
    )
    out = torch.zeros(4)
    library.f(out, threads=4)
    assert out.tolist() == [1] * 4


def test_launches_are_timed_by_the_device(scale):
    x, out = torch.randn(1000), torch.empty(1000)
    with launches.recorded() as found:
        scale.scale(x, out, 1000, 1.0, threads=1000)
        scale.scale(x, out, 1000, 1.0, threads=1000)
    assert [one.name for one in found] == ["scale", "scale"]
    assert all(one.end >= one.start for one in found)
    assert found[1].start >= found[0].end
    assert torch.equal(out, x)


def test_libraries_and_kernels_are_copied_and_pickled(scale):
    x = torch.randn(9)
    for kernel in (pickle.loads(pickle.dumps(scale)).scale, copy.deepcopy(scale.scale)):
        out = torch.zeros(9)
        kernel(x, out, 9, 2.0, threads=9)
        assert torch.equal(out, 2 * x)


def test_parameters_of_a_module_can_be_arguments(scale):
    weight, out = torch.nn.Parameter(torch.randn(5)), torch.zeros(5)
    scale.scale(weight, out, 5, 1.0, threads=5)
    assert torch.equal(out, weight.detach())
