import json
import os
import signal
import subprocess
import sys

import pytest

from kforge.errors import ModelError, RunError, WaitingForReplies
from kforge.models import Exchange, ExchangedModel, Ledger, Reply, open_model
from kforge.records import Usage


class Counting:
    """A model that really answers, and counts how often it was asked."""

    name = "exchange"

    def __init__(self):
        self.asked = 0

    def complete(self, request):
        self.asked += 1
        usage = Usage(requests=1, input_tokens=3, output_tokens=4, cost_usd=0.5)
        return Reply(text=f"answer {self.asked}", usage=usage, model="counting-1", finish="stop")


@pytest.fixture
def counting(tmp_path):
    return ExchangedModel(Counting(), Exchange(tmp_path))


def test_a_question_is_asked_once(counting, ask, tmp_path):
    first = counting.complete(ask(measured="1"))
    again = counting.complete(ask(measured="2"))
    assert first == again
    assert counting.source.asked == 1
    assert counting.complete(ask("why?")).text == "answer 2"
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "001-generation.reply.json", "001-generation.request.json", "002-generation.reply.json",
        "002-generation.request.json",
    ]  # fmt: skip


def test_questions_are_numbered_in_their_order_and_named_for_their_agent(counting, ask, tmp_path):
    for question, agent in (("how?", "generation"), ("where?", "analysis"), ("why?", "generation")):
        counting.complete(ask(question, agent=agent))
    asked = Exchange(tmp_path).questions()
    assert [each.name for each in asked] == ["001-generation", "002-analysis", "003-generation"]
    assert [each.state for each in asked] == ["answered"] * 3


def test_the_number_after_999_comes_after_it(counting, ask, tmp_path):
    counting.complete(ask("how?"))
    for file in list(tmp_path.iterdir()):
        file.rename(file.with_name(file.name.replace("001", "999")))
    counting.complete(ask("why?"))
    assert [each.name for each in Exchange(tmp_path).questions()] == ["999-generation", "1000-generation"]
    assert counting.complete(ask("how?")).text == "answer 1"


def test_a_folder_of_an_earlier_version_is_used_as_it_is(counting, ask, tmp_path):
    counting.complete(ask("how?"))
    for file in list(tmp_path.iterdir()):
        file.rename(file.with_name(file.name.replace("001-generation", ask("how?").identity)))
    assert counting.complete(ask("how?")).text == "answer 1"
    assert counting.complete(ask("why?")).text == "answer 2"
    assert [each.name for each in Exchange(tmp_path).questions()] == [ask("how?").identity, "001-generation"]


def test_a_reply_with_the_number_of_a_question_that_was_never_asked_answers_none(counting, ask, tmp_path):
    (tmp_path / "001-generation.reply.md").write_text("an answer to another question")
    assert counting.complete(ask()).text == "answer 1"
    assert [each.name for each in Exchange(tmp_path).questions()] == ["002-generation"]


def test_spent_counts_each_reply_once(counting, ask, tmp_path):
    for question in ("how?", "how?", "why?"):
        counting.complete(ask(question))
    assert Ledger.read(tmp_path).usage == Usage(requests=2, input_tokens=6, output_tokens=8, cost_usd=1.0)
    assert Ledger.read(tmp_path / "nothing").usage == Usage()


@pytest.mark.parametrize("torn", ["", "{", '{"text": "a', "[]", "null", '{"no": "text"}', b"\xff\xfe", '"text"'])
def test_a_torn_reply_is_moved_aside_and_asked_again(counting, ask, tmp_path, torn):
    counting.complete(ask())
    path = tmp_path / "001-generation.reply.json"
    path.write_bytes(torn if isinstance(torn, bytes) else torn.encode())
    assert counting.complete(ask()).text == "answer 2"
    assert path.with_name(path.name + ".damaged").exists()
    assert Reply.from_json(path.read_bytes()).text == "answer 2"


def test_every_prefix_of_a_reply_is_seen_as_torn(counting, ask, tmp_path):
    counting.complete(ask())
    path = tmp_path / "001-generation.reply.json"
    whole = path.read_bytes()
    for length in range(len(whole.rstrip())):
        path.write_bytes(whole[:length])
        assert Exchange(tmp_path).reply(ask()) is None


