"""Hostile programs in real workers: nothing outside can be read, written, reached, seen or signalled."""

from __future__ import annotations

import fcntl
import os
import platform
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import kforge
from kforge import platforms, problems
from kforge.evaluation import Judge
from kforge.evaluation.constants import KEPT_LOG, SCRATCH_ENTRIES
from kforge.evaluation.processes.worker_fork_server import FRONT
from kforge.evaluation.processes.worker_start import Prepared
from kforge.evaluation.sandbox import LADDER, border, syscalls
from kforge.evaluation.transport import wire
from kforge.evaluation.worker_client.client import Fault, WorkerClient
from kforge.evaluation.worker_client.output_access import HostAccess
from kforge.platforms import Sanitizer
from kforge.records import Candidate, EvaluationPolicy

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.evaluation.sandbox.conftest import Inside

    from kforge.evaluation.processes.worker_start import Workers

TINY = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)

def get_inputs():
    return [torch.randn(8, 8)]

def get_init_inputs():
    return []
"""


def has_right(capability: int) -> bool:
    """Whether this process has a capability."""
    if sys.platform != "linux":
        return False
    told = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("CapEff"))
    return bool(int(told.split()[1], 16) >> capability & 1)


def test_files_outside_cannot_be_read(inside: Inside, tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    key = home / ".ssh" / "id_ed25519"
    key.write_text("secret")
    link = tmp_path / "builds" / "link"
    link.parent.mkdir()
    link.symlink_to(key)
    paths = [key, home, link, Path.home(), Path("/etc/shadow"), Path(__file__), tmp_path]
    code = f"say([attempt(Path(p).read_bytes) for p in {[str(p) for p in paths]!r}])"
    answers = inside(code).split(", ")
    assert len(answers) == len(paths)
    assert all("refused" in answer or "IsADirectory" in answer for answer in answers), answers
    listed = inside(f"say([attempt(os.listdir, p) for p in {[str(p) for p in paths if p.is_dir()]!r}])")
    assert "id_ed25519" not in listed
    assert ".ssh" not in listed
    assert "secret" not in listed


def test_a_folder_on_path_that_holds_the_users_own_files_is_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cause: PATH was shown as it was; and a referee, started elsewhere, did not know what is private to its user."""
    project = tmp_path / "project"
    (project / "tools").mkdir(parents=True)
    (project / "notes").write_text("private")
    (project / "tools" / "tool").write_text("shared")
    (tmp_path / "problem.py").write_text(TINY)
    problem = problems.load(tmp_path / "problem.py")
    monkeypatch.chdir(project)
    path = os.pathsep.join([str(project), f"/{project}", str(project / "tools"), os.environ["PATH"]])
    environment = {"PATH": path, "HOME": os.environ["HOME"]}
    code = f"raise ValueError([os.path.exists({str(project)!r} + name) for name in ('/notes', '/tools/tool')])"
    source = f"import os\nclass ModelNew: pass\n{code}\n"
    with Judge(
        platforms.find("null"),
        EvaluationPolicy(compile_baseline=False),
        cache=tmp_path / "cache",
        environment=environment,
    ) as judge:
        evaluation = judge.evaluate(problem, Candidate(source=source, platform="null"))
    assert evaluation.verdict.reason == "ValueError: [False, True]", evaluation.receipt.sandbox


@pytest.mark.parametrize("layer", LADDER)
def test_a_home_in_a_system_folder_is_not_shown_and_can_hold_builds(
    layer: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    inside_with_private: Callable[[str, Path, Path, str], str],
) -> None:
    """Cause: system folders were shown whole. A home in one was shown, and its closed folders hid the builds of root's
    workers, who are somebody else."""
    opt, home = tmp_path / "opt", tmp_path / "opt" / "app"
    builds = home / ".cache" / "builds"
    builds.mkdir(parents=True)
    builds.parent.chmod(0o700)
    (opt / "tool").mkdir()
    (opt / "current").symlink_to(home)
    for file in (home / "secret.env", opt / "tool" / "shared"):
        file.write_text("content")
    monkeypatch.setattr(border, "SYSTEM", (*border.SYSTEM, str(opt)))
    paths = [str(path) for path in (home / "secret.env", opt / "current" / "secret.env", opt / "tool" / "shared")]
    code = f"""
said = [attempt(Path(path).read_text).partition(":")[0] for path in {paths!r}]
say([*said, attempt(Path({str(builds / "kept")!r}).write_text, "kept")])"""
    said = inside_with_private(layer, home, builds, code)
    assert said == "['refused', 'refused', 'succeeded', 'succeeded: 4']"
    assert (builds / "kept").read_text() == "kept"


