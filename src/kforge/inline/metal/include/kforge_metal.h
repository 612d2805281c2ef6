#pragma once
#ifndef KF_PREPROCESS
// Metal Shading Language for clang on a CPU: included before every source.
#include "kforge_metal/entry.h"

#define __METAL_VERSION__ 310
#define __METAL_MACOS__ 1
#define __HAVE_BFLOAT__ 1
#define __HAVE_SIMDGROUP_MATRIX__ 1

#define device KF_DEVICE
#define constant const KF_CONSTANT
#define threadgroup KF_THREADGROUP
#define thread
#define kernel __attribute__((noinline))
#define METAL_FUNC inline __attribute__((always_inline))
#define METAL_INTERNAL inline
#define is_function_constant_defined(NAME) (kf_defined_##NAME)
#endif
