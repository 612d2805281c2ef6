#pragma once
#ifndef INT_MAX
#define CHAR_BIT 8
#define SHRT_MAX 32767
#define SHRT_MIN (-32767 - 1)
#define INT_MAX 2147483647
#define INT_MIN (-INT_MAX - 1)
#define UINT_MAX 0xffffffffu
#define LLONG_MAX 9223372036854775807LL
#define LLONG_MIN (-LLONG_MAX - 1)
#define ULLONG_MAX 0xffffffffffffffffull
#endif
