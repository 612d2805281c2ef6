import pytest
from hypothesis import given
from hypothesis import strategies as st

from kforge.inline import CompileError, abi
from kforge.inline.signature import parse


def shapes(source):
    return {
        name: [(p.name, p.element.spelling, p.pointer) for p in signature.parameters]
        for name, signature in parse(source).items()
    }


def test_single_definition():
    source = 'extern "C" void f(const float* __restrict__ x, float *out, int64_t n, bool causal) { out[0] = x[n]; }'
    assert shapes(source) == {
        "f": [("x", "float", True), ("out", "float", True), ("n", "int64_t", False), ("causal", "bool", False)]
    }


def test_block_with_comments_helpers_structs_and_tables():
    source = r"""
    #include <cmath>
    #define EXTERN extern "C" /* a macro
        over two lines */
    // extern "C" void not_this(float* x) {}
    const char* text = R"(extern "C" void nor_this(int n) {})";
    extern "C" {
    static inline float gelu(float x) { return x * 0.5f * (1 + erff(x)); }
    struct Tile { int rows; int columns; };
    typedef float (*unary)(float);
    float table[2] = {1'000.0f, '{'};
    int cells = int(3);
    /* first */ void first(
        const float* x,   // the input
        std::int64_t n    /* its length */
    ) noexcept {
        if (n) { for (;;) { break; } }
    }
    __attribute__((noinline)) double second(unsigned long int n[], void* any) { return 1.0; }
    }
    """
    assert shapes(source) == {
        "first": [("x", "float", True), ("n", "int64_t", False)],
        "second": [("n", "unsigned long", True), ("any", "void", True)],
    }
    assert parse(source)["second"].returns.spelling == "double"


def test_an_indented_directive_is_one_too():
    assert shapes('extern "C" {\n    #include <cmath>\n    void f(int n) {}\n}') == {"f": [("n", "int", False)]}


def test_a_declaration_makes_the_later_definition_callable():
    assert shapes('extern "C" void f(float*, int);\nvoid f(float* x, int n) {}') == {
        "f": [("", "float", True), ("", "int", False)]
    }


def test_a_foreign_declaration_is_passed_over():
    source = 'extern "C" int printf(const char*, ...);\nextern "C" void f() {}'
    assert shapes(source) == {"f": []}


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ('extern "C" void f(scalar_t* x) {}', "f: parameter 1 'scalar_t * x' cannot be passed from Python"),
        ('extern "C" void f(int n, float** x) {}', "f: parameter 2 'float * * x' cannot"),
        ('extern "C" void f(int& n) {}', "f: parameter 1 'int & n' cannot"),
        ('extern "C" void f(int n = 3) {}', "f: parameter 1 'int n = 3' cannot"),
        ('extern "C" void f(std::vector<float> x) {}', "f: parameter 1 'std :: vector < float > x' cannot"),
        ('extern "C" void f(_Float16 x) {}', "f: parameter 1 cannot be passed by value as _Float16"),
        ('extern "C" auto f() {}', "f: the result 'auto' cannot"),
        ('extern "C" float* f() {}', "f: cannot return 'float *'; write results into a tensor that is passed in"),
        ('extern "C" _Float16 f() {}', "f: cannot return '_Float16'; write"),
        (
            'extern "C" void f(int n) {}\nextern "C" void f(float x) {}',
            "f: defined twice with different parameters",
        ),
        ("void f(float* x) {}", 'the source has no kernel: write one as extern "C"'),
        ("", "the source has no kernel"),
    ],
)
def test_what_cannot_be_called_is_one_clear_line(source, message):
    with pytest.raises(CompileError) as caught:
        parse(source)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


names = st.from_regex(r"[a-z][a-z0-9_]{0,8}x", fullmatch=True)
blanks = st.sampled_from([" ", "\n", " /* why */ ", " // , ) {\n", "\t", "\n#define A(x) {\n"])


@st.composite
def parameters(draw):
    spelling = draw(st.sampled_from([s for s in abi.SPELLINGS if s != "void"]))
    storage = abi.element(spelling.split()).kind == "storage"
    form = draw(st.sampled_from(["{t}* {n}", "{t} *__restrict__ {n}", "{t} {n}[]", *([] if storage else ["{t} {n}"])]))
    const = draw(st.sampled_from(["const {}", "{} const", "{}"]))
    words = spelling.split()
    shuffled = " ".join(draw(st.permutations(words))) if set(words) <= {"long", "unsigned", "int", "char"} else spelling
    name = draw(names)
    return (name, spelling, form != "{t} {n}"), form.format(t=const.format(shuffled), n=name)


@given(
    kernels=st.dictionaries(names, st.lists(parameters(), max_size=5), min_size=1, max_size=4),
    blank=blanks,
    block=st.booleans(),
)
def test_whatever_is_written_is_read_back(kernels, blank, block):
    prefix = "" if block else 'extern "C" '
    functions = [
        f"{prefix}void{blank}{name}({blank}{f',{blank}'.join(text for _, text in listed)}{blank}){blank}"
        '{ if (1) { "}"; } }'
        for name, listed in kernels.items()
    ]
    source = blank.join(functions)
    if block:
        source = 'extern "C" {' + source + "}"
    assert shapes(source) == {name: [meaning for meaning, _ in listed] for name, listed in kernels.items()}


@given(st.text(alphabet='extern"C" (){}[];,*&:=#/\\\n\'voidflatxR.3', max_size=80).map('extern "C" '.__add__))
def test_no_text_breaks_the_parser(text):
    try:
        signatures = parse(text)
    except CompileError:
        return
    assert all(name.isidentifier() for name in signatures)
