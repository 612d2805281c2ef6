// Stands in for torch's <torch/torch.h>, which for an extension is this:
#pragma once
#pragma GCC system_header

#include <torch/extension.h>
