// Nothing more to declare: it is built in.
#pragma once
#include "kforge_inline.h"
