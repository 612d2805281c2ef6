import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import torch

import kforge.inline
from kforge import inline
from kforge.inline import CompileError, ToolchainError


def test_all_names_are_there():
    assert all(hasattr(kforge.inline, name) for name in kforge.inline.__all__)


def test_importing_it_imports_neither_torch_nor_the_rest_of_kforge():
    program = """
import sys
from kforge import inline
print(sorted(m for m in sys.modules if m == "torch" or m.startswith("kforge") and "inline" not in m))
"""
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "['kforge']"


def test_a_wrong_source_gives_the_lines_that_matter_and_the_whole_log():
    source = '#warning noise\nextern "C" void f(float* x) {\n    x[0] = missing;\n}\n'
    with pytest.raises(CompileError) as caught:
        inline.compile(source)
    first, *context = str(caught.value).splitlines()
    assert first == "kernel.cpp:3:12: error: 'missing' was not declared in this scope"
    assert "x[0] = missing;" in context[0]
    assert "noise" not in str(caught.value)
    assert "noise" in caught.value.log


def test_an_undefined_function_fails_at_build_time():
    with pytest.raises(CompileError, match="undefined reference to `g"):
        inline.compile('void g();\nextern "C" void f() { g(); }')


def test_a_source_without_kernels_is_refused():
    with pytest.raises(CompileError, match="the source has no kernel"):
        inline.compile("void f() {}")


def test_an_unknown_language_and_flags_as_text_are_refused(scale_source):
    with pytest.raises(ToolchainError, match=r"no backend for the language 'cobol'; known languages: c\+\+, cuda"):
        inline.compile(scale_source, language="cobol")
    with pytest.raises(ToolchainError, match="flags must be a list of strings, got the string '-g'"):
        inline.compile(scale_source, flags="-g")


def test_flags_reach_the_compiler_and_the_linker():
    source = 'extern "C" int f() { return VALUE; }'
    assert inline.compile(source, flags=["-DVALUE=3"]).f() == 3
    assert inline.compile(source, flags=["-DVALUE=4"]).f() == 4
    with pytest.raises(CompileError, match="cannot find -lno_such_library"):
        inline.compile(source, flags=["-DVALUE=3", "-lno_such_library"])


def test_fast_math_leaves_the_denormals_of_the_process_alone():
    inline.compile('extern "C" float f(float x) { return x * x; }', flags=["-ffast-math"]).f(1.0)
    assert (torch.tensor(1e-40) * 1.0).item() > 0


def test_no_compiler_is_said_in_one_line(scale_source, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        ToolchainError, match=r"no C\+\+ compiler found \(looked for g\+\+, c\+\+, clang\+\+\); install g\+\+"
    ):
        inline.compile(scale_source)


def test_a_cache_that_cannot_be_written_is_said_in_one_line(scale_source, tmp_path):
    (tmp_path / "file").touch()
    inline.configure(cache=tmp_path / "file" / "cache")
    with pytest.raises(ToolchainError, match=r"cannot write the build cache .*: Not a directory; choose another"):
        inline.compile(scale_source)


def test_a_hanging_compiler_dies_at_the_deadline_with_its_children(scale_source, monkeypatch, tmp_path):
    compiler = tmp_path / "bin" / "g++"
    compiler.parent.mkdir()
    compiler.write_text(
        f'#!/bin/sh\ncase "$*" in *"-###"*) exit 0;; esac\nsleep 300 & echo $! > {tmp_path}/child; wait\n'
    )
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", f"{compiler.parent}:{os.environ['PATH']}")
    inline.configure(deadline=0.5)
    with pytest.raises(CompileError, match=r"^the compiler was stopped after 0\.5 s$"):
        inline.compile(scale_source)
    assert not _alive(int((tmp_path / "child").read_text()))


def _alive(process, patience=50):
    for _ in range(patience):
        try:
            if Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                return False
        except (FileNotFoundError, ProcessLookupError):
            return False
        time.sleep(0.1)
    return True


def test_the_second_build_comes_from_the_cache(scale_source, cache):
    inline.compile(scale_source)
    (entry,) = cache.iterdir()
    before = entry.stat()
    inline.compile(scale_source)
    assert [entry] == list(cache.iterdir())
    assert (entry.stat().st_ino, entry.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_damaged_entries_are_built_anew(scale_source, cache):
    broken = {}
    for damage in ("cut", "empty", "flipped"):
        inline.compile(f"{scale_source}// {damage}")
        (entry,) = set(cache.iterdir()) - set(broken)
        whole = entry.read_bytes()
        middle = len(whole) // 2
        broken[entry] = {
            "cut": whole[:middle],
            "empty": b"",
            "flipped": whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :],
        }[damage]
        # Another file: this process keeps what it has mapped, and would not survive a cut in it.
        entry.unlink()
        entry.write_bytes(broken[entry])
    program = f"""
import sys, torch
from pathlib import Path
from kforge import inline
inline.configure(cache=Path(sys.argv[1]))
for damage in ("cut", "empty", "flipped"):
    out = torch.empty(1)
    inline.compile({scale_source!r} + "// " + damage).scale(torch.ones(1), out, 1, 3.0)
    print(out.item())
"""
    assert subprocess.check_output([sys.executable, "-c", program, str(cache)], text=True).split() == ["3.0"] * 3
    assert all(entry.read_bytes() != damaged for entry, damaged in broken.items())


def test_processes_that_race_for_one_build_all_get_it(scale_source, cache):
    """Copies of a process that has torch imported, since four imports would take longer than the race."""
    program = f"""
import os, sys, torch
from pathlib import Path
from kforge import inline
inline.configure(cache=Path(sys.argv[1]))

def race():
    for n in range(3):
        library = inline.compile({scale_source!r} + f"// {{n}}")
        out = torch.empty(64)
        library.scale(torch.ones(64), out, 64, 3.0)
        assert (out == 3).all()

start, go = os.pipe()
racers = []
for _ in range(4):
    racers.append(os.fork())
    if not racers[-1]:
        os.close(go)
        os.read(start, 1)  # until the parent has closed its end, too
        race()
        os._exit(0)
os.close(go)
print([os.waitpid(racer, 0)[1] for racer in racers])
"""
    assert subprocess.check_output([sys.executable, "-c", program, str(cache)], text=True) == "[0, 0, 0, 0]\n"
    assert len(list(cache.iterdir())) == 3


def test_flags_for_every_build_reach_compiler_and_linker(tmp_path):
    """A sanitizer's build needs its runtime at both steps; the overflow below is found without help of the kernel."""
    runtime = subprocess.run(["g++", "-print-file-name=libubsan.so"], capture_output=True, text=True, check=True).stdout
    if not Path(runtime.strip()).is_absolute():
        pytest.skip("this g++ has no sanitizer runtime")
    code = textwrap.dedent(f"""
        from pathlib import Path
        from kforge import inline
        inline.configure(cache=Path({str(tmp_path)!r}), flags=("-fsanitize=undefined", "-fno-sanitize-recover=all"))
        inline.compile('extern "C" int twice(int x) {{ return 2 * x; }}').twice(2**30)
    """)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "signed integer overflow" in done.stderr
