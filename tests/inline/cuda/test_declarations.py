import pytest
from hypothesis import given
from hypothesis import strategies as st

from kforge.inline import CompileError, abi
from kforge.inline.cuda.declarations import clashes, parse


def shapes(source):
    return {
        name: [(p.name, p.element.spelling, p.pointer) for p in one.signature().parameters]
        for name, one in parse(source).items()
        if one.template is None
    }


def test_kernels_of_every_linkage_are_found_and_other_functions_are_not():
    source = r"""
    #include <cuda_fp16.h>
    // __global__ void not_this(float* x) {}
    __device__ float helper(float x) { return x; }
    __constant__ float table[4] = {1, 2, 3, 4};
    struct Tile { int rows; __device__ void run() {} };
    extern "C" __global__ void first(const float* __restrict__ x, int64_t n) { if (n) { } }
    static __global__ void __launch_bounds__(256, 2) second(half* y, const float4 *z, bool flag) {}
    extern "C" { __global__ __launch_bounds__(64) void third(uint4* any) { for (;;) {} } }
    namespace a { namespace b::c { __global__ void fourth() {} } __global__ void fifth(int half) {} }
    """
    assert shapes(source) == {
        "first": [("x", "float", True), ("n", "int64_t", False)],
        "second": [("y", "half", True), ("z", "float4", True), ("flag", "bool", False)],
        "third": [("any", "uint4", True)],
        "fourth": [],
        "fifth": [("half", "int", False)],
    }
    found = parse(source)
    assert [one.expression for one in found.values()] == ["first", "second", "third", "a::b::c::fourth", "a::fifth"]
    assert [one.c_linkage for one in found.values()] == [True, False, True, False, False]


TEMPLATE = """
template <typename T, int N = 4, bool Causal = (1 > 2), typename U = T>
__global__ void __launch_bounds__(N * 32) scale(const T* x, U* out, int64_t n) {}
template __global__ void scale<float, 8>(const float*, float*, int64_t);
"""


@pytest.mark.parametrize(
    ("arguments", "expression", "types"),
    [
        (("float",), "scale<float>", ["float", "float", "int64_t"]),
        (("__half", 8), "scale<__half, 8>", ["__half", "__half", "int64_t"]),
        (("unsigned int", 8, True), "scale<unsigned int, 8, true>", ["unsigned int", "unsigned int", "int64_t"]),
        (("float", 8, False, "double"), "scale<float, 8, false, double>", ["float", "double", "int64_t"]),
    ],
)
def test_a_template_is_read_with_its_arguments(arguments, expression, types):
    kernel = parse(TEMPLATE)["scale"]
    given, signature = kernel.instance(arguments)
    assert given == expression
    assert signature.name == expression
    assert [p.element.spelling for p in signature.parameters] == types


def test_torch_dtypes_are_template_arguments():
    import torch

    assert parse(TEMPLATE)["scale"].instance((torch.bfloat16,))[0] == "scale<__nv_bfloat16>"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("float", 1, True, "int", 5), "scale: takes 4 template arguments (T, N, Causal, U), got 5"),
        ((1.5,), "scale: a template argument must be a C++ type's name, an int, a bool or a dtype"),
        (("Tile",), "scale<Tile>: parameter 1 'const Tile * x' cannot be passed from Python"),
    ],
)
def test_wrong_template_arguments_are_one_clear_line(arguments, message):
    with pytest.raises(CompileError) as caught:
        parse(TEMPLATE)["scale"].instance(arguments)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_a_definition_counts_more_than_a_declaration_and_clashes_are_seen():
    source = "__global__ void f(float* x, int n) {}\n__global__ void f(float*, int);"
    assert shapes(source) == {"f": [("x", "float", True), ("n", "int", False)]}
    assert clashes(source) == []
    assert clashes("__global__ void f(float* x) {}\n__global__ void f(int* x) {}") == ["f"]
    assert clashes("namespace a { __global__ void f() {} }\nnamespace b { __global__ void f() {} }") == ["f"]


def test_what_cannot_cross_the_border_is_said_when_the_signature_is_asked_for():
    kernels = parse("__global__ void f(float** x) {}\n__global__ void g(half x) {}")
    with pytest.raises(CompileError, match=r"^f: parameter 1 'float \* \* x' cannot be passed from Python"):
        kernels["f"].signature()
    with pytest.raises(CompileError, match=r"^g: parameter 1 cannot be passed by value as half$"):
        kernels["g"].signature()


names = st.from_regex(r"[a-z][a-z0-9_]{0,8}x", fullmatch=True)


@given(
    st.dictionaries(
        names, st.lists(st.sampled_from([s for s in abi.SPELLINGS if s != "void"]), max_size=5), min_size=1, max_size=4
    ),
    st.sampled_from(["", 'extern "C" ', "static ", "__launch_bounds__(64, 1) "]),
    st.sampled_from(["{}", "namespace n {{ {} }}", 'extern "C" {{ {} }}', "struct S {{ int x; }}; {}"]),
)
def test_whatever_is_written_is_read_back(kernels, prefix, around):
    text = "\n".join(
        f"{prefix}__global__ void {name}({', '.join(f'const {t}* a{i}' for i, t in enumerate(listed))}) {{ int i; }}"
        for name, listed in kernels.items()
    )
    assert shapes(around.format(text)) == {
        name: [(f"a{i}", t, True) for i, t in enumerate(listed)] for name, listed in kernels.items()
    }


@given(st.text(alphabet='extern"C" (){}[]<>;,*&:=#/\\\n\'voidtemplate__global__.3', max_size=80))
def test_no_text_breaks_the_parser(text):
    for source in (text, "__global__ " + text, "template <" + text, "namespace x {" + text):
        assert all(name.isidentifier() for name in parse(source))
        assert isinstance(clashes(source), list)
