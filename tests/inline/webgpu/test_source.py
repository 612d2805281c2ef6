"""What the reader of WGSL finds, without a device."""

import pytest

from kforge.inline import CompileError
from kforge.inline.webgpu.declarations import Override, Shape
from kforge.inline.webgpu.source import entries

THREAD = "@builtin(global_invocation_id) t: vec3<u32>"


def entry(text, name="f"):
    return {one.name: one for one in entries(text)}[name]


def test_buffers_are_in_the_order_of_their_bindings():
    found = entry(
        f"""
        @group(0) @binding(7) var<storage, read_write> out: array<f32>;
        @binding(2) @group(0) var<storage, read> x: array<vec4<f32>>;
        @group(0) @binding(5) var<storage> y: array<u32, 8>; // without an access mode it is read
        @compute @workgroup_size(8, 4) fn f({THREAD}) {{ out[t.x] = x[t.x].y + f32(y[0]); }}
        """
    )
    assert [(one.name, one.binding, one.writable) for one in found.buffers] == [
        ("x", 2, False), ("y", 5, False), ("out", 7, True),
    ]  # fmt: skip
    assert [one.shape for one in found.buffers] == [Shape("f32", 4, None), Shape("u32", 1, 8), Shape("f32", 1, None)]
    assert found.group_size == (8, 4, 1)


def test_a_kernel_has_the_variables_that_it_reaches_and_no_others():
    text = f"""
        @group(0) @binding(0) var<storage, read> a: array<f32>;
        @group(0) @binding(1) var<storage, read> b: array<f32>;
        @group(0) @binding(1) var<storage, read_write> c: array<f32>;
        @group(0) @binding(2) var<storage, read_write> d: array<f32>;
        fn inner(i: u32) -> f32 {{ return a[i]; }}
        fn outer(i: u32) -> f32 {{ return inner(i) + 1.0; }}
        fn hidden(b: f32) -> f32 {{ return b; }}
        /* fn comment(d: f32) {{ d[0] = b[0]; }} */
        @compute @workgroup_size(1) fn f({THREAD}) {{ c[t.x] = hidden(outer(t.x)); }}
        @compute @workgroup_size(1) fn g({THREAD}) {{ d[t.x] = b[t.x]; }}
    """
    assert [one.name for one in entry(text, "f").buffers] == ["a", "c"]
    assert [one.name for one in entry(text, "g").buffers] == ["b", "d"]


def test_a_member_is_not_a_variable_of_the_same_name():
    text = f"""
        @group(0) @binding(0) var<storage, read_write> x: array<f32>;
        @group(0) @binding(1) var<storage, read_write> out: array<f32>;
        @compute @workgroup_size(1) fn f({THREAD}) {{ out[t.x] = f32(t.x); }}
    """
    assert [one.name for one in entry(text).buffers] == ["out"]


def test_uniform_structures_name_their_members():
    found = entry(
        f"""
        alias Count = u32;
        struct Sizes {{ rows: Count, eps: f32, shape: vec4u, last: vec2<i32>, }}
        @group(0) @binding(0) var<uniform> sizes: Sizes;
        @group(0) @binding(1) var<uniform> factor: f32;
        @group(0) @binding(2) var<storage, read_write> out: array<f32>;
        @compute @workgroup_size(1) fn f({THREAD}) {{ out[t.x] = factor + f32(sizes.rows); }}
        """
    )
    assert [[name for name, _ in one.members] for one in found.uniforms] == [
        ["rows", "eps", "shape", "last"],
        ["factor"],
    ]
    assert [shape for _, shape in found.uniforms[0].members] == [
        Shape("u32"), Shape("f32"), Shape("u32", 4), Shape("i32", 2),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("declared", "size"),
    [
        ("@workgroup_size(64)", (64, 1, 1)),
        ("@workgroup_size(0x10u, 2i, 3)", (16, 2, 3)),
        ("@workgroup_size(TILE, TILE / 2)", (16, 8, 1)),
        ("@workgroup_size(TILE * TILE,)", (256, 1, 1)),
        ("@workgroup_size(u32(TILE) + 1u)", (17, 1, 1)),
    ],
)
def test_the_size_of_a_group_is_computed(declared, size):
    assert entry(f"const TILE: u32 = 16; @compute {declared} fn f({THREAD}) {{}}").group_size == size


def test_override_constants_are_left_to_the_launch():
    text = f"""
        override wide: u32 = 32 * 4;
        @id(7) override high: u32;
        @compute @workgroup_size(wide, high) fn f({THREAD}) {{}}
    """
    wide, high, deep = entry(text).group_size
    assert wide == Override("wide", "wide", 128)
    assert high == Override("high", "7", None)
    assert deep == 1


@pytest.mark.parametrize(
    ("body", "read"),
    [
        ("out[t.x] = 1.0;", False),
        ("if (t.x < arrayLength(&out)) { out[t.x + 1u] = 1.0; }", False),
        ("out[t.x] += 1.0;", True),
        ("if (out[t.x] == 1.0) { out[t.x] = 0.0; }", True),
        ("let p = &out[t.x]; *p = 1.0;", True),
        ("out[u32(out[t.x])] = 1.0;", True),
    ],
)
def test_whether_an_output_is_read(body, read):
    text = f"""
        @group(0) @binding(0) var<storage, read_write> out: array<f32>;
        @compute @workgroup_size(1) fn f({THREAD}) {{ {body} }}
    """
    assert ("out" in entry(text).read) is read


def test_workgroup_memory_is_counted():
    text = f"""
        struct Pair {{ a: f32, b: vec2<f32> }}
        const N = 32;
        var<workgroup> tile: array<array<f32, N>, 33>;
        var<workgroup> pairs: array<Pair, 2>;
        var<workgroup> unused: array<f32, 1000>;
        @compute @workgroup_size(1) fn f({THREAD}) {{ tile[0][0] = 1.0; pairs[1].a = 2.0; }}
    """
    assert entry(text).group_bytes == 4 * 32 * 33 + 2 * 12


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "@group(1) @binding(0) var<storage> x: array<f32>;",
            "f: variable x must be in @group(0)",
        ),
        (
            "struct P { a: f32 } @group(0) @binding(0) var<storage> x: array<P>;",
            "f: variable x has the type array<P>, which no tensor has",
        ),
        (
            "@group(0) @binding(0) var<storage> x: array<vec3<f32>>;",
            "f: variable x: an element vec3<f32> takes 16 bytes in a buffer, but three numbers of a tensor take 12; "
            "use array<f32>",
        ),
        (
            "struct P { @align(16) x: f32 } @group(0) @binding(0) var<uniform> x: P;",
            "f: variable x has the type P; a uniform variable is a number",
        ),
        (
            "@group(0) @binding(0) var<uniform> x: array<vec4<f32>, 2>;",
            "f: variable x has the type array<vec4<f32>,2>; a uniform variable is a number",
        ),
    ],
)
def test_what_cannot_be_passed_is_refused_by_name(text, message):
    with pytest.raises(CompileError) as caught:
        entries(f"{text} @compute @workgroup_size(1) fn f({THREAD}) {{ let y = x; }}")
    assert str(caught.value).startswith(message)
