// Stands in for torch's <ATen/ATen.h>, which declares every operator there is. This one declares tensors, their methods
// and operators such as +, dispatch macros, and the functions that a program's own sources mention: slim_headers.py
// writes that list, for each source its own.
#pragma once
#pragma GCC system_header

// Most of what torch's headers bring along of the standard library. <stdlib.h> decides which abs() a program calls.
#include <stdlib.h>
#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <cstring>
#include <deque>
#include <functional>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#define AT_PER_OPERATOR_HEADERS  // else <ATen/TensorOperators.h> declares every operator, too
#include <ATen/core/Tensor.h>
#include <ATen/DimVector.h>
#include <ATen/Dispatch.h>
#include <ATen/Formatting.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Generator.h>
#include <ATen/core/Reduction.h>
#include <ATen/core/Scalar.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/TensorOptions.h>
#include <c10/util/Exception.h>
#ifdef __CUDACC__
#include <kforge/mentioned_cu.h>
#else
#include <kforge/mentioned_cpp.h>
#endif
#undef AT_PER_OPERATOR_HEADERS
