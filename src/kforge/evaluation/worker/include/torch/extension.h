// Stands in for torch's <torch/extension.h>: tensors for Python, for a source that mentions Python.
#pragma once
#pragma GCC system_header

#include <torch/all.h>

#ifdef KFORGE_MENTIONS_PYTHON
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>
#endif
