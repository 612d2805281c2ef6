// Comes before every source. These headers are enough for most kernels, and take a fifth of the time of <sycl/sycl.hpp>.
#include <sycl/bit_cast.hpp>
#include <sycl/builtins.hpp>
#include <sycl/ext/oneapi/free_function_kernel_properties.hpp>
#include <sycl/ext/oneapi/free_function_queries.hpp>
#include <sycl/ext/oneapi/work_group_static.hpp>
#include <sycl/group_barrier.hpp>
#include <sycl/multi_ptr.hpp>

#include <cmath>
#include <cstdint>

namespace syclext = sycl::ext::oneapi;
namespace syclexp = sycl::ext::oneapi::experimental;
#line 1 "kernel.cpp"
