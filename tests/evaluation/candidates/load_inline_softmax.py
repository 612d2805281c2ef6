"""A candidate as models write it for KernelBench: a torch C++ extension, built by torch itself.

Of torch's headers it has only a small one: all of <torch/extension.h> takes a minute to compile.
"""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

SOURCE = """
#include <Python.h>
#include <c10/macros/Macros.h>
#include <cmath>

static PyObject* scaled_softmax(PyObject*, PyObject* arguments) {
    unsigned long long from, by, to;
    long long rows, columns;
    double scale;
    if (!PyArg_ParseTuple(arguments, "KKKLLd", &from, &by, &to, &rows, &columns, &scale)) return nullptr;
    const float* bias = reinterpret_cast<const float*>(by);
    for (long long row = 0; row < rows; ++row) {
        const float* in = reinterpret_cast<const float*>(from) + row * columns;
        float* out = reinterpret_cast<float*>(to) + row * columns;
        double most = -INFINITY, sum = 0;
        for (long long i = 0; i < columns; ++i) most = std::fmax(most, in[i] * scale + bias[i]);
        for (long long i = 0; i < columns; ++i) sum += std::exp(in[i] * scale + bias[i] - most);
        for (long long i = 0; i < columns; ++i) out[i] = float(std::exp(in[i] * scale + bias[i] - most) / sum);
    }
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {{"scaled_softmax", scaled_softmax, METH_VARARGS, nullptr}, {nullptr}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, C10_STRINGIZE(TORCH_EXTENSION_NAME), nullptr, -1, methods};
PyMODINIT_FUNC C10_CONCATENATE(PyInit_, TORCH_EXTENSION_NAME)() { return PyModule_Create(&module); }
"""

extension = load_inline(name="scaled_softmax", cpp_sources=SOURCE, no_implicit_headers=True)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(columns))
        self.scale = columns**-0.5

    def forward(self, scores):
        out = torch.empty_like(scores)
        pointers = (scores.data_ptr(), self.bias.data_ptr(), out.data_ptr())
        extension.scaled_softmax(*pointers, *scores.shape, self.scale)
        return out
