// One object for all libraries: see scheduler.cpp and checks.cpp.
#include "checks.cpp"
#include "scheduler.cpp"