def test_files_outside_cannot_be_written(inside: Inside, tmp_path: Path) -> None:
    # in a folder of its own: the way to a worker's builds is there inside too, but private and empty
    victim = tmp_path / "folder" / "victim"
    victim.parent.mkdir()
    victim.write_text("whole")
    package = Path(kforge.__file__)
    code = f"""
victim, package = Path({str(victim)!r}), Path({str(package)!r})
import torch
say([
    attempt(victim.write_text, "broken"), attempt(os.truncate, victim, 0), attempt(os.unlink, victim),
    attempt(os.rename, victim, "mine"), attempt(os.chmod, victim, 0), attempt(os.link, victim, "linked"),
    attempt((victim.parent / "new").touch), attempt(os.mkdir, victim.parent / "made"),
    attempt(package.write_text, "broken"), attempt((package.parent / "new.py").touch), attempt(os.unlink, package),
    attempt(Path(torch.__file__).write_text, "broken"), attempt((Path(sys.prefix) / "new").touch),
    attempt(Path(sys.executable).write_text, "broken"), attempt(Path("/usr/new").touch), attempt(Path("/new").touch),
    attempt(Path("/etc/new").touch), attempt(os.symlink, "x", "/usr/link"),
])"""
    before = package.read_bytes()
    answers = inside(code).split(", ")
    assert len(answers) == 18
    assert all("refused" in answer for answer in answers), answers
    assert victim.read_text() == "whole"
    assert package.read_bytes() == before
    assert list(victim.parent.iterdir()) == [victim]
    assert not Path("/usr/new").exists()


def test_another_workers_folders_cannot_be_reached(
    workers: Workers, client: Callable[[Path | None], WorkerClient], inside: Inside, tmp_path: Path
) -> None:
    others = tmp_path / "others"
    client(others).load(f"open({str(others / 'kept')!r}, 'w').write('theirs')", "candidate.py", "__name__")
    assert (others / "kept").read_text() == "theirs"
    places = [str(others), str(others / "kept"), str(workers._work), *map(str, workers._work.glob("worker-*"))]
    code = f"""
mine = Path.cwd()
said = [attempt(os.listdir, p) + attempt(Path(p).read_bytes) for p in {places!r} if Path(p) != mine]
said += [attempt((Path(p) / "x").touch) for p in {places!r} if Path(p) not in (mine, mine.parent)]
say([s for s in said if "succeeded" in s and "worker-" not in s])"""
    assert inside(code) == "[]"


def test_the_network_cannot_be_reached(inside: Inside, tmp_path: Path) -> None:
    by_path = tmp_path / "socket"
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_UNIX) as abstract,
        socket.socket(socket.AF_UNIX) as named,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams,
    ):
        name = f"\0kforge-test-{os.getpid()}"
        abstract.bind(name)
        named.bind(str(by_path))
        datagrams.bind(("127.0.0.1", 0))
        datagrams.setblocking(False)
        for listener in (abstract, named):
            listener.listen()
        code = f"""
def unix(name, kind=socket.SOCK_STREAM):
    with socket.socket(socket.AF_UNIX, kind) as s: s.connect(name)
def udp(port):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s: s.sendto(b"x", ("127.0.0.1", port))
def redirected(name):
    a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM); a.connect(name)
say([
    attempt(socket.create_connection, ("127.0.0.1", {server.getsockname()[1]}), 2),
    attempt(socket.create_connection, ("192.0.2.1", 80), 0.2),
    attempt(udp, {datagrams.getsockname()[1]}), attempt(unix, {name!r}), attempt(unix, {str(by_path)!r}),
    attempt(redirected, {str(by_path)!r}),
    *(attempt(socket.socket, f, socket.SOCK_DGRAM) for f in (socket.AF_VSOCK, socket.AF_NETLINK, socket.AF_PACKET, 38)),
])"""
        answers = inside(code).split(", ")
        assert len(answers) == 10
        assert all("refused" in answer for answer in answers), answers
        with pytest.raises(BlockingIOError):
            datagrams.recv(1)


