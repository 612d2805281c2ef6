"""Exports of Instruments, in the shape of public ones: a value is written once, and referred to later."""

from __future__ import annotations

import pytest

from kforge.errors import ProfileError
from kforge.profiling import digest_of_export, exports

COLUMNS = ("start", "duration", "channel-name", "state", "process", "event-label")
PYTHON = '<process id="5" fmt="python3.12 (812)"><pid id="6" fmt="812">812</pid></process>'
ROWS = f"""\
<row><start-time id="1" fmt="00:01.000">1000000000</start-time><duration id="2" fmt="2.00 ms">2000000</duration>
<gpu-channel-name id="3" fmt="Compute">Compute</gpu-channel-name><gpu-state id="4" fmt="Active">Active</gpu-state>
{PYTHON}<formatted-label id="7" fmt="rms_norm   (0x1)">rms_norm</formatted-label></row>
<row><start-time id="8" fmt="00:01.010">1010000000</start-time><duration ref="2"/><gpu-channel-name ref="3"/>
<gpu-state ref="4"/><process ref="5"/><formatted-label ref="7"/></row>
<row><start-time id="9" fmt="00:01.020">1020000000</start-time><duration id="10" fmt="1.00 ms">1000000</duration>
<gpu-channel-name ref="3"/><gpu-state ref="4"/><process ref="5"/>
<formatted-label id="11" fmt="add_kernel">add_kernel</formatted-label></row>
<row><start-time id="12" fmt="00:01.030">1030000000</start-time><duration id="13" fmt="9.00 ms">9000000</duration>
<gpu-channel-name id="14" fmt="Fragment">Fragment</gpu-channel-name><gpu-state ref="4"/>
<process id="15" fmt="WindowServer (581)"><pid id="16" fmt="581">581</pid></process>
<formatted-label id="17" fmt="compositing">compositing</formatted-label></row>
<row><start-time id="18" fmt="00:01.040">1040000000</start-time><duration ref="13"/><gpu-channel-name ref="14"/>
<gpu-state ref="4"/><process ref="5"/><formatted-label ref="17"/></row>
"""


def export(rows: str = ROWS, columns: tuple[str, ...] = COLUMNS) -> str:
    listed = "".join(f"<col><mnemonic>{name}</mnemonic><name>{name}</name></col>" for name in columns)
    return (
        f'<?xml version="1.0"?>\n<trace-query-result>\n<node xpath="//trace-toc[1]/run[1]/data[1]/table[8]">'
        f'<schema name="metal-gpu-intervals">{listed}</schema>{rows}</node></trace-query-result>\n'
    )


def test_the_compute_intervals_of_the_python_process_are_its_kernels() -> None:
    found = exports.read(export())
    assert found.tool == "Instruments"
    assert {(row.name, row.count, row.amount) for row in found.device_rows} == {
        ("rms_norm (0x1)", 2, 0.004),
        ("add_kernel", 1, 0.001),
    }
    page = digest_of_export(found, calls=2)
    assert page.seconds == pytest.approx(0.0025)
    assert [spot.name for spot in page.hot_spots] == ["rms_norm (0x1)", "add_kernel"]
    assert page.hot_spots[0].share == pytest.approx(0.8)


def test_a_process_of_another_name_counts_where_it_is_the_only_one() -> None:
    alone = export(ROWS.replace("python3.12", "demo").replace("WindowServer (581)", "demo (812)"))
    assert {row.name for row in exports.read(alone).device_rows} == {"rms_norm (0x1)", "add_kernel"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (export()[:-40], "not whole XML"),
        (export(columns=("timestamp", "value")), "holds no table of the GPU's intervals with the columns start, "),
        (export(rows=""), "is empty: nothing of the GPU was recorded"),
        (export(columns=COLUMNS[:4]), "holds no table of the GPU's intervals"),
        (export(ROWS.replace(">2000000<", ">2 ms<")), "no number of nanoseconds"),
        (export(ROWS.replace("python3.12", "demo")), r"2 processes .*\(WindowServer.*, demo.*\); record again"),
        (export().replace("<trace-query-result>", "<!DOCTYPE x []><trace-query-result>"), "document type"),
    ],
    ids=[
        "cut off",
        "another table",
        "empty",
        "a column is missing",
        "a duration in words",
        "two processes",
        "entities",
    ],
)
def test_what_would_be_misread_is_refused(text: str, said: str) -> None:
    with pytest.raises(ProfileError, match=said):
        exports.read(text)
