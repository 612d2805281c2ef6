from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kforge.errors import InputError
from kforge.records.policy import PATIENCE, TIMING_SECONDS
from kforge.settings import HANDED_DOWN, Keys, load
from kforge.store import index_url

SECRET = "sk-very-secret-1234"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / ".config" / "kforge").mkdir(parents=True)
    return tmp_path


@pytest.fixture
def config(home: Path) -> Path:
    return home / ".config" / "kforge"


def refused(environ: dict[str, str]) -> str:
    with pytest.raises(InputError) as caught:
        load(environ)
    message = str(caught.value)
    assert "\n" not in message
    assert SECRET not in message
    return message


def write_keys(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def test_the_defaults(home: Path, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)
    settings = load({"HOME": str(home)})
    assert settings.cache == home / ".cache" / "kforge"
    assert settings.config == config
    assert settings.runs == home / "kforge-runs"
    assert settings.model == ""
    assert settings.limits.timing_seconds == TIMING_SECONDS
    assert settings.limits.longest_timing == PATIENCE * TIMING_SECONDS
    assert settings.platform_dirs == ()
    assert settings.database == index_url(home / "kforge-runs")
    assert dict(settings.keys) == {}
    assert not settings.runs.exists(), "asking for settings makes nothing"


def test_nothing_is_optional_and_all_paths_are_absolute(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)
    settings = load({"HOME": str(home), "KFORGE_RUNS": "here", "KFORGE_PLATFORM_PATH": f"near{os.pathsep}~/far"})
    assert None not in vars(settings).values()
    assert settings.runs == home / "here"
    assert settings.platform_dirs == (home / "near", home / "far")


def test_the_process_environment_is_the_default(home: Path) -> None:
    code = "from kforge.settings import load; s = load(); print(s.model, s.cache)"
    environment = {"HOME": str(home), "KFORGE_MODEL": "provider:model", "XDG_CACHE_HOME": "/elsewhere"}
    ran = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout == "provider:model /elsewhere/kforge\n"


def test_the_environment_wins_over_the_config_file(home: Path, config: Path) -> None:
    (config / "platforms").mkdir()
    (config / "config.toml").write_text(
        'model = "from:config"\nruns = "my-runs"\ndatabase = "sqlite:///config.db"\nplatform_dirs = ["mine", "/ours"]\n'
        "timing = 3\n"
        "timing_cap = 4\n"
    )
    settings = load({"HOME": str(home), "KFORGE_MODEL": ""})
    assert settings.model == "from:config"
    assert settings.runs == config / "my-runs"
    assert settings.database == "sqlite:///config.db"
    assert settings.platform_dirs == (config / "platforms", config / "mine", Path("/ours"))
    assert settings.limits.timing_seconds == 3.0
    assert settings.limits.longest_timing == 4.0

    settings = load(
        {
            "HOME": str(home),
            "KFORGE_MODEL": "from:environment",
            "KFORGE_RUNS": "~/runs",
            "KFORGE_DATABASE": "sqlite://",
            "KFORGE_PLATFORM_PATH": "/theirs",
            "KFORGE_TIMING": "0.5",
            "KFORGE_TIMING_CAP": "20",
        }
    )
    assert settings.limits.timing_seconds == 0.5
    assert settings.limits.longest_timing == 20.0
    assert settings.model == "from:environment"
    assert settings.runs == home / "runs"
    assert settings.database == "sqlite://"
    assert settings.platform_dirs == (config / "platforms", Path("/theirs"), config / "mine", Path("/ours"))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("model = ", "not valid TOML: "),
        (
            'mdoel = "x"',
            "unknown field 'mdoel'; the fields are model, runs, database, platform_dirs, timing, timing_cap, memory",
        ),
        ("model = 3", "field 'model' must be a string"),
        ("[model]\nname = 'x'", "field 'model' must be a string"),
        ("platform_dirs = 'x'", "field 'platform_dirs' must be a list of strings"),
        ('runs = "a\\u0000b"', "field 'runs' holds a zero byte"),
        ('platform_dirs = ["x", "a\\u0000b"]', "field 'platform_dirs' holds a zero byte"),
        ("platform_dirs = ['x', 3]", "field 'platform_dirs' must be a list of strings"),
        ("timing = '3'", "field 'timing' must be a number"),
        ("timing = -3", "field 'timing' must be more than 0 and at most 600 seconds, not '-3'"),
    ],
)
def test_a_bad_config_file_is_said_in_one_line(home: Path, config: Path, text: str, reason: str) -> None:
    (config / "config.toml").write_text(text)
    assert f"{config / 'config.toml'}: {reason}" in refused({"HOME": str(home)})


