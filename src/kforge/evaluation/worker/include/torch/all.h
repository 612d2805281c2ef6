// Stands in for torch's <torch/all.h>: without layers, optimizers, datasets and their files.
#pragma once
#pragma GCC system_header

#include <torch/types.h>

#include <ATen/Parallel.h>
#include <torch/cuda.h>
#include <torch/version.h>
