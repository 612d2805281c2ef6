// Included out of habit: all of it is there already.
#pragma once
#include "kforge_hip.h"
