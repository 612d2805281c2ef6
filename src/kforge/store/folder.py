"""A run on disk. The folder is authoritative: everything else about a run can be rebuilt from it.

run.json              the header; written last, so a folder without it is not a run
signature             of run.json, by the user's key (signature.py); also states whether the run is finished
problem.py            the problem, for a user to read
state.pt              the weights of a live module; absent for a problem file
images/               images for the performance analysis agent, named by their digests
exchange/             requests to models and their replies
attempts/000/         one folder per attempt, numbered from 0
    <stage>.json          a finished stage of the attempt
    <stage>.signature     of the stage; a stage that the user's key did not sign is done again
    candidate.py          the candidate, for a user to read
    attempt.json          the attempt; written last, so it is committed completely or not at all
    signature             of attempt.json
best.py               the best candidate so far
budgets.json          budgets that were enlarged after the run began; absent if there are none
result.json           the outcome; its presence means that the run is finished
derived/              facts about the finished run for lists of many runs (derived.py)
*.signature           of the file with the same name; absent if no key can be kept
lock                  held by the one process that writes
"""

from __future__ import annotations

import json
import re
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Self

from kforge import durable
from kforge.errors import InputError, RunError
from kforge.records import Attempt, Evaluation, Outcome, Record, best_attempt
from kforge.store import derived, lock, trust
from kforge.store.carried import carry_images, carry_state, find_state, shown
from kforge.store.naming import SUITE_HEADER, no_run
from kforge.store.record_files import R, holds, is_file, is_folder, parse_record, read_bytes, read_record
from kforge.store.records import FORMAT, Budgets, Header, RunSummary, Status, is_meant
from kforge.store.signature import SIGNATURE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kforge.models import Image
    from kforge.store.signature import Key
    from kforge.store.trust import Consent

RUN = "run"
"""The purpose of a header's signature, which is part of the signed text. A signature for another purpose is not
valid."""
BUDGETS = "budgets.json"
"""Name of the file with budgets that were enlarged after the run began."""
FINISHED = "finished run"
"""The purpose of a header's signature once the run has an outcome. If the outcome is missing despite this signature, it
was removed."""


