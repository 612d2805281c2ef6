import json

import pytest

from kforge.errors import ModelError, RecordingExhausted, RunError
from kforge.models import Exchange, Ledger, Reply, open_model
from kforge.records import Usage


def record(folder, request, text="recorded"):
    exchange = Exchange(folder)
    exchange.write_request(request)
    usage = Usage(requests=1, input_tokens=5, cost_usd=1.0)
    exchange.write_reply(request, Reply(text=text, usage=usage, model="gpt-9", finish="stop"))


class TestReplay:
    @pytest.fixture
    def recording(self, tmp_path, ask):
        record(tmp_path / "recording", ask(model="openai:gpt-9"))
        return tmp_path / "recording"

    @pytest.fixture
    def model(self, recording, tmp_path):
        return open_model(f"replay:{recording}", exchange=tmp_path / "run", keys={})

    def test_it_answers_whichever_model_was_recorded_and_whatever_was_measured(self, model, ask):
        reply = model.complete(ask(model=model.name, measured="another machine's"))
        assert (reply.text, reply.model) == ("recorded", "gpt-9")

    def test_it_costs_nothing(self, model, ask):
        assert model.complete(ask(model=model.name)).usage == Usage()

    def test_it_changes_nothing_in_the_recording_and_fills_the_runs_own_exchange(self, model, ask, recording, tmp_path):
        before = {path.name: path.read_bytes() for path in recording.iterdir()}
        model.complete(ask(model=model.name))
        assert {path.name: path.read_bytes() for path in recording.iterdir()} == before
        assert len(list((tmp_path / "run").glob("*.reply.json"))) == 1

    def test_an_unrecorded_question_exhausts_it(self, model, ask):
        with pytest.raises(RecordingExhausted, match=ask("why?").identity) as caught:
            model.complete(ask("why?", model=model.name))
        assert "\n" not in str(caught.value)

    def test_a_damaged_recording_is_named_and_left_alone(self, model, ask, recording):
        path = recording / "001-generation.reply.json"
        path.write_text("{")
        with pytest.raises(RecordingExhausted, match="damaged"):
            model.complete(ask(model=model.name))
        assert path.read_text() == "{"

    def test_a_folder_of_several_recordings_answers_from_all_of_them(self, ask, tmp_path):
        for number in (1, 2):
            record(tmp_path / "suite" / f"problem_{number}" / "exchange", ask(f"question {number}"), f"answer {number}")
        model = open_model(f"replay:{tmp_path / 'suite'}", exchange=tmp_path / "run", keys={})
        assert [model.complete(ask(f"question {number}", model=model.name)).text for number in (2, 1)] == [
            "answer 2",
            "answer 1",
        ]

    def test_a_missing_folder_is_found_at_once(self, tmp_path):
        with pytest.raises(ModelError, match="no recorded exchange at /nowhere"):
            open_model("replay:/nowhere", exchange=tmp_path, keys={})