def test_a_config_file_that_cannot_be_read_is_said_in_one_line(home: Path, config: Path) -> None:
    (config / "config.toml").write_bytes(b"model = '\xff'")
    assert refused({"HOME": str(home)}) == f"cannot read {config / 'config.toml'}: it is not UTF-8 text"
    (config / "config.toml").unlink()
    (config / "config.toml").mkdir()
    assert refused({"HOME": str(home)}) == f"cannot read {config / 'config.toml'}: Is a directory"


@pytest.mark.parametrize("variable", ["KFORGE_TIMING", "KFORGE_TIMING_CAP"])
@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "601", "soon"])
def test_a_time_that_is_none(home: Path, variable: str, seconds: str) -> None:
    said = refused({"HOME": str(home), variable: seconds})
    assert said == f"{variable} must be more than 0 and at most 600 seconds, not '{seconds}'"


@pytest.mark.parametrize("name", ["XDG_CACHE_HOME", "XDG_CONFIG_HOME"])
def test_base_folders_are_absolute(home: Path, name: str) -> None:
    assert refused({"HOME": str(home), name: "relative"}) == f"{name} must be an absolute path, not 'relative'"
    unset = load({"HOME": str(home), name: ""})
    assert (unset.cache, unset.config) == (home / ".cache" / "kforge", home / ".config" / "kforge")


# --- keys ---------------------------------------------------------------------------------------------------


def test_keys_come_from_the_environment_and_the_key_file(home: Path, config: Path) -> None:
    write_keys(config / "keys.env", "OPENAI_API_KEY=from-file\n\n# mine\n  export GEMINI_API_KEY = 'quoted'  \r\n")
    environment = {"HOME": str(home), "OPENAI_API_KEY": SECRET, "GROQ_API_KEY": "", "OTHER": "x"}
    assert dict(load(environment).keys) == {"OPENAI_API_KEY": SECRET, "GEMINI_API_KEY": "quoted"}

    named = write_keys(home / "other.env", 'ANTHROPIC_API_KEY="a=b#c"')
    assert dict(load({"HOME": str(home), "KFORGE_KEY_FILE": str(named)}).keys) == {"ANTHROPIC_API_KEY": "a=b#c"}


def test_folders_that_no_candidate_should_see(home: Path, tmp_path: Path) -> None:
    (tmp_path / "keys").mkdir()
    named = write_keys(tmp_path / "keys" / "other.env", "ANTHROPIC_API_KEY=x")
    environment = {"HOME": str(home), "KFORGE_KEY_FILE": str(named), "KFORGE_RUNS": str(tmp_path / "runs")}
    own = {home / ".cache" / "kforge", home / ".config" / "kforge", home / ".local" / "state" / "kforge"}
    assert set(load(environment).private) == own | {tmp_path / "runs", named, named.parent}


def test_keys_do_not_show(home: Path) -> None:
    settings = load(
        {"HOME": str(home), "OPENAI_API_KEY": SECRET, "KFORGE_DATABASE": f"postgresql://me:{SECRET}@host/db"}
    )
    assert settings.keys["OPENAI_API_KEY"] == SECRET
    for text in (repr(settings), str(settings), repr(settings.keys), f"{settings.keys}"):
        assert SECRET not in text
        assert "OPENAI_API_KEY" in text
    assert SECRET not in str(dict(settings.child_environment))


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660, 0o620])
def test_a_key_file_that_others_can_open_is_refused(home: Path, config: Path, mode: int) -> None:
    path = write_keys(config / "keys.env", f"OPENAI_API_KEY={SECRET}\n", mode)
    expected = f"the key file {path} is open to others (mode {mode:o}); run: chmod 600 {path}"
    assert refused({"HOME": str(home)}) == expected