class RunFolder:
    """One run on disk. Any process may read it. `put_stage`, `commit` and `finish` work only inside `with
    folder.writing():`."""

    def __init__(self, path: Path, header: Header, text: bytes, key: Key | None = None) -> None:
        """`text` is the header as it is on disk. `key` is the key that signs attempts when they are committed."""
        self.path = path
        self.header = header
        self.key = key
        self._text = text
        self._held = False
        self._writing = False

    @property
    def id(self) -> str:
        return self.header.id

    @property
    def exchange(self) -> Path:
        return self.path / "exchange"

    # --- beginning ------------------------------------------------------------------------------------------

    @classmethod
    def create(cls, root: Path, header: Header, key: Key | None = None, images: Sequence[Image] = ()) -> Self:
        """Create a run on disk, signed with the user's key. `images` are those that the header's options name.

        Raises RunError if the folder exists or cannot be written, and InputError for a key that others can read.
        """
        path = root / header.id
        try:
            root.mkdir(parents=True, exist_ok=True)
            path.mkdir()
        except FileExistsError as error:
            raise RunError(f"cannot begin run {header.id}: {error.filename} already exists") from error
        except OSError as error:
            raise RunError(f"cannot begin run {header.id}: {error.filename}: {error.strerror}") from error
        try:
            durable.make_folder(path)
            durable.make_folder(path / "exchange")
            durable.make_folder(path / "attempts")
            durable.write(path / "problem.py", header.problem.source)
            carried = carry_state(header, path)
            carry_images(images, path)
            text = carried.to_json(indent=2)
            if key is not None:
                key.write_signature(path / SIGNATURE, RUN, text.encode(), within=path)
            durable.write(path / "run.json", text)
        except InputError:
            shutil.rmtree(path, ignore_errors=True)
            raise
        run = cls.open(path)
        if key is not None:
            run.hold_to(key)
        return run

    @classmethod
    def open(cls, path: Path) -> Self:
        """Return the run in a folder. Raises RunError if it is missing, damaged or not a run."""
        if not path.is_dir():
            raise RunError(f"no run at {path}: there is no such folder")
        if not (path / "run.json").is_file():
            raise RunError(f"{path} is not a run: it has no run.json")
        header, text = _read_header(path / "run.json")
        return cls(path, find_state(header, path), text)

    @classmethod
    def find(cls, root: Path, name: str) -> Self:
        """Return the run that a user names: by a path, an id, the unique beginning of an id, or its last letters.

        Raises RunError if there is no such run, or if the name fits several.
        """
        if is_file(Path(name) / "run.json"):
            return cls.open(Path(name))
        ids = [path.name for path in run_paths(root)]
        matches = [name] if name in ids else [known for known in ids if is_meant(known, name)]
        if len(matches) == 1:
            return cls.open(root / matches[0])
        if matches:
            raise RunError(f"{shown(name)} could be any of {len(matches)} runs, the latest being {matches[-1]}")
        if name and is_folder(Path(name)) and not is_file(Path(name) / SUITE_HEADER):
            return cls.open(Path(name))  # raises the error that says why it is not a run
        raise no_run(root, name)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the run's write lock inside the `with` block. Raises RunError if another process holds it."""
        self.check_parts()
        with lock.exclusive(self.path / "lock", what=f"run {self.id}"):
            self._writing = True
            try:
                # The process may have been killed between a commit and the write of best.py.
                self._write_best(self.best())
                yield
            finally:
                self._writing = False

    def check_parts(self) -> None:
        """Raise RunError if the folder, or a part of it that is written, is a symbolic link or has the wrong type."""
        for name, is_right in (("attempts", Path.is_dir), ("exchange", Path.is_dir), ("lock", Path.is_file)):
            place = self.path / name
            durable.refuse_links(place, self.path)
            if place.exists() and not is_right(place):
                raise RunError(f"{place} is not a {'file' if name == 'lock' else 'folder'}; remove it")

    def is_signed(self, key: Key) -> bool:
        """Return whether this user began the run on this machine. Raises InputError for a key that others can read."""
        return any(key.has_signed_by(self.path / SIGNATURE, purpose, self._text) for purpose in (RUN, FINISHED))

    def hold_to(self, key: Key, *, trusted: bool = False) -> bool:
        """Sign what is written with this key. Return whether the run is held to the key, which means that only parts
        signed by the key are accepted from now on.

        It is held to the key if the key signed its header. Then an unsigned outcome and unsigned budgets count as
        absent, and an unsigned attempt raises RunError. `trusted`: the user accepts unsigned attempts and an unsigned
        outcome, because the run was continued on another machine; a run that has any is not held to the key. Finished
        stages of an attempt must be signed in every run, also in one that another user began.
        """
        self.key = key
        self._held = self.is_signed(key) and (not trusted or self.is_all_signed(key))
        return self._held

    def is_all_signed(self, key: Key) -> bool:
        """Return whether this user made everything in the run: its header, its attempts and its outcome."""
        if not self.is_signed(key):
            return False
        result = self.path / "result.json"
        is_finished = result.exists() or key.has_signed_by(self.path / SIGNATURE, FINISHED, self._text)
        if is_finished and not (result.exists() and self._signed_text(result, self._outcome_purpose, key)):
            return False
        return all(self.is_attempt_signed(index, key) for index in range(self._committed()))

    def admit(self, key: Key, consent: Consent) -> None:
        """Raise RunError unless the user made the run, or has consented to its code and its options."""
        if not self.is_signed(key):
            folders = trust.folders_of(self.header.options.get("platform_dirs", ""))
            trust.admit_options(self.header.options, folders, str(self.path), consent)
            trust.admit_problem(self.header.problem, str(self.path), consent, self.readable_problem())

    def readable_problem(self) -> Path:
        """Return the path of `problem.py`, for a user to read. Raises RunError if its content is not the code that
        would run."""
        path = self.path / "problem.py"
        if not holds(path, self.header.problem.source):
            raise RunError(f"run {self.id} is damaged: {path} differs from the problem in run.json, which would run")
        return path

    def is_attempt_signed(self, index: int, key: Key) -> bool:
        """Return whether this user committed an attempt on this machine, with the candidate that it holds now."""
        path = self._attempt_folder(index) / "attempt.json"
        return self._signed_text(path, self._purpose(index), key, path.with_name(SIGNATURE)) is not None

    # --- reading --------------------------------------------------------------------------------------------

    def attempts(self) -> tuple[Attempt, ...]:
        """Return the committed attempts, in order. Raises RunError if one is damaged or missing."""
        return tuple(self._attempt(index) for index in range(self._committed()))

    def stage(self, index: int, name: str, kind: type[R], program: str = "") -> R | None:
        """Return a finished stage of an attempt, or None if it must still be done. Raises RunError if it is damaged.

        `program` is the digest of the program that the stage is about. If the run has a key, a stage counts only if the
        key signed it for this program, because anybody could have put the file there.
        """
        path = self._stage_path(index, name)
        if not path.exists():
            return None
        if self.key is None:
            return read_record(path, kind)
        text = self._signed_text(path, self._stage_purpose(index, name, program), self.key)
        return None if text is None else parse_record(text, path, kind)

    def outcome(self) -> Outcome | None:
        """Return how the run ended, or None if it has not ended. Raises RunError if the outcome is damaged."""
        path = self.path / "result.json"
        if not path.exists():
            return None
        if not self._held or self.key is None:
            return read_record(path, Outcome)
        text = self._signed_text(path, self._outcome_purpose, self.key)
        return None if text is None else parse_record(text, path, Outcome)

    def budgets(self) -> Budgets:
        """Return the budgets that were enlarged after the run began. In a run that this user signed, unsigned budgets
        count as absent (see `hold_to`). Raises RunError if they are damaged."""
        path = self.path / BUDGETS
        if not path.exists():
            return Budgets()
        if not self._held or self.key is None:
            return read_record(path, Budgets)
        text = self._signed_text(path, self._budgets_purpose, self.key)
        return Budgets() if text is None else parse_record(text, path, Budgets)

    def best(self) -> Attempt | None:
        """Return the outcome's best attempt, or the best attempt so far. None if none is correct. Raises RunError if
        the run is damaged."""
        outcome = self.outcome()
        if outcome is None:
            return best_attempt(self.attempts())
        if outcome.best is None:
            return None
        best = self._attempt(outcome.best)
        if not best.is_kernel:
            raise RunError(f"run {self.id} is damaged: its best attempt {best.index} is not correct")
        return best

    @property
    def best_path(self) -> Path | None:
        """The file with the best program: best.py, or the attempt's own file if best.py holds another program.

        None if no attempt is correct, or if neither file holds the program. Raises RunError if the run is damaged.
        """
        best = self.best()
        if best is None or best.candidate is None:
            return None
        files = (self.path / "best.py", self._attempt_folder(best.index) / "candidate.py")
        return next((file for file in files if holds(file, best.candidate.source)), None)

    def reported(self) -> Evaluation | None:
        """Return the best attempt's evaluation, with the timing of its repeated evaluations. None if no attempt is
        correct.

        Raises RunError if the run is damaged.
        """
        best, outcome = self.best(), self.outcome()
        if best is None or best.evaluation is None:
            return None
        return best.evaluation.with_timing_of(outcome.replication if outcome is not None else None)

    def status(self) -> Status:
        """Return whether the run is finished, running, or interrupted."""
        status = status_of(self.path)
        return "interrupted" if status == "finished" and self.outcome() is None else status

    def summary(self) -> RunSummary:
        """Return the facts about the run that a list of runs shows. Raises RunError if the run is damaged."""
        outcome, reported = self.outcome(), self.reported()
        correct = reported.correct if reported is not None else None
        eager = correct.comparisons[0] if correct is not None and correct.comparisons else None
        return RunSummary(
            id=self.id,
            created=self.header.created,
            problem=self.header.problem.name,
            platform=self.header.platform,
            model=self.header.model,
            status=self.status(),
            stopped=outcome.stopped if outcome else None,
            attempts=self._committed(),
            speedup=eager.speedup if eager else None,
            finding=eager.finding if eager else None,
            doubt=eager.doubt if eager else correct.untimed if correct is not None else None,
            no_kernel=outcome.no_kernel if outcome else None,
        )

    # --- writing --------------------------------------------------------------------------------------------

    def put_stage(self, index: int, name: str, record: Record, program: str = "") -> None:
        """Store a finished stage of the attempt in progress, or of an earlier attempt that is examined again.

        `program` is the digest of the program that the stage is about. Raises RunError if the attempt has not begun, or
        if the stage was already stored with another result.
        """
        self._check_open()
        if not 0 <= index <= (due := self._committed()):
            raise RunError(f"run {self.id}: attempt {index} cannot be written now: attempt {due} is in progress")
        path = self._stage_path(index, name)
        durable.make_folder(path.parent, within=self.path)
        self._write_once(path, record, f"stage '{name}' of attempt {index}", self._stage_purpose(index, name, program))

    def commit(self, attempt: Attempt) -> None:
        """Add the next attempt. Adding the same attempt again changes nothing.

        Raises RunError if it is out of order, or was committed with other content.
        """
        self._check_open()
        due = self._committed()
        if not 0 <= attempt.index <= due:
            raise RunError(
                f"run {self.id}: attempt {attempt.index} cannot be written now: attempt {due} is in progress"
            )
        folder = self._attempt_folder(attempt.index)
        durable.make_folder(folder, within=self.path)
        if attempt.candidate is not None and attempt.index == due:
            durable.write(folder / "candidate.py", attempt.candidate.source, within=self.path)
        if self.key is not None and attempt.index == due:
            text = attempt.to_json(indent=2).encode()
            self.key.write_signature(folder / SIGNATURE, self._purpose(due), text, within=self.path)
        self._write_once(folder / "attempt.json", attempt, f"attempt {attempt.index}")
        self._write_best(self.best())

    def finish(self, outcome: Outcome) -> None:
        """End the run with an outcome. The same outcome again changes nothing.

        Raises RunError if the run ended with another outcome, or if the outcome's best attempt is not correct.
        """
        self._check_writing()
        disproved = {each.attempt for each in outcome.disproved}
        correct = [a.index for a in self.attempts() if a.is_kernel and a.index not in disproved]
        if (outcome.best is None) != (not correct) or outcome.best not in (None, *correct):
            raise RunError(
                f"run {self.id}: attempt {outcome.best} cannot be the best; the correct attempts are {correct}"
            )
        if outcome.best is not None:
            self._write_best(self._attempt(outcome.best))
        else:
            (self.path / "best.py").unlink(missing_ok=True)  # the previous best program did not stay correct
        self._write_once(self.path / "result.json", outcome, "its outcome", self._outcome_purpose)
        if self._held and self.key is not None:  # never sign the header of a run that others began
            self.key.write_signature(self.path / SIGNATURE, FINISHED, self._text, within=self.path)
            if derived.read(self.path, derived.SUMMARY, RunSummary, self.key) is None:
                derived.keep(self.path, derived.SUMMARY, self.summary(), self.key)  # for lists of many runs

    def reopen(self, budgets: Budgets) -> None:
        """Let a run that has spent its budget continue with larger budgets. This removes the run's outcome.

        Raises RunError if a file cannot be written.
        """
        self._check_writing()
        path, text = self.path / BUDGETS, budgets.to_json(indent=2)
        if self.key is not None:
            signature = path.with_suffix(f".{SIGNATURE}")
            self.key.write_signature(signature, self._budgets_purpose, text.encode(), within=self.path)
        durable.write(path, text, within=self.path)
        if self._held and self.key is not None:
            self.key.write_signature(self.path / SIGNATURE, RUN, self._text, within=self.path)
        (self.path / "result.json").unlink(missing_ok=True)

    # --- the parts ------------------------------------------------------------------------------------------

    def _purpose(self, index: int) -> str:
        """Return the purpose that an attempt's signature states. It differs for every run and attempt."""
        return f"attempt {index} of run {self.id}"

    def _stage_purpose(self, index: int, name: str, program: str) -> str:
        return f"stage {name} of attempt {index} of run {self.id}, program {program}"

    @property
    def _budgets_purpose(self) -> str:
        return f"budgets of run {self.id}"

    @property
    def _outcome_purpose(self) -> str:
        return f"outcome of run {self.id}"

    def _signed_text(self, path: Path, purpose: str, key: Key, signature: Path | None = None) -> bytes | None:
        """Return a file's content, or None if the key did not sign exactly this content. Raises RunError for a symbolic
        link."""
        text = read_bytes(path)
        signature = signature or path.with_suffix(f".{SIGNATURE}")
        return text if key.has_signed_by(signature, purpose, text) else None

    def _attempt_folder(self, index: int) -> Path:
        return self.path / "attempts" / f"{index:03d}"

    def _stage_path(self, index: int, name: str) -> Path:
        if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or name == "attempt":
            raise ValueError(f"not a name for a stage: {name!r}")
        return self._attempt_folder(index) / f"{name}.json"

    def _committed(self) -> int:
        names = (mark.parent.name for mark in (self.path / "attempts").glob("*/attempt.json"))
        numbers = {int(name) for name in names if name.isdecimal()}
        if missing := set(range(len(numbers))) - numbers:
            raise RunError(f"run {self.id} is damaged: attempt {min(missing)} is missing")
        return len(numbers)

    def _attempt(self, index: int) -> Attempt:
        path = self._attempt_folder(index) / "attempt.json"
        if self._held and self.key is not None:
            text = self._signed_text(path, self._purpose(index), self.key, path.with_name(SIGNATURE))
            if text is None:
                raise RunError(
                    f"{path} was not made by you on this machine, although you began the run; remove its folder to "
                    "continue without it; or, if you worked on the run elsewhere, resume it with --trust (kforge.load: "
                    "trust=True)"
                )
            attempt = parse_record(text, path, Attempt)
        else:
            attempt = read_record(path, Attempt)
        if attempt.index != index:
            raise RunError(f"{path} is damaged: it contains attempt {attempt.index}")
        return attempt

    def _write_once(self, path: Path, record: Record, what: str, purpose: str = "") -> None:
        """Write a file unless it exists. Raises RunError if it exists with other content.

        `purpose` is the purpose of a signature in a separate file. A file without a valid signature is replaced.
        """
        text = record.to_json(indent=2)
        is_new = not path.exists()
        if self.key is not None and purpose:
            is_new = is_new or self._signed_text(path, purpose, self.key) is None
            if is_new:
                signature = path.with_suffix(f".{SIGNATURE}")
                self.key.write_signature(signature, purpose, text.encode(), within=self.path)
        if is_new:
            durable.write(path, text, within=self.path)
        elif durable.read(path) != text.encode():
            raise RunError(f"run {self.id}: {what} already exists with other content")

    def _write_best(self, best: Attempt | None) -> None:
        if best is None:
            return
        assert best.candidate is not None
        path = self.path / "best.py"
        if not path.exists() or durable.read(path) != best.candidate.source.encode():
            durable.write(path, best.candidate.source, within=self.path)

    def _check_writing(self) -> None:
        if not self._writing:
            raise RuntimeError("a run can be written only inside `with folder.writing():`")

    def _check_open(self) -> None:
        self._check_writing()
        if (outcome := self.outcome()) is not None:
            raise RunError(f"run {self.id} is finished ({outcome.stopped})")


def run_paths(root: Path) -> list[Path]:
    """Return the folders under a root that are runs, oldest first. Folders that are only half created are left out."""
    return sorted(header.parent for header in root.glob("*/run.json"))


def status_of(path: Path) -> Status:
    """Return a run's status, from its folder alone. Raises RunError if its lock cannot be read."""
    if (path / "result.json").exists():
        return "finished"
    return "running" if lock.is_held(path / "lock") else "interrupted"


def _read_header(path: Path) -> tuple[Header, bytes]:
    """Return the header, and the text from which it was read. Raises RunError if it cannot be read, or if a newer
    kforge wrote it."""
    try:
        text = durable.read(path)
        version = json.loads(text)["format"]
    except (ValueError, TypeError, KeyError, RecursionError, OSError) as error:
        raise RunError(f"{path.parent} is not a run: kforge cannot read its run.json") from error
    if isinstance(version, int) and version > FORMAT:
        said = str(version)[:20]
        raise RunError(f"{path.parent} was written by a newer kforge (format {said}); update kforge to open it")
    return parse_record(text, path, Header), text