class TestScript:
    def open(self, script, tmp_path):
        return open_model(f"scripted:{script}", exchange=tmp_path / "run", keys={})

    def answers(self, model, ask, questions):
        return [model.complete(ask(question, model=model.name)).text for question in questions]

    def test_json_in_order_with_how_each_answer_ended(self, ask, tmp_path):
        script = tmp_path / "script.json"
        script.write_text(json.dumps(["one", {"text": "two", "finish": "length"}]))
        model = self.open(script, tmp_path)
        assert self.answers(model, ask, "ab") == ["one", "two"]
        assert model.complete(ask("b", model=model.name)).finish == "length"
        with pytest.raises(RecordingExhausted, match="2 replies"):
            model.complete(ask("c", model=model.name))

    def test_a_folder_in_natural_order(self, ask, tmp_path):
        folder = tmp_path / "script"
        folder.mkdir()
        for name in ("10.md", "2.md", "1.md"):
            (folder / name).write_text(name)
        assert self.answers(self.open(folder, tmp_path), ask, "abc") == ["1.md", "2.md", "10.md"]

    def test_a_text_file_is_one_answer(self, ask, tmp_path):
        script = tmp_path / "script.md"
        script.write_text("only\nthis")
        assert self.answers(self.open(script, tmp_path), ask, "a") == ["only\nthis"]

    def test_a_resumed_run_goes_on_where_it_stopped(self, ask, tmp_path):
        script = tmp_path / "script.json"
        script.write_text('["one", "two", "three"]')
        assert self.answers(self.open(script, tmp_path), ask, "ab") == ["one", "two"]
        assert self.answers(self.open(script, tmp_path), ask, "abc") == ["one", "two", "three"]

    def test_two_scripts_in_one_exchange_keep_their_own_places(self, ask, tmp_path):
        for name in ("f", "g"):
            (tmp_path / f"{name}.json").write_text(json.dumps([f"{name}1", f"{name}2"]))
        f, g = (self.open(tmp_path / f"{name}.json", tmp_path) for name in "fg")
        assert [*self.answers(f, ask, "a"), *self.answers(g, ask, "b"), *self.answers(f, ask, "c")] == [
            "f1",
            "g1",
            "f2",
        ]

    @pytest.mark.parametrize("content", ["{", '{"a": 1}', "[1]", '[{"txt": ""}]', b"\xff"])
    def test_a_bad_script_is_one_clear_line(self, tmp_path, content):
        script = tmp_path / "script.json"
        script.write_bytes(content if isinstance(content, bytes) else content.encode())
        with pytest.raises(ModelError, match=r"script\.json") as caught:
            self.open(script, tmp_path)
        assert "\n" not in str(caught.value)

    def test_a_missing_script_is_one_clear_line(self, tmp_path):
        with pytest.raises(ModelError, match=r"cannot read .*: No such file"):
            self.open(tmp_path / "none.json", tmp_path)


@pytest.mark.parametrize("name", ["builtin", "", "gpt-5", ":x", "openai:", "replay:", "scripted:", "Exchange"])
def test_a_name_that_means_nothing_is_one_clear_line(name, tmp_path):
    with pytest.raises(ModelError, match=r"unknown model.*PROVIDER:MODEL") as caught:
        open_model(name, exchange=tmp_path, keys={})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("spoil", ["deep", "types", "count"])
def test_a_reply_of_others_that_is_none_ends_the_replay_in_one_line(ask, tmp_path, spoil):
    text = {"deep": "[" * 100_000, "types": '{"text": 5}', "count": '{"text": "", "usage": {"requests": -1}}'}[spoil]
    (tmp_path / f"{ask().identity}.reply.json").write_text(text)
    model = open_model(f"replay:{tmp_path}", exchange=tmp_path / "run", keys={})
    with pytest.raises(RecordingExhausted, match="is damaged"):
        model.complete(ask())


def test_a_copy_of_a_question_under_another_name_counts_once(ask, tmp_path):
    """Cause: a script went on two answers further, and their cost was counted twice."""
    record(tmp_path, ask())
    request = tmp_path / "001-generation.request.json"
    (tmp_path / "copy.request.json").write_bytes(request.read_bytes())
    assert Ledger.read(tmp_path).usage == Usage(requests=1, input_tokens=5, cost_usd=1.0)


def test_a_request_that_is_a_folder_is_one_clear_line(tmp_path):
    (tmp_path / "0.request.json").mkdir()
    with pytest.raises(RunError, match=r"0\.request\.json: Is a directory"):
        Ledger.read(tmp_path)


def test_a_script_whose_names_are_digits_that_are_no_numbers(ask, tmp_path):
    """Cause: `²` is a digit, and `int` does not read it."""
    (tmp_path / "script").mkdir()
    for name in ("10.md", "2.md", "\u00b2"):
        (tmp_path / "script" / name).write_text(name)
    model = open_model(f"scripted:{tmp_path / 'script'}", exchange=tmp_path / "run", keys={})
    said = [model.complete(ask(question, model=model.name)).text for question in ("one", "two", "three")]
    assert said == ["2.md", "10.md", "\u00b2"]
