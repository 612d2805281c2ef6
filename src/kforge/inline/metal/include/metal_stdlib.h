#include "kforge_metal.h"
