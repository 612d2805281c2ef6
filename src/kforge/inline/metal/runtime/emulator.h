// The emulator's state: one Worker for each operating system thread that runs groups, one Fiber for each thread of a group.
#pragma once
#include <cstddef>
#include <cstdint>
#include <csetjmp>
#include <ucontext.h>

// Calls of memcpy and memset are kernels' accesses, to be checked; the emulator's own are not. The compiler makes such
// calls by itself, for a copy of a large structure: how large depends on the machine. Here they get the real names.
asm("memcpy = __real_memcpy");
asm("memmove = __real_memmove");
asm("memset = __real_memset");
extern "C" void* __real_memcpy(void*, const void*, size_t);
extern "C" void* __real_memset(void*, int, size_t);
static inline void copy(void* to, const void* from, size_t bytes) { __real_memcpy(to, from, bytes); }
static inline void fill(void* to, int value, size_t bytes) { __real_memset(to, value, bytes); }

enum Kind : int { NONE, OUT_OF_BOUNDS, RACE, DIVERGENT_BARRIER, INDEX, MISALIGNED, DIVISION, NO_RETURN, MATRIX, MEMORY_LIMIT, RECURSION };
enum { MAX_THREADS = 1024, WIDTH = 32, STACK = 256 << 10, ARENA = 256 << 10, LIMIT = 32 << 10, MAX_ARRAYS = 64, MAX_ARGUMENTS = 64, VALUE = 64, SPARE_STACK = 48 << 10, BELOW_STACKS = 4 << 20 };

// What went wrong first; read by Python.
struct Fault {
  int kind;
  int write;          // whether the access writes
  int other_write;    // whether the other access of a race writes
  unsigned line, column, other_line;
  uint64_t pc, other_pc;  // offsets in the library, 0 where the line is known
  int region;         // index of the buffer; -1 threadgroup memory; -2 no memory that the kernel may touch
  int64_t offset, extent;  // bytes from the start of it, and its size
  unsigned size, granule;
  unsigned thread[3], group[3];
  unsigned other_thread, other_group;  // linear; other_thread is ~0 where several
  int64_t number;     // an index, a size
  char name[64];
};

struct Cell {  // who wrote and who read an element last
  uint64_t writer, reader;
  uint32_t writer_pc, reader_pc;
};

struct Region {  // a buffer: ORIGINAL is the tensor's memory, BASE the copy that the kernel works on
  unsigned char* original;
  uint64_t size;
  uint32_t granule;
  uint32_t writable;
  unsigned char* base;
  Cell* shadow;
  unsigned char* mapping;
  uint64_t mapped;
  int written;
};

struct Coordinates {  // `kf_thread` of the header
  unsigned grid[3], in_group[3], group[3], group_size[3], dispatch_size[3], grid_size[3], groups[3];
  unsigned index, lane, simd, simds, width, quad, quad_lane, quads;
};

typedef void (*Kernel)(const Coordinates*, void* const*);

struct Launch {  // filled in by Python
  Kernel run;
  unsigned grid[3], group_size[3];
  void** arguments;      // what the kernel gets; those of buffers are set by the runtime
  Region* regions;
  int region_count;
  int argument_count;
  int* argument_region;  // -1: threadgroup memory; else the region
  uint64_t* argument_offset;  // bytes into the region; for threadgroup memory its size
  uint32_t* argument_granule;
  const char** argument_names;
  int workers;
  unsigned order;        // 0 forward, 1 backward, else the seed of a shuffle
  int races;             // whether to look for races
  Fault fault;
  int faulted;
  int fenced;
  unsigned groups[3];
  uint64_t next_group;
};

struct Array {  // an array in threadgroup memory
  const void* key;
  unsigned offset, size, granule;
  const char* name;
};

enum State : unsigned char { UNSTARTED, RUNNABLE, IN_SIMD, IN_SIMD_BARRIER, IN_GROUP_BARRIER, DONE };

struct Fiber {
  jmp_buf place;
  ucontext_t context;
  struct Worker* worker;
  int thread;
  bool started;
};

struct Worker {
  Launch* launch;
  int current;  // the thread that runs now; -1: the scheduler
  bool atomic;
  jmp_buf scheduler;
  unsigned char* arena;
  Cell* arena_shadow;  // one cell a byte: elements of any size find theirs by the first byte
  unsigned char arena_owner[ARENA / 16];
  Array arrays[MAX_ARRAYS];
  int array_count;
  unsigned arena_used, arena_bytes;
  unsigned char* stacks;
  unsigned count, simds;  // of the group
  uint64_t group;         // linear, from 1 on
  uint64_t serial;        // of the groups that this worker ran, from 1 on; 23 bits
  unsigned epoch_group, epoch_device;
  unsigned sub_group[WIDTH], sub_device[WIDTH];
  State state[MAX_THREADS];
  unsigned line[MAX_THREADS];  // where it waits: line << 12 | column
  unsigned flags[MAX_THREADS];
  const void* value[MAX_THREADS];
  unsigned value_size[MAX_THREADS];
  Fiber* fiber[MAX_THREADS];
  unsigned char exchanged[MAX_THREADS / WIDTH][WIDTH * VALUE];
  unsigned active[MAX_THREADS / WIDTH];
  Coordinates where[MAX_THREADS];
  Fiber fibers[MAX_THREADS];
  Fiber* idle[MAX_THREADS];
  int idle_count, made;
  // A write that conflicts with an earlier access: no race if it stores what was there already.
  bool pending;
  Fault pending_fault;
  unsigned char* pending_at;
  unsigned char pending_old[16];
  unsigned pending_size;
  unsigned order[MAX_THREADS];
  void* arguments[MAX_ARGUMENTS];
  Worker* next_free;
};

extern thread_local Worker* kf_worker;
void kf_switch_out(Worker* w);
void kf_record(Worker* w, const Fault& fault);  // for the scheduler
[[noreturn]] void kf_fail(Worker* w, const Fault& fault);
void kf_settle(Worker* w);
uint64_t kf_offset(const void* pc);
