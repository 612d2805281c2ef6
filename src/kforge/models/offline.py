"""Models that make no network call: a recording, a person who answers by file, a script."""

from __future__ import annotations

import re
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, TypeAdapter, ValidationError

from kforge import reading
from kforge.errors import ModelError, RecordingExhausted, WaitingForReplies
from kforge.models.conversation import Reply, Request
from kforge.models.exchange import DamagedReply, read_reply
from kforge.records import Usage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kforge.models.exchange import Exchange
    from kforge.models.images import Image


class ReplayedModel:
    """Answers from the folders of one or several recorded exchanges, which it never changes."""

    def __init__(self, folder: str) -> None:
        """`folder`: an exchange, or a folder in which exchanges lie, such as that of a suite.

        Raises ModelError when there is no such folder.
        """
        self.folder = Path(folder)
        self.name = f"replay:{folder}"
        if not self.folder.is_dir():
            raise ModelError(f"replay: there is no recorded exchange at {folder}")
        self._exchanges = [self.folder, *sorted(self.folder.glob("**/exchange"))]

    def complete(self, request: Request) -> Reply:
        """Return the recorded answer; it costs nothing now. Raises RecordingExhausted if no answer is recorded."""
        try:
            reply = next(filter(None, (read_reply(folder, request) for folder in self._exchanges)), None)
        except DamagedReply as damage:
            raise RecordingExhausted(f"{damage.path} is damaged, so the recording cannot be replayed") from damage
        if reply is None:
            raise RecordingExhausted(
                f"the recording {self.folder} ends here, without a reply to the {request.agent} request "
                f"{request.identity} (or the problem, platform, prompts or path of the run differ from the recording)"
            )
        return reply.model_copy(update={"usage": Usage()})


class AwaitedModel:
    """Leaves the question in the exchange for a person or another program to answer."""

    name = "exchange"

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange

    def complete(self, request: Request) -> Reply:
        """Write the prompt to a file for a reader, if there is no reply yet. Always raises WaitingForReplies."""
        asked = self.exchange.question(request)
        name = asked.name if asked is not None else self.exchange.write_request(request)
        files = iter(request.image_files(name))
        turns = "\n\n".join(
            "\n\n".join([f"<!-- {message.role} -->", message.text.strip(), *_links(islice(files, len(message.images)))])
            for message in request.messages
        )
        self.exchange.write(
            f"{name}.prompt.md",
            f"<!-- Answer in a file {name}.reply.md beside this one, then resume the run. -->\n\n{turns}\n",
        )
        is_empty = asked is not None and asked.state == "empty reply"
        raise WaitingForReplies((name,), (name,) if is_empty else ())


def _links(files: Iterable[tuple[str, Image]]) -> Iterator[str]:
    """Yield a Markdown link to each image, which an editor or browser shows in its place."""
    for name, _ in files:
        yield f"![{name}]({name})"


class _Line(BaseModel, extra="forbid"):
    """One answer of a script, with its text and the reason why the model stopped.

    A plain string in a script is an answer with this text and the reason `stop`.
    """

    text: str
    finish: str = "stop"


_LINES: TypeAdapter[list[str | _Line]] = TypeAdapter(list[str | _Line])


class ScriptedModel:
    """Answers in order from a script, whatever the request is.

    The script is a JSON list of answers (strings, or objects with `text` and `finish`), a text file that is one answer,
    or a folder with one file for each. The n-th question to it in the exchange gets the n-th answer, so a resumed run
    goes on where it stopped.
    """

    def __init__(self, script: str, exchange: Exchange) -> None:
        """Raises ModelError when the script cannot be read."""
        self.name = f"scripted:{script}"
        self.exchange = exchange
        self.lines = _read_script(Path(script))

    def complete(self, request: Request) -> Reply:
        """Return the script's next answer. Raises RecordingExhausted when the script is at its end."""
        asked = (each.request for each in self.exchange.questions() if each.request.model == request.model)
        position = [each.identity for each in asked].index(request.identity)
        if position >= len(self.lines):
            raise RecordingExhausted(f"{self.name} holds {len(self.lines)} replies, and all of them are used")
        line = self.lines[position]
        return Reply(text=line.text, usage=Usage(requests=1, cost_usd=0.0), model=self.name, finish=line.finish)


def _read_script(path: Path) -> list[_Line]:
    try:
        if path.is_dir():
            files = sorted((file for file in path.iterdir() if file.is_file()), key=_natural)
            return [_Line(text=_plain(reading.text(file))) for file in files]
        text = _plain(reading.text(path))
        if path.suffix != ".json":
            return [_Line(text=text)]
        return [_Line(text=line) if isinstance(line, str) else line for line in _LINES.validate_json(text)]
    except (OSError, UnicodeDecodeError) as error:
        place = error.filename if isinstance(error, OSError) and error.filename else path
        raise ModelError(f"scripted: cannot read {place}: {reading.reason(error)}") from error
    except ValidationError as error:
        raise ModelError(
            f"scripted: {path} must hold a JSON list of answers, each a string or an object with 'text'"
        ) from error


def _plain(text: str) -> str:
    """Return the text with Unix line ends."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _natural(path: Path) -> list[tuple[int, str]]:
    """Return a sort key that puts `2.md` before `10.md`."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", path.name)]