def test_other_processes_cannot_be_seen_or_signalled(inside: Inside) -> None:
    code = f"""
pid = {os.getpid()}
say("; ".join([
    attempt(os.kill, pid, 0), attempt(os.kill, pid, signal.SIGUSR1), attempt(os.killpg, {os.getpgid(0)}, 0),
    attempt(Path(f"/proc/{{pid}}/environ").read_bytes), attempt(Path(f"/proc/{{pid}}/cmdline").read_bytes),
    attempt(Path("/proc/1/environ").read_bytes), attempt(Path("/proc/1/mem").open, "rb"),
    attempt(os.listdir, f"/proc/{{pid}}/fd"), attempt(os.readlink, "/proc/1/fd/3"),
    attempt(os.readlink, "/proc/1/root"),
    attempt(resource.prlimit, pid, resource.RLIMIT_CORE, (0, 0)),
]))"""
    answers = inside(code).split("; ")
    assert [answer for answer in answers if "refused" not in answer] == []
    assert len(answers) == 11
    seen = inside("say(attempt(os.listdir, '/proc'))")
    assert "refused" in seen or f"'{os.getpid()}'" not in seen


FORBIDDEN = ("ptrace", "process_vm_readv", "mount", "unshare", "setns", "keyctl", "bpf", "perf_event_open",
             "userfaultfd", "io_uring_setup", "kexec_load", "init_module", "reboot", "swapon", "personality",
             "open_by_handle_at", "name_to_handle_at", "pidfd_getfd", "chroot", "pivot_root", "fsopen",
             "clone3", "settimeofday")  # fmt: skip


def test_dangerous_system_calls_are_refused(inside: Inside) -> None:
    numbers = [syscalls.number(name) for name in FORBIDDEN]
    code = f"""
libc = ctypes.CDLL(None, use_errno=True)
def call(number):
    ctypes.set_errno(0)
    libc.syscall(number, 0, 0, 0, 0, 0, 0)
    return errno.errorcode.get(ctypes.get_errno(), "none")
new_user = libc.syscall({syscalls.number("clone")}, 0x10000011, 0, 0, 0, 0)
if new_user == 0: os._exit(0)
say(",".join([*map(call, {numbers!r}), str(new_user)]))"""
    assert inside(code).split(",") == ["ENOSYS" if name == "clone3" else "EPERM" for name in FORBIDDEN] + ["-1"]


def test_no_processor_can_be_added_and_who_pins_threads_does_not_fail(inside: Inside) -> None:
    code = (
        "given = os.sched_getaffinity(0); os.sched_setaffinity(0, {min(given)}); say(given == os.sched_getaffinity(0))"
    )
    assert inside(code) == "True"


@pytest.mark.skipif(platform.machine() != "x86_64", reason="x32 is a second set of numbers on x86-64 only")
def test_calls_by_other_numbers_end_the_process(inside: Inside) -> None:
    assert "SIGSYS" in inside("ctypes.CDLL(None).syscall(0x40000000 | 39); say('alive')")


def test_no_right_is_left_and_none_can_be_gained(inside: Inside) -> None:
    said = inside("say(' '.join(l.strip() for l in open('/proc/self/status') if l[:3] in ('Cap', 'NoN', 'Sec')))")
    words = said.replace(":", "").split()
    fields = dict(zip(words[::2], words[1::2], strict=True))
    assert int(fields["CapEff"], 16) == int(fields["CapPrm"], 16) == int(fields["CapInh"], 16) == 0
    assert fields["NoNewPrivs"] == "1"
    assert fields["Seccomp"] == "2"


def test_devices_cannot_be_opened(inside: Inside) -> None:
    nodes = [f"/dev/{name}" for name in ("kmsg", "ptmx", "fuse", "kvm", "vda", "sda", "mem", "tty", "loop0", "vsock")]
    code = f"say([attempt(os.open, node, os.O_RDONLY | os.O_NONBLOCK) for node in {nodes!r}])"
    answers = inside(code).split(", ")
    assert len(answers) == len(nodes)
    assert all("refused" in answer for answer in answers), answers


