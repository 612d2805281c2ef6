// The driver's interface is for hosts, and NVRTC refuses the toolkit's file of this name; kernels that include it out of
// habit need nothing of it.
#pragma once
#include "kforge_inline.h"