def test_the_cache_does_not_answer_for_another_model(counting, ask):
    counting.complete(ask(model="exchange"))
    with pytest.raises(ModelError, match=r"'exchange'.*'openai:gpt-5'") as caught:
        counting.complete(ask(model="openai:gpt-5"))
    assert "\n" not in str(caught.value)


def test_an_unanswered_request_may_go_to_another_model(ask, tmp_path):
    Exchange(tmp_path).write_request(ask(model="openai:gpt-5"))
    assert ExchangedModel(Counting(), Exchange(tmp_path)).complete(ask(model="exchange")).text == "answer 1"


def test_a_folder_that_cannot_be_used_is_one_clear_line(ask, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(RunError, match=r"cannot (read|write) .*file") as caught:
        ExchangedModel(Counting(), Exchange(tmp_path / "file")).complete(ask())
    assert "\n" not in str(caught.value)


class TestAnsweringByFile:
    @pytest.fixture
    def model(self, tmp_path):
        return open_model("exchange", exchange=tmp_path, keys={})

    def test_the_prompt_is_written_and_the_run_waits(self, model, ask, tmp_path):
        with pytest.raises(WaitingForReplies) as caught:
            model.complete(ask())
        assert (caught.value.pending, caught.value.empty) == (("001-generation",), ())
        prompt = (tmp_path / "001-generation.prompt.md").read_text()
        assert "001-generation.reply.md" in prompt
        assert "be good" in prompt
        assert "how? 1" in prompt
        assert json.loads((tmp_path / "001-generation.request.json").read_text())["agent"] == "generation"

    @pytest.mark.parametrize(
        ("name", "written"),
        [
            ("reply.md", "like this\n"),
            ("reply.txt", "like this\n"),
            ("reply.json", '{"text": "like this\\n"}'),
        ],
    )
    def test_a_reply_is_taken_in_any_form(self, model, ask, tmp_path, name, written):
        with pytest.raises(WaitingForReplies):
            model.complete(ask())
        (tmp_path / f"001-generation.{name}").write_text(written)
        assert model.complete(ask()) == Reply(
            text="like this\n", usage=Usage(requests=1), model="exchange", finish="stop"
        )

    def test_a_reply_may_say_who_gave_it(self, model, ask, tmp_path):
        said = {"text": "so", "model": "a person", "finish": "length", "usage": {"requests": 1, "input_tokens": 9}}
        (tmp_path / f"{ask().identity}.reply.json").write_text(json.dumps(said))
        reply = model.complete(ask())
        assert (reply.model, reply.finish, reply.usage.input_tokens) == ("a person", "length", 9)

    @pytest.mark.parametrize("empty", ["", "  \n"])
    def test_an_empty_file_is_no_reply_yet(self, model, ask, tmp_path, empty):
        with pytest.raises(WaitingForReplies):
            model.complete(ask())
        (tmp_path / "001-generation.reply.md").write_text(empty)
        with pytest.raises(WaitingForReplies, match="its reply is empty") as caught:
            model.complete(ask())
        assert caught.value.empty == ("001-generation",)
        (question,) = Exchange(tmp_path).waiting()
        assert question.state == "empty reply"


WRITER = """
import sys
from pathlib import Path
from kforge.models import Exchange, Message, Reply, Request
from kforge.records import Usage
exchange = Exchange(Path(sys.argv[1]))
print("ready", flush=True)
for n in range(100000):
    message = Message(role="user", text=str(n), fingerprint=str(n))
    request = Request(agent="generation", model="m", messages=(message,), max_tokens=1)
    exchange.write_request(request)
    exchange.write_reply(request, Reply(text=str(n) * 2000, usage=Usage(requests=1), model="m", finish="stop"))
"""


def test_a_killed_writer_leaves_no_torn_reply(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout:
        process.stdout.readline()
        while len(list(tmp_path.glob("*.reply.json"))) < 20:
            assert process.poll() is None
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    answered = list(Exchange(tmp_path).answered())
    assert len(answered) >= 20
    assert all(reply.text == request.messages[0].text * 2000 for request, reply in answered)
    assert not list(tmp_path.glob("*.damaged"))