def test_only_its_channel_and_standard_streams_are_open(inside: Inside) -> None:
    said = inside("""
held = {}
for name in os.listdir("/proc/self/fd"):
    try: held[int(name)] = os.readlink(f"/proc/self/fd/{name}").split(":")[0].rpartition("/")[2]
    except OSError: pass  # the listing's own
say(sorted(held.items()))""")
    held = dict(eval(said))  # what our own code above printed
    assert held.pop(0) == "null"
    assert held.pop(1).startswith("worker-")
    assert held.pop(2).startswith("worker-")
    # its channel, and the two regions of memory that it shares with the referee
    assert sorted(held.values()).count("socket") == 1
    assert set(held.values()) <= {"socket", "memfd", "building"}


def test_its_environment_holds_nothing_of_ours(inside: Inside) -> None:
    os.environ["KFORGE_TEST_SECRET"] = "secret"
    try:
        said = inside("""
known = repr([*os.environ.items(), open('/proc/self/environ').read()])
say([word for word in ("PATH", "KFORGE_TEST_SECRET", "API_KEY") if word in known])""")
    finally:
        del os.environ["KFORGE_TEST_SECRET"]
    assert said == "['PATH']"


def test_files_without_a_byte_are_limited(inside: Inside, workers: Workers) -> None:
    """Cause: 1.8 million of them took as many kilobytes of the kernel's memory, and minutes to clear up."""
    if not workers.sandbox.startswith("namespaces"):
        pytest.skip("only a private root has scratch space of its own")
    said = inside("""
folders = Path.cwd(), Path("/tmp"), Path("/dev/shm")
for folder in folders:
    for number in range(3000):  # as many as an honest build makes
        (folder / str(number)).touch()
say([os.statvfs(folder).f_files for folder in folders])""")
    assert said == str([SCRATCH_ENTRIES] * 3)


def test_a_log_of_a_worker_that_ended_is_short(client: Callable[[Path | None], WorkerClient]) -> None:
    worker = client(None)
    with pytest.raises(Fault):
        worker.load("import os\nfor _ in range(20): os.write(1, b'x' * (1 << 20))\nraise ValueError", "c.py", "say")
    log = worker._process._log
    worker.close()
    assert 0 < log.stat().st_size <= KEPT_LOG


def test_no_lock_that_a_program_takes_holds_up_the_host(
    client: Callable[[Path | None], WorkerClient], workers: Workers, tmp_path: Path
) -> None:
    """A lock (flock) is on the file itself, so it crosses the border with every file that is shown."""
    held = tmp_path / "runs" / "lock"
    held.parent.mkdir()
    held.touch()
    worker = client(None)
    code = f"""
import fcntl, os
kept = []
for path in (os.path.dirname(os.getcwd()), {str(held)!r}, {str(held.parent)!r}):
    try:
        descriptor = os.open(path, os.O_RDONLY)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        kept.append(descriptor)
    except OSError:
        pass
class ModelNew: pass
"""
    worker.load(code, "candidate.py", "ModelNew")
    for path in (workers._work, held, held.parent):
        descriptor = os.open(path, os.O_RDONLY)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises where the worker holds it
        os.close(descriptor)


@pytest.mark.skipif(not has_right(24), reason="only CAP_SYS_RESOURCE can forbid it")
def test_a_program_stays_the_first_to_be_ended_when_memory_runs_out(inside: Inside) -> None:
    """Cause: it said so itself from within a user namespace, where the kernel lets everybody take it back."""
    said = inside("""say(attempt(Path("/proc/self/oom_score_adj").write_text, "0"))""")
    assert said == "refused: EACCES"


def test_files_are_limited(inside: Inside, workers: Workers) -> None:
    code = """
folders = [Path.cwd()] + [f for f in (Path("/tmp"), Path("/dev/shm")) if os.access(f, os.W_OK)]
def huge(folder):
    with (folder / "huge").open("wb") as file: file.truncate(3 << 30)
    return "made"
say([[attempt(huge, f) for f in folders], max(os.statvfs(f).f_blocks * os.statvfs(f).f_frsize for f in folders)])"""
    answers, _, space = inside(code).rpartition(", ")
    assert "succeeded" not in answers
    assert "EFBIG" in answers
    if workers.sandbox.startswith("namespaces"):
        assert int(space.rstrip("]")) <= 2 << 30


