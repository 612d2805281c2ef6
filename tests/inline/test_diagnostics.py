from kforge.inline.diagnostics import trim

LOG = """\
In file included from kernel.cpp:1:
kernel.cpp: In function 'void f(float*)':
kernel.cpp:3:9: warning: unused variable 'y' [-Wunused-variable]
    3 |     int y;
      |         ^
kernel.cpp:4:13: error: 'z' was not declared in this scope
    4 |     x[0] = z;
      |            ^
kernel.cpp:4:13: note: suggested alternative: 'x'
    4 |     x[0] = z;
      |            ^
"""


def test_only_errors_and_their_context_are_kept():
    assert trim(LOG).splitlines() == LOG.splitlines()[5:8]


def test_a_long_log_says_how_much_was_cut():
    trimmed = trim("".join(f"kernel.cpp:{n}:1: error: no\n" for n in range(100))).splitlines()
    assert len(trimmed) == 40
    assert trimmed[0] == "kernel.cpp:0:1: error: no"
    assert trimmed[-1] == "... and 61 more lines"


def test_the_linker_is_heard_and_its_summary_is_not():
    log = (
        "/usr/bin/ld: kernel.o: in function `f':\n"
        "kernel.cpp:(.text+0x1): undefined reference to `g()'\n"
        "collect2: error: ld returned 1 exit status\n"
    )
    assert trim(log) == "kernel.cpp:(.text+0x1): undefined reference to `g()'"


def test_an_unknown_log_is_kept_from_its_end():
    assert trim("\n".join(map(str, range(100)))).splitlines() == [str(n) for n in range(60, 100)]
    assert trim("") == ""
