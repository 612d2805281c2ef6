// Every access of a kernel comes here: clang's instrumentation for data races calls __tsan_*, that for undefined
// behaviour __ubsan_*. Accesses are held against buffers, threadgroup arrays and what other threads did.
#include "emulator.h"
#include <cstring>
#include <link.h>

thread_local Worker* kf_worker;

namespace {
// group 23 bits | thread 10 | epoch 15 | epoch of the simdgroup 14 | several 2
enum : uint64_t { ONE, THREADS, SIMDS, GROUPS };
enum : unsigned { LAST_EPOCH = (1 << 15) - 1, LAST_SUB = (1 << 14) - 1 };
uint64_t pack(uint64_t group, unsigned thread, unsigned epoch, unsigned sub) {
  return (group & 0x7fffff) << 41 | uint64_t(thread) << 31 | uint64_t(epoch) << 16 | uint64_t(sub) << 2;
}
uint64_t group_of(uint64_t c) { return c >> 41; }
unsigned thread_of(uint64_t c) { return c >> 31 & 1023; }
unsigned epoch_of(uint64_t c) { return c >> 16 & LAST_EPOCH; }
unsigned sub_of(uint64_t c) { return c >> 2 & LAST_SUB; }
uint64_t several(uint64_t c) { return c & 3; }

// Whether an access of the same group is before this one by a barrier, or by the same thread.
bool ordered(uint64_t a, uint64_t me) {
  if (epoch_of(a) != epoch_of(me)) return true;
  if (several(a) == SIMDS) return false;
  bool same_simd = thread_of(a) / WIDTH == thread_of(me) / WIDTH;
  if (same_simd && sub_of(a) != sub_of(me)) return true;
  return several(a) == ONE && thread_of(a) == thread_of(me);
}
bool conflicts(uint64_t a, uint64_t me, bool shared, const Launch* launch) {
  if (!a) return false;
  if (shared) return group_of(a) == group_of(me) && !ordered(a, me);
  if (several(a) == GROUPS || group_of(a) != group_of(me)) return !launch->fenced;
  return !ordered(a, me);
}
uint64_t with_reader(uint64_t old, uint64_t me, bool shared) {
  if (!old || (shared && group_of(old) != group_of(me))) return me;
  if (several(old) == GROUPS) return old;
  if (group_of(old) != group_of(me)) return me | GROUPS;
  if (epoch_of(old) != epoch_of(me)) return me;
  if (thread_of(old) == thread_of(me)) return me | several(old);
  if (thread_of(old) / WIDTH != thread_of(me) / WIDTH || several(old) == SIMDS) return me | SIMDS;
  return sub_of(old) != sub_of(me) ? me : me | THREADS;
}

void place(const Worker* w, Fault& f) {
  copy(f.thread, w->where[w->current].in_group, sizeof f.thread);
  copy(f.group, w->where[w->current].group, sizeof f.group);
}
void name(Fault& f, const char* text) { strncpy(f.name, text, sizeof f.name - 1); }

struct Element { int region; int64_t offset, extent; unsigned granule; const char* name; };

void race(Worker* w, const Element& e, uint64_t other, uint32_t other_pc, bool write, bool other_write, unsigned size, const void* pc, unsigned char* at) {
  Fault f = {};
  f.kind = RACE;
  f.write = write, f.other_write = other_write;
  f.pc = kf_offset(pc), f.other_pc = other_pc;
  f.region = e.region, f.offset = e.offset, f.extent = e.extent, f.granule = e.granule, f.size = size;
  f.other_thread = several(other) == ONE ? thread_of(other) : ~0u;
  bool same_group = e.region == -1 || (group_of(other) == (w->group & 0x7fffff) && several(other) != GROUPS);
  f.other_group = same_group ? ~0u : unsigned(group_of(other) - 1);
  place(w, f);
  if (e.name) name(f, e.name);
  if (!write || size > sizeof w->pending_old) kf_fail(w, f);
  w->pending = true, w->pending_fault = f, w->pending_at = at, w->pending_size = size;
  copy(w->pending_old, at, size);
}

void track(Worker* w, Cell* cell, unsigned step, unsigned count, bool write, bool shared, Element e, unsigned size, const void* pc, unsigned char* at) {
  unsigned simd = unsigned(w->current) / WIDTH;
  unsigned epoch = shared ? w->epoch_group : w->epoch_device, sub = shared ? w->sub_group[simd] : w->sub_device[simd];
  if (epoch > LAST_EPOCH || sub > LAST_SUB) return;  // the counters are full: no more is known
  // Threadgroup memory is reused by every group of this worker, in all launches: what earlier ones did is no race.
  uint64_t me = pack(shared ? w->serial : w->group, unsigned(w->current), epoch, sub);
  uint32_t here = uint32_t(kf_offset(pc));
  for (unsigned i = 0; i < count; ++i, cell += step, e.offset += e.granule) {
    if (write) {
      uint64_t writer = __atomic_exchange_n(&cell->writer, me, __ATOMIC_SEQ_CST);
      uint64_t reader = __atomic_load_n(&cell->reader, __ATOMIC_SEQ_CST);
      uint32_t writer_pc = cell->writer_pc;
      cell->writer_pc = here;
      if (conflicts(writer, me, shared, w->launch)) return race(w, e, writer, writer_pc, true, true, size, pc, at);
      if (conflicts(reader, me, shared, w->launch)) return race(w, e, reader, cell->reader_pc, true, false, size, pc, at);
    } else {
      uint64_t reader = __atomic_load_n(&cell->reader, __ATOMIC_SEQ_CST), now;
      do now = with_reader(reader, me, shared);
      while (now != reader && !__atomic_compare_exchange_n(&cell->reader, &reader, now, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
      if (now != reader) cell->reader_pc = here;
      uint64_t writer = __atomic_load_n(&cell->writer, __ATOMIC_SEQ_CST);
      if (conflicts(writer, me, shared, w->launch)) return race(w, e, writer, cell->writer_pc, false, true, size, pc, at);
    }
  }
}

struct Image { uintptr_t start, end; };
int look_for_image(dl_phdr_info* info, size_t, void* out) {
  uintptr_t here = reinterpret_cast<uintptr_t>(&look_for_image), low = ~uintptr_t(0), high = 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& p = info->dlpi_phdr[i];
    if (p.p_type != PT_LOAD) continue;
    uintptr_t start = info->dlpi_addr + p.p_vaddr, end = start + p.p_memsz;
    if (start < low) low = start;
    if (end > high) high = end;
  }
  if (here < low || here >= high) return 0;
  *static_cast<Image*>(out) = {low, high};
  return 1;
}
const Image& image() {
  static const Image found = [] { Image i = {}; dl_iterate_phdr(look_for_image, &i); return i; }();
  return found;
}

[[noreturn]] void outside(Worker* w, uintptr_t a, unsigned size, bool write, const void* pc) {
  Fault f = {};
  f.kind = OUT_OF_BOUNDS, f.write = write, f.pc = kf_offset(pc), f.size = size, f.region = -2;
  place(w, f);
  // The memory whose end or start is nearest is the one that was meant.
  int64_t nearest = int64_t(1) << 34;
  for (int i = 0; i < w->launch->region_count; ++i) {
    const Region& r = w->launch->regions[i];
    int64_t offset = int64_t(a - reinterpret_cast<uintptr_t>(r.base)), away = offset < 0 ? -offset : offset - int64_t(r.size);
    if (away < nearest) nearest = away, f.region = i, f.offset = offset, f.extent = int64_t(r.size), f.granule = r.granule;
  }
  for (int i = 0; i < w->array_count; ++i) {
    const Array& t = w->arrays[i];
    int64_t offset = int64_t(a - reinterpret_cast<uintptr_t>(w->arena) - t.offset);
    int64_t away = offset < 0 ? -offset + (1 << 12) : offset - int64_t(t.size);  // an index too large is the usual mistake
    if (away < nearest) nearest = away, f.region = -1, f.offset = offset, f.extent = t.size, f.granule = t.granule, name(f, t.name);
  }
  kf_fail(w, f);
}

void access(uintptr_t a, unsigned size, bool write, const void* pc) {
  Worker* w = kf_worker;
  if (!w || w->current < 0 || w->atomic) return;
  if (w->pending) kf_settle(w);
  if (a - reinterpret_cast<uintptr_t>(w->stacks) < uintptr_t(STACK) * MAX_THREADS) return;
  Launch* launch = w->launch;
  uintptr_t in_arena = a - reinterpret_cast<uintptr_t>(w->arena);
  if (in_arena < ARENA) {
    unsigned owner = w->arena_owner[in_arena / 16];
    if (!owner) outside(w, a, size, write, pc);
    const Array& t = w->arrays[owner - 1];
    if (in_arena + size > t.offset + t.size) outside(w, a, size, write, pc);
    if (launch->races && size % t.granule == 0 && (in_arena - t.offset) % t.granule == 0)
      track(w, w->arena_shadow + in_arena, t.granule, size / t.granule, write, true, {-1, int64_t(in_arena - t.offset), t.size, t.granule, t.name}, size, pc, reinterpret_cast<unsigned char*>(a));
    return;
  }
  for (int i = 0; i < launch->region_count; ++i) {
    Region& r = launch->regions[i];
    uintptr_t offset = a - reinterpret_cast<uintptr_t>(r.base);
    if (offset >= r.size) continue;
    if (offset + size > r.size) break;
    if (write) r.written = 1;
    if (r.shadow && size % r.granule == 0 && offset % r.granule == 0)
      track(w, r.shadow + offset / r.granule, 1, size / r.granule, write, false, {i, int64_t(offset), int64_t(r.size), r.granule, nullptr}, size, pc, reinterpret_cast<unsigned char*>(a));
    return;
  }
  uintptr_t own = reinterpret_cast<uintptr_t>(w);
  if (a - own < sizeof(Worker) || (a >= image().start && a < image().end)) return;
  outside(w, a, size, write, pc);
}

[[noreturn]] void undefined(Kind kind, const void* data, int64_t number, const void* pc) {
  struct Source { const char* file; unsigned line, column; };
  const Source* s = static_cast<const Source*>(data);
  Fault f = {};
  f.kind = kind, f.number = number;
  // Inside a function of our headers, the place of the call tells the user's line.
  if (s && strstr(s->file, "kernel.metal")) f.line = s->line, f.column = s->column;
  else f.pc = kf_offset(pc);
  place(kf_worker, f);
  kf_fail(kf_worker, f);
}
}  // namespace

uint64_t kf_offset(const void* pc) { return reinterpret_cast<uintptr_t>(pc) - 1 - image().start; }

void kf_settle(Worker* w) {
  w->pending = false;
  if (memcmp(w->pending_at, w->pending_old, w->pending_size) != 0) kf_fail(w, w->pending_fault);
}

#define PC __builtin_return_address(0)
#define CALLBACKS(N)                                                                                                     \
  void __tsan_read##N(void* a) { access(reinterpret_cast<uintptr_t>(a), N, false, PC); }                                 \
  void __tsan_write##N(void* a) { access(reinterpret_cast<uintptr_t>(a), N, true, PC); }                                 \
  void __tsan_unaligned_read##N(void* a) { access(reinterpret_cast<uintptr_t>(a), N, false, PC); }                       \
  void __tsan_unaligned_write##N(void* a) { access(reinterpret_cast<uintptr_t>(a), N, true, PC); }                       \
  void __tsan_volatile_read##N(void* a) { access(reinterpret_cast<uintptr_t>(a), N, false, PC); }                        \
  void __tsan_volatile_write##N(void* a) { access(reinterpret_cast<uintptr_t>(a), N, true, PC); }                        \
  void __tsan_read_write##N(void* a) { access(reinterpret_cast<uintptr_t>(a), N, true, PC); }                            \
  void __tsan_unaligned_read_write##N(void* a) { access(reinterpret_cast<uintptr_t>(a), N, true, PC); }
extern "C" {
CALLBACKS(1)
CALLBACKS(2)
CALLBACKS(4)
CALLBACKS(8)
CALLBACKS(16)
void __tsan_init() {}
void __tsan_func_entry(void* caller) {
  Worker* w = kf_worker;
  if (!w || w->current < 0) return;
  unsigned char* bottom = w->stacks + size_t(w->fiber[w->current] - w->fibers) * STACK;
  if (static_cast<unsigned char*>(__builtin_frame_address(0)) - bottom > SPARE_STACK) return;
  Fault f = {};
  f.kind = RECURSION, f.pc = kf_offset(PC), f.other_pc = kf_offset(caller);  // the function that is entered, and where from
  place(w, f);
  kf_fail(w, f);
}
void __tsan_func_exit() {}
void __tsan_vptr_read(void*) {}
void __tsan_vptr_update(void*, void*) {}
void __tsan_read_range(void* a, size_t n) { if (n) access(reinterpret_cast<uintptr_t>(a), unsigned(n), false, PC); }
void __tsan_write_range(void* a, size_t n) { if (n) access(reinterpret_cast<uintptr_t>(a), unsigned(n), true, PC); }

void* __real_memmove(void*, const void*, size_t);
void* __wrap_memcpy(void* to, const void* from, size_t n) {
  if (n) access(reinterpret_cast<uintptr_t>(from), unsigned(n), false, PC), access(reinterpret_cast<uintptr_t>(to), unsigned(n), true, PC);
  return __real_memcpy(to, from, n);
}
void* __wrap_memmove(void* to, const void* from, size_t n) {
  if (n) access(reinterpret_cast<uintptr_t>(from), unsigned(n), false, PC), access(reinterpret_cast<uintptr_t>(to), unsigned(n), true, PC);
  return __real_memmove(to, from, n);
}
void* __wrap_memset(void* to, int value, size_t n) {
  if (n) access(reinterpret_cast<uintptr_t>(to), unsigned(n), true, PC);
  return __real_memset(to, value, n);
}
// Newer compilers call these for the same.
void* __tsan_memcpy(void* to, const void* from, size_t n) { return __wrap_memcpy(to, from, n); }
void* __tsan_memmove(void* to, const void* from, size_t n) { return __wrap_memmove(to, from, n); }
void* __tsan_memset(void* to, int value, size_t n) { return __wrap_memset(to, value, n); }

void kf_atomic_begin(const volatile void* a, unsigned size, int write) {
  Worker* w = kf_worker;
  bool races = w->launch->races;
  w->launch->races = 0;  // one worker runs a kernel with atomics
  uintptr_t address = reinterpret_cast<uintptr_t>(a);
  for (int i = 0; i < w->launch->region_count; ++i) {
    Region& r = w->launch->regions[i];
    uintptr_t offset = address - reinterpret_cast<uintptr_t>(r.base);
    if (offset < r.size && offset + size <= r.size) { if (write) r.written = 1; w->launch->races = races; w->atomic = true; return; }
  }
  access(address, size, write, PC);
  w->launch->races = races;
  w->atomic = true;
}
void kf_atomic_end() { kf_worker->atomic = false; }
void kf_device_fence() { kf_worker->launch->fenced = 1; }

void __ubsan_handle_out_of_bounds(void* data, uintptr_t index) { undefined(INDEX, data, int64_t(index), PC); }
void kf_index_fault(long index) { undefined(INDEX, nullptr, index, PC); }
void __ubsan_handle_divrem_overflow(void* data, uintptr_t, uintptr_t) { undefined(DIVISION, data, 0, PC); }
// Newer compilers ask about these too; the result wraps, as it does in Metal.
void __ubsan_handle_add_overflow(void*, uintptr_t, uintptr_t) {}
void __ubsan_handle_sub_overflow(void*, uintptr_t, uintptr_t) {}
void __ubsan_handle_mul_overflow(void*, uintptr_t, uintptr_t) {}
void __ubsan_handle_negate_overflow(void*, uintptr_t) {}
void __ubsan_handle_missing_return(void* data) { undefined(NO_RETURN, data, 0, PC); }
void __ubsan_handle_builtin_unreachable(void* data) { undefined(NO_RETURN, data, 0, PC); }
void __ubsan_handle_type_mismatch_v1(void* data, uintptr_t pointer) {
  // Only alignment is asked for; an address that is no memory of the kernel is reported by the access itself.
  undefined(MISALIGNED, data, int64_t(1) << *(static_cast<unsigned char*>(data) + 16 + sizeof(void*)), PC);
  (void)pointer;
}

// Half precision for compilers whose target has no instruction for it.
float __gnu_h2f_ieee(unsigned short h) {
  unsigned sign = unsigned(h & 0x8000) << 16, exponent = h >> 10 & 31, mantissa = h & 1023, bits;
  if (exponent == 31) bits = sign | 0x7f800000 | mantissa << 13;
  else if (exponent) bits = sign | (exponent + 112) << 23 | mantissa << 13;
  else { float f = float(mantissa) * 0x1p-24f; unsigned b; copy(&b, &f, 4); bits = b | sign; }
  float f;
  copy(&f, &bits, 4);
  return f;
}
unsigned short __gnu_f2h_ieee(float f) {
  unsigned bits;
  copy(&bits, &f, 4);
  unsigned sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return (unsigned short)(sign | 0x7e00);
  if (magnitude >= 0x477ff000) return (unsigned short)(sign | 0x7c00);
  if (magnitude < 0x38800000) {  // below the normal numbers: add so that the rounding falls on the right bit
    float m;
    copy(&m, &magnitude, 4);
    m += 0.5f;
    copy(&bits, &m, 4);
    return (unsigned short)(sign | (bits - 0x3f000000));
  }
  return (unsigned short)(sign | ((magnitude + 0xc8000fff + (magnitude >> 13 & 1)) >> 13));
}
#if defined(__x86_64__) && __clang_major__ >= 15  // other names and registers; libgcc has them from version 12 on only
__attribute__((visibility("hidden"))) float __extendhfsf2(_Float16 h) {
  unsigned short bits;
  copy(&bits, &h, 2);
  return __gnu_h2f_ieee(bits);
}
__attribute__((visibility("hidden"))) _Float16 __truncsfhf2(float f) {
  unsigned short bits = __gnu_f2h_ieee(f);
  _Float16 h;
  copy(&h, &bits, 2);
  return h;
}
#endif
}