@pytest.mark.parametrize(
    "under",
    [
        Sanitizer(name="none", read=lambda _: None, environment={"LD_BIND_NOW": "1"}),
        Prepared({"LD_BIND_NOW": "1"}, FRONT),
    ],
    ids=["a sanitizer's", "prepared"],
)
def test_a_worker_of_another_nursery_is_behind_the_same_border(
    under: Sanitizer | Prepared, workers: Workers, tmp_path: Path
) -> None:
    """It has other variables from its start, maybe more of torch, and nothing else that others have not."""
    secret = tmp_path / "secret"
    secret.write_text("secret")
    folder = platforms.find("null").folder
    worker = WorkerClient(
        workers.take(tmp_path / "builds", under), wire.Begin(str(folder), str(tmp_path / "builds"), "strict"),
        output_bytes=0, call_deadline=30.0, access=HostAccess(platforms.find("null").adapter),
    )  # fmt: skip
    code = f"""
import os, socket, sys
def attempt(action, *arguments):
    try:
        return f"succeeded: {{action(*arguments)!r}}"
    except OSError:
        return "refused"
raise RuntimeError("|".join([
    str(len(sys.orig_argv)), os.environ["LD_BIND_NOW"], str("torch._dynamo" in sys.modules),
    attempt(open, {str(secret)!r}), attempt(open, "/etc/shadow"), attempt(socket.socket),
    attempt(os.open, {str(Path(kforge.__file__))!r}, os.O_WRONLY), attempt(os.kill, {os.getpid()}, 9),
    ",".join(sorted(os.listdir("/proc/self/fd"), key=int)),
]))"""
    with pytest.raises(Fault) as caught:
        worker.load(code, "candidate.py", "ModelNew")
    worker.close()
    said = caught.value.verdict.reason.removeprefix("RuntimeError: ").split("|")
    arguments, bound, imported, *attempts, descriptors = said
    assert (arguments, bound, imported) == ("5", "1", str(isinstance(under, Prepared)))
    assert attempts == ["refused"] * 5
    # its streams, its channel, the region of outputs twice, the lock of its builds, and the folder being listed
    assert len(descriptors.split(",")) <= 8


def test_no_file_of_a_program_lends_rights(inside: Inside, tmp_path: Path) -> None:
    builds = tmp_path / "builds"
    said = inside(f"""
builds = Path({str(builds)!r})
tool = builds / "tool"
tool.write_bytes(Path("/bin/true").read_bytes())
say([
    attempt(os.chmod, tool, 0o4755), attempt(os.chmod, builds, 0o2777),
    attempt(os.open, builds / "made", os.O_CREAT | os.O_WRONLY, 0o6755), attempt(os.mknod, builds / "node", 0o4755),
])
""")
    assert said.count("refused: EPERM") == 4, said
    assert builds.stat().st_mode & 0o7777 == 0o700
    assert not any(path.stat().st_mode & 0o6000 for path in builds.iterdir())


def test_an_honest_build_makes_files_that_run(inside: Inside, tmp_path: Path) -> None:
    builds = tmp_path / "builds"
    run = f"""
import shutil
tool = Path({str(builds)!r}) / "tool"
if not tool.exists():
    descriptor = os.open(tool, os.O_CREAT | os.O_WRONLY, 0o755)
    os.write(descriptor, Path("/bin/true").read_bytes())
    os.close(descriptor)
    (tool.parent / "a" / "b" / "c").mkdir(parents=True)
    tempfile.mkstemp(dir=tool.parent)
say(subprocess.run([tool], check=False).returncode)
"""
    assert inside(run) == "0"
    assert inside(run) == "0"  # and the next worker finds it


def test_builds_that_are_too_deep_do_not_end_the_nursery(inside: Inside, tmp_path: Path) -> None:
    builds = tmp_path / "builds"
    code = f"""
os.chdir({str(builds)!r})
for _ in range(1100):
    os.mkdir("folder")
    os.chdir("folder")
say("done")
"""
    assert inside(code) == "done"
    assert inside("say('again')") == "again"
    assert [path.name for path in builds.iterdir()] == ["extensions"], "only what the second worker made"
