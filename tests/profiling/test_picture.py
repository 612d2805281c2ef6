"""A profile as an image: a PNG of a fixed size that depends on the profile, and on nothing else."""

from __future__ import annotations

import io
import struct
import subprocess
import sys
import zlib

import pytest

from kforge.errors import InputError
from kforge.profiling import digest, roofline
from kforge.profiling.picture import HEIGHT, WIDTH, check_installed, draw
from kforge.profiling.rows import IDLE
from kforge.records import HotSpot, ImportedProfile, Peaks, Profile, Span, TensorSpec, Workload

PEAKS = Peaks(device="a device", bytes_per_second=2e10, flops_per_second=1e11)
HOSTILE = ["$x^2$", r"$\frac{", "a\nb\r\tc", "\x1b[31mred", "\u202eevil", "漢字 kernel", "", "x" * 5000, "%s {0} \\"]


def workload(flops: int = 0, moved: int = 60_000_000) -> Workload:
    spec = TensorSpec(shape=(4,), dtype="float32")
    return Workload(inputs=(spec,), outputs=(spec,), parameters=(), flops=flops, bytes_moved=moved)


def profile(*spots: tuple[str, float], of: Workload | None = None, seconds: float = 0.01) -> Profile:
    total = sum(length for _, length in spots) or 1.0
    found = [HotSpot(name=name, calls=1, seconds=length, share=length / total) for name, length in spots]
    of = of or workload()
    return digest(tool="a profiler", seconds=seconds, hot_spots=found, roofline=roofline(of, PEAKS), workload=of)


def chunks(image: bytes) -> list[str]:
    """The names of a PNG file's chunks, each with a valid checksum."""
    assert image[:8] == b"\x89PNG\r\n\x1a\n"
    place, names = 8, []
    while place < len(image):
        length, kind = struct.unpack(">I4s", image[place : place + 8])
        body = image[place + 4 : place + 8 + length]
        assert zlib.crc32(body) == struct.unpack(">I", image[place + 8 + length : place + 12 + length])[0]
        names.append(kind.decode())
        place += 12 + length
    return names


PROFILES = {
    "none": ([], 0),
    "one": ([("aten::add", 0.01)], 0),
    "forty": ([(f"kernel {number}", 0.01 * 0.9**number) for number in range(40)], 2_000_000_000),
    "equal": ([(f"kernel {number}", 0.001) for number in range(13)], 1),
    "hostile": ([(name, 0.001) for name in HOSTILE], 2_000_000_000),
    "idle device": ([("kernel", 0.001), (IDLE, 0.009)], 2_000_000_000),
    "nothing took time": ([("kernel", 0.0)], 0),
}


@pytest.mark.parametrize("name", PROFILES)
def test_every_profile_is_a_small_png_of_the_size(name: str) -> None:
    spots, flops = PROFILES[name]
    image = draw(profile(*spots, of=workload(flops)), workload(flops))
    assert struct.unpack(">II", image[16:24]) == (WIDTH, HEIGHT) == (1200, 800)
    assert len(image) < 300_000
    assert set(chunks(image)) <= {"IHDR", "PLTE", "IDAT", "IEND", "pHYs"}, "no text, and no date"


@pytest.mark.parametrize("seconds", [1e-9, 1e6])
def test_a_program_far_from_the_roof_is_drawn(seconds: float) -> None:
    of = workload(10**15, 1)
    assert chunks(draw(profile(("kernel", seconds), of=of, seconds=seconds), of))


def test_the_image_depends_on_the_profile_alone() -> None:
    given = profile(("aten::add", 0.01), ("aten::mul", 0.02))
    images = [draw(given, workload()), draw(given, workload())]
    assert images[0] == images[1]
    images += [
        draw(profile(("aten::add", 0.01), ("aten::sub", 0.02)), workload()),
        draw(profile(("aten::add", 0.02), ("aten::mul", 0.02)), workload()),
        draw(profile(("aten::add", 0.01), ("aten::mul", 0.02), seconds=0.02), workload()),
        draw(profile(("aten::add", 0.01), ("aten::mul", 0.02), of=workload(10**9)), workload(10**9)),
    ]
    assert len(set(images)) == 5


def test_settings_of_the_user_do_not_change_the_image() -> None:
    """A style of the user, such as white text, would make it unreadable."""
    import matplotlib

    given = profile(("aten::add", 0.01))
    before = draw(given)
    with matplotlib.rc_context({"text.color": "white", "font.size": 40, "savefig.facecolor": "black"}):
        assert draw(given) == before


def test_each_share_has_its_length_of_colour() -> None:
    """The strip of a call: a third of it in the second colour."""
    from matplotlib.image import imread

    pixels = imread(io.BytesIO(draw(profile(("aten::add", 0.02), ("aten::mul", 0.01)))), format="png")[:, :, :3]
    strip = pixels[HEIGHT - int((0.03 + 0.94 * 0.80) * HEIGHT)]
    first, second = (
        sum(abs(pixel - colour).max() < 0.02 for pixel in strip)
        for colour in ((0x00 / 255, 0x72 / 255, 0xB2 / 255), (0xE6 / 255, 0x9F / 255, 0x00 / 255))
    )
    assert first > 200
    assert first == pytest.approx(2 * second, rel=0.1)


def test_a_timeline_is_drawn_in_order_with_its_gaps() -> None:
    """The second operator runs first and last; a quarter of the call, in between, nothing runs."""
    from matplotlib.image import imread

    spans = [("aten::mul", 0.0, 0.01), ("aten::add", 0.01, 0.01), ("aten::mul", 0.03, 0.01)]
    found = profile(("aten::mul", 0.02), ("aten::add", 0.01)).model_copy(
        update={"timeline": tuple(Span(name=name, start=start, seconds=length) for name, start, length in spans)}
    )
    pixels = imread(io.BytesIO(draw(found)), format="png")[:, :, :3]
    strip = pixels[HEIGHT - int((0.03 + 0.94 * 0.80) * HEIGHT)]
    colours = {"mul": (0x00, 0x72, 0xB2), "add": (0xE6, 0x9F, 0x00), "gap": (0xFF, 0xFF, 0xFF)}
    left, width = 0.025 * WIDTH, 0.535 * WIDTH
    order = []
    for share in (0.125, 0.375, 0.625, 0.875):
        pixel = strip[int(left + share * width)] * 255
        order.append(next(name for name, colour in colours.items() if abs(pixel - colour).max() < 4))
    assert order == ["mul", "add", "gap", "mul"]


def test_an_import_without_roofline_or_time_is_drawn() -> None:
    spots = (HotSpot(name="kernel", calls=3, seconds=1e-3, share=1.0),)
    bare = ImportedProfile(tool="Nsight Systems", hot_spots=spots, digest_text="", bottleneck="")
    timed = bare.model_copy(update={"seconds": 1e-3, "roofline": roofline(workload(10**9), PEAKS)})
    assert len({draw(bare), draw(timed), draw(timed, workload(10**9))}) == 3


def test_a_missing_library_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError) as refused:
        check_installed("--profile-as image")
    assert str(refused.value) == (
        "--profile-as image needs matplotlib, which is not installed: pip install 'kforge[pictures]'"
    )


def test_nothing_is_imported_before_something_is_drawn() -> None:
    program = "import sys, kforge.agents, kforge.session, kforge.profiling.picture; print('matplotlib' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
