"""Messages of SYCL's compiler become those of other compilers."""

from kforge.inline import diagnostics
from kforge.inline.sycl.library import plain, prelude

SEEN = """Device compilation failed
Detailed information:
\trtc_0.cpp:{line}:21: error: use of undeclared identifier 'no_such_function'
    2 | void wrong(int n) {{ no_such_function(n); }}
      |                     ^~~~~~~~~~~~~~~~
"""


def test_lines_are_those_of_the_kernels_own_source() -> None:
    assert prelude().endswith('#line 1 "kernel.cpp"\n')
    log = plain(SEEN.format(line=prelude().count("\n") + 2))
    assert diagnostics.trim(log).splitlines() == [
        "kernel.cpp:2:21: error: use of undeclared identifier 'no_such_function'",
        "    2 | void wrong(int n) { no_such_function(n); }",
        "      |                     ^~~~~~~~~~~~~~~~",
    ]
