"""Which inline sources small headers can do for, and what is written for them. Real builds are in test_extensions."""

import re
from pathlib import Path

import pytest
import torch

from kforge.evaluation.worker.slim_headers import can_do_for, code_of, operators_in, written_for

HEADERS = Path(torch.__file__).parent / "include"
BINDING = "#include <torch/extension.h>\n"


@pytest.mark.parametrize(
    ("code", "operators"),
    [
        ("auto out = torch::empty_like(x);", {"empty_like"}),
        ("return at::softmax(at::relu_(x), -1);", {"softmax", "relu"}),
        ("at::max_out(out, x, y); at::sub_outf(x, y, 1, out);", {"max", "sub"}),
        ("using namespace torch; return matmul(x, zeros({2}));", {"matmul", "zeros"}),
        ("torch::sofmax(x); my::kernel<<<1, 2>>>(p);", set()),
        ("torch::Tensor tensor = x;", set()),  # at::tensor is not what torch::tensor is
    ],
)
def test_operators_are_found_by_their_names(code: str, operators: set[str]) -> None:
    assert operators_in(code, HEADERS) == operators


def test_comments_and_literals_are_no_code() -> None:
    text = 'a(); // torch::nn\n/* b\n */ c("x \\" tensor (y)", \'"\', R"s(d)" e)s"); 1\'000; f();'
    assert code_of(text).split() == ["a();", "c(", ",", ",", ");", "1'000;", "f();"]


@pytest.mark.parametrize(
    "text",
    [
        BINDING + "torch::Tensor f(torch::Tensor x) { return torch::empty_like(x); }",
        '#include "torch/types.h"\n#include <c10/cuda/CUDAGuard.h>\n#include <vector>\n',
        BINDING + 'TORCH_CHECK(x.is_contiguous(), "a tensor (contiguous) that requires_grad");  // torch::nn',
        BINDING + "#include <torch/library.h>\nTORCH_LIBRARY(own, m) {}",
        BINDING + "m.def(f, check_tensor(x));",
    ],
)
def test_most_sources_need_little(text: str) -> None:
    assert can_do_for([text])


@pytest.mark.parametrize(
    "text",
    [
        "#include <Python.h>\n#include <c10/macros/Macros.h>\n",  # nothing to replace
        BINDING + "torch::nn::Linear linear(1, 2);",
        BINDING + "using namespace torch::indexing; namespace F = torch :: nn::functional;",
        BINDING + "struct F : torch::autograd::Function<F> {};",
        BINDING + "#include <torch/csrc/autograd/custom_function.h>\n",
        BINDING + "auto one = torch::tensor({1.0f, 2.0f});",
        BINDING + "auto w = torch::zeros({2}, torch::TensorOptions().requires_grad(true));",
        BINDING + "THPVariable_Wrap(x);",
    ],
)
def test_some_need_torchs_own(text: str) -> None:
    assert not can_do_for([text])


def written(folder: Path, **sources: str) -> list[Path] | None:
    paths = [folder / name.replace("_", ".") for name in sources]
    for path, text in zip(paths, sources.values(), strict=True):
        path.write_text(text)
    return written_for(paths, HEADERS, folder / "slim")


def test_each_source_gets_what_it_mentions(tmp_path: Path) -> None:
    device = "#include <torch/types.h>\ntorch::Tensor f(torch::Tensor x) { return torch::relu(x).index({0}); }"
    folders = written(tmp_path, main_cpp=BINDING + "PYBIND11_MODULE(x, m) {}", cuda_cu=device)
    assert folders is not None
    assert folders[0] == tmp_path / "slim"
    assert (folders[0] / "kforge/mentioned_cpp.h").read_text() == "#define KFORGE_MENTIONS_PYTHON\n"
    mentioned = (folders[0] / "kforge/mentioned_cu.h").read_text().splitlines()
    assert mentioned == [
        "#include <ATen/TensorIndexing.h>", "#include <ATen/ops/index.h>", "#include <ATen/ops/relu.h>",
    ]  # fmt: skip
    lighter = (folders[0] / "ATen/ops/relu.h").read_text()
    assert "inline at::Tensor relu(" in lighter
    assert "ATen/Context.h" not in lighter
    assert "torch/library.h" not in (folders[0] / "torch/types.h").read_text()


def test_factories_of_namespace_torch_are_torchs_own_but_for_gradients(tmp_path: Path) -> None:
    assert written(tmp_path, main_cpp=BINDING + "torch::zeros({2});")
    factories = (tmp_path / "slim/torch/csrc/autograd/generated/variable_factories.h").read_text()
    function = re.search(r"^inline at::Tensor zeros\(.*?^}", factories, re.MULTILINE | re.DOTALL)
    assert function is not None
    assert "AutoDispatchBelowADInplaceOrView guard;" in function[0]
    assert "return at::zeros(size, " in function[0]
    assert "make_variable" not in factories
    assert "inline at::Tensor ones(" not in factories


def test_what_is_already_written_keeps_its_age(tmp_path: Path) -> None:
    ages = []
    for _ in range(2):
        assert written(tmp_path, main_cpp=BINDING + "torch::relu(x);")
        ages.append({path: path.stat().st_mtime_ns for path in (tmp_path / "slim").rglob("*.h")})
    assert ages[0] == ages[1]


def test_sources_of_other_kinds_or_from_elsewhere_are_left_to_torch(tmp_path: Path) -> None:
    assert written(tmp_path, main_cpp=BINDING, sycl_sycl=BINDING) is None
    assert written_for([tmp_path / "main.cpp"], HEADERS, tmp_path / "build" / "slim") is None
    assert not (tmp_path / "slim").exists()
    assert not (tmp_path / "build").exists()
