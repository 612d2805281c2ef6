from kforge.inline.cuda.resources import Resources, read, without_report

REPORT = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_ZN2ns6spillyEPfi' for 'sm_90'
ptxas info    : Function properties for _ZN2ns6spillyEPfi
ptxas         .     1352 bytes stack frame, 2352 bytes spill stores, 2584 bytes spill loads
ptxas info    : Used 32 registers, used 0 barriers, 1352 bytes cumulative stack size
ptxas info    : Compile time = 84.641 ms
ptxas info    : Compiling entry function 'c' for 'sm_90'
ptxas info    : Function properties for c
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 10 registers, used 1 barriers, 256 bytes smem
ptxas info    : Compile time = 1.317 ms
"""


def test_the_assemblers_report_is_read_by_symbol():
    assert read(REPORT) == {
        "_ZN2ns6spillyEPfi": Resources(32, 0, 1352, 2352, 2584),
        "c": Resources(10, 256, 0, 0, 0),
    }
    assert read("") == {}


def test_errors_stay_when_the_report_goes():
    error = "ptxas error   : Entry function 'f' uses too much shared data (0x13880 bytes, 0xc000 max)\n"
    assert without_report(REPORT + error) == error