@pytest.mark.parametrize(
    "line",
    [SECRET, f"KEY={SECRET}", f"={SECRET}", f"OPENAI_API_KEY {SECRET}", "OPENAI_API_KEY=", f"A_API_KEY={SECRET} x"],
)
def test_a_bad_line_is_named_but_not_quoted(home: Path, config: Path, line: str) -> None:
    path = write_keys(config / "keys.env", f"# keys\n{line}\n")
    assert refused({"HOME": str(home)}) == f"the key file {path}, line 2: expected SOME_API_KEY=value"


def test_a_key_file_that_is_named_must_be_there(home: Path) -> None:
    expected = f"KFORGE_KEY_FILE names {home / 'none.env'}, which is not a file"
    assert refused({"HOME": str(home), "KFORGE_KEY_FILE": str(home / "none.env")}) == expected


@given(st.dictionaries(st.from_regex(r"[A-Z]{1,8}_API_KEY", fullmatch=True), st.text(min_size=1)))
def test_keys_are_a_mapping_that_prints_names_only(values: dict[str, str]) -> None:
    keys = Keys(values)
    assert dict(keys) == values
    assert pickle.loads(pickle.dumps(keys)) == keys
    assert repr(keys) == f"Keys({', '.join(sorted(values))})"


# --- what other processes see -------------------------------------------------------------------------------


def test_children_see_what_compilers_need_and_nothing_else(home: Path) -> None:
    needed = {"HOME": str(home), "PATH": "/bin", "LC_ALL": "C", "CXX": "g++", "ANY_VISIBLE_DEVICES": "0"}
    private = {"OPENAI_API_KEY": SECRET, "AWS_SECRET_ACCESS_KEY": SECRET, "KFORGE_MODEL": "m", "PYTHONPATH": "/x"}
    assert load(needed | private).child_environment == needed


@given(st.from_regex(r"[A-Z_]*(KEY|TOKEN|SECRET|PASSWORD)", fullmatch=True))
def test_nothing_that_sounds_secret_is_handed_down(name: str) -> None:
    assert not HANDED_DOWN.fullmatch(name)


@pytest.mark.parametrize(
    ("text", "count"), [("24GB", 24 * 10**9), ("1.5 gb", 15 * 10**8), ("512MiB", 512 << 20), ("2T", 2 * 10**12)]
)
def test_memory_is_read_with_its_unit(tmp_path: Path, text: str, count: int) -> None:
    assert load({"HOME": str(tmp_path), "KFORGE_MEMORY": text}).limits.memory == count


def test_the_option_wins_over_the_environment(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "KFORGE_MEMORY": "1GB"}
    assert load(environ, memory="2GB").limits.memory == 2 * 10**9
    assert load({"HOME": str(tmp_path)}).limits.memory == 0


@pytest.mark.parametrize("text", ["99999999999999999999TB", "9" * 400 + "GB", "0GB", "0.0001KB"])
def test_memory_has_bounds(tmp_path: Path, text: str) -> None:
    """Cause: what was computed from it overflowed, in another process."""
    with pytest.raises(InputError, match=r"--memory must be more than 0 and at most 1000000TB") as refused:
        load({"HOME": str(tmp_path)}, memory=text)
    assert len(str(refused.value)) < 200


def test_a_working_directory_that_was_removed_is_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(InputError, match="the working directory does not exist any more"):
        load({"HOME": str(tmp_path)})


@pytest.mark.parametrize("text", ["24", "lots", "-1GB", "24XB"])
def test_memory_without_a_unit_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError, match="--memory must be a size such as 24GB"):
        load({"HOME": str(tmp_path)}, memory=text)
