// Runs a launch: groups one after the other (or over several operating system threads), the threads of a group as
// fibers that are switched at barriers and simdgroup functions only. `_setjmp` switches without a system call.
#include "emulator.h"
#include <cstring>
#include <pthread.h>
#include <sys/mman.h>

extern "C" void* kf_threadgroup_array(const void*, unsigned long, unsigned, const char*, unsigned);

namespace {
pthread_mutex_t pool_lock = PTHREAD_MUTEX_INITIALIZER;
Worker* pool;
const uintptr_t FIRST_PLACE = uintptr_t(1) << 44, APART = uintptr_t(1) << 36;

// A large gap between two buffers makes an index that is far out of one not land in another.
unsigned char* map(size_t bytes, uintptr_t wish) {
  void* got = mmap(reinterpret_cast<void*>(wish), bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return got == MAP_FAILED ? nullptr : static_cast<unsigned char*>(got);
}

Worker* take_worker() {
  pthread_mutex_lock(&pool_lock);
  Worker* free = pool;
  if (free) pool = free->next_free;
  pthread_mutex_unlock(&pool_lock);
  if (free) return free;
  Worker* w = reinterpret_cast<Worker*>(map(sizeof(Worker), 0));
  if (!w) return nullptr;
  // What overflows the first stack falls into the room below it, where a check at the next call finds it.
  unsigned char* room = map(size_t(STACK) * MAX_THREADS + BELOW_STACKS, 0);
  w->stacks = room ? room + BELOW_STACKS : nullptr;
  w->arena = map(ARENA, FIRST_PLACE - APART);
  w->arena_shadow = reinterpret_cast<Cell*>(map(sizeof(Cell) * ARENA, 0));
  return w->stacks && w->arena && w->arena_shadow ? w : nullptr;
}
void give_worker(Worker* w) {
  pthread_mutex_lock(&pool_lock);
  w->next_free = pool, pool = w;
  pthread_mutex_unlock(&pool_lock);
}

void fiber_main(unsigned high, unsigned low) {
  Fiber* f = reinterpret_cast<Fiber*>(uintptr_t(high) << 32 | low);
  for (;;) {
    Worker* w = f->worker;
    w->launch->run(&w->where[f->thread], w->arguments);
    if (w->pending) kf_settle(w);
    w->state[f->thread] = DONE;
    w->idle[w->idle_count++] = f;
    kf_switch_out(w);
  }
}

void resume(Worker* w, unsigned thread) {
  if (w->state[thread] == UNSTARTED) {
    Fiber* f = w->idle_count ? w->idle[--w->idle_count] : &w->fibers[w->made++];
    f->thread = int(thread), f->worker = w;
    w->fiber[thread] = f;
  }
  Fiber* f = w->fiber[thread];
  w->state[thread] = RUNNABLE;
  w->current = int(thread);
  if (_setjmp(w->scheduler) == 0) {
    if (f->started) _longjmp(f->place, 1);
    f->started = true;
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = w->stacks + size_t(f - w->fibers) * STACK;
    f->context.uc_stack.ss_size = STACK;
    f->context.uc_link = nullptr;
    uintptr_t p = reinterpret_cast<uintptr_t>(f);
    makecontext(&f->context, reinterpret_cast<void (*)()>(fiber_main), 2, unsigned(p >> 32), unsigned(p));
    setcontext(&f->context);
  }
  w->current = -1;
}

void wait(State state, unsigned line, unsigned flags) {
  Worker* w = kf_worker;
  if (w->pending) kf_settle(w);
  w->state[w->current] = state, w->line[w->current] = line, w->flags[w->current] = flags;
  kf_switch_out(w);
}

void divergence(Worker* w, unsigned waits, unsigned other) {
  Fault f = {};
  f.kind = DIVERGENT_BARRIER;
  f.line = w->line[waits] >> 12, f.other_line = w->state[other] == DONE ? 0 : w->line[other] >> 12, f.other_thread = other;
  copy(f.thread, w->where[waits].in_group, sizeof f.thread);
  copy(f.group, w->where[waits].group, sizeof f.group);
  f.number = w->state[waits] == IN_SIMD_BARRIER;
  kf_record(w, f);
}

// All lanes wait or are done. Lets those go on that wait at the first line; whether there were any.
bool release_simd(Worker* w, unsigned simd) {
  unsigned first = simd * WIDTH, end = first + WIDTH < w->count ? first + WIDTH : w->count, line = ~0u, barrier = ~0u;
  for (unsigned t = first; t < end; ++t) {
    if (w->state[t] == IN_SIMD && w->line[t] < line) line = w->line[t];
    if (w->state[t] == IN_SIMD_BARRIER && barrier == ~0u) barrier = t;
  }
  if (line != ~0u) {
    w->active[simd] = 0;
    for (unsigned t = first; t < end; ++t) {
      if (w->state[t] != IN_SIMD || w->line[t] != line) continue;
      w->active[simd] |= 1u << (t - first);
      copy(w->exchanged[simd] + (t - first) * w->value_size[t], w->value[t], w->value_size[t]);
      w->state[t] = RUNNABLE;
    }
    return true;
  }
  if (barrier == ~0u) return false;
  unsigned flags = ~0u;
  for (unsigned t = first; t < end; ++t) {
    if (w->state[t] != IN_SIMD_BARRIER || w->line[t] != w->line[barrier]) divergence(w, barrier, t);
    flags &= w->flags[t];
  }
  for (unsigned t = first; t < end; ++t) w->state[t] = RUNNABLE;
  w->sub_device[simd] += flags & 1, w->sub_group[simd] += flags >> 1 & 1;
  return true;
}

// All threads wait at a barrier of the group or are done. Lets them go on; false when all are done.
bool release_group(Worker* w) {
  unsigned waits = ~0u, other = ~0u, flags = ~0u;
  for (unsigned t = 0; t < w->count; ++t) if (w->state[t] == IN_GROUP_BARRIER && waits == ~0u) waits = t;
  if (waits == ~0u) return false;
  for (unsigned t = 0; t < w->count; ++t) {
    if (w->state[t] == DONE || w->line[t] != w->line[waits]) { other = t; break; }
    flags &= w->flags[t];
  }
  if (other != ~0u) divergence(w, waits, other);
  for (unsigned t = 0; t < w->count; ++t) w->state[t] = RUNNABLE;
  w->epoch_device += flags & 1, w->epoch_group += flags >> 1 & 1;
  return true;
}

void set_up_group(Worker* w, uint64_t linear) {
  Launch* launch = w->launch;
  unsigned group[3] = {unsigned(linear % launch->groups[0]), unsigned(linear / launch->groups[0] % launch->groups[1]),
                       unsigned(linear / launch->groups[0] / launch->groups[1])};
  unsigned size[3];
  w->count = 1, w->group = linear + 1;
  for (int d = 0; d < 3; ++d) {
    unsigned left = launch->grid[d] - group[d] * launch->group_size[d];
    size[d] = left < launch->group_size[d] ? left : launch->group_size[d];
    w->count *= size[d];
  }
  w->simds = (w->count + WIDTH - 1) / WIDTH;
  for (unsigned t = 0; t < w->count; ++t) {
    Coordinates& c = w->where[t];
    c.in_group[0] = t % size[0], c.in_group[1] = t / size[0] % size[1], c.in_group[2] = t / size[0] / size[1];
    for (int d = 0; d < 3; ++d) {
      c.group[d] = group[d], c.group_size[d] = size[d], c.dispatch_size[d] = launch->group_size[d];
      c.grid[d] = group[d] * launch->group_size[d] + c.in_group[d];
      c.grid_size[d] = launch->grid[d], c.groups[d] = launch->groups[d];
    }
    c.index = t, c.lane = t % WIDTH, c.simd = t / WIDTH, c.simds = w->simds, c.width = WIDTH;
    c.quad = t / 4, c.quad_lane = t % 4, c.quads = (w->count + 3) / 4;
    w->state[t] = UNSTARTED;
  }
  w->serial = (w->serial + 1) & 0x7fffff;
  if (!w->serial) {
    madvise(w->arena_shadow, sizeof(Cell) * ARENA, MADV_DONTNEED);  // forget groups whose number comes again
    w->serial = 1;
  }
  w->epoch_group = w->epoch_device = 1;
  fill(w->sub_group, 0, sizeof w->sub_group);
  fill(w->sub_device, 0, sizeof w->sub_device);
  fill(w->arena, 0xff, w->arena_used);  // what nobody has written is no number
  w->pending = false, w->atomic = false;
}

void put_in_order(unsigned* order, unsigned count, unsigned seed) {
  for (unsigned t = 0; t < count; ++t) order[t] = seed == 1 ? count - 1 - t : t;
  uint64_t state = seed;
  for (unsigned t = seed > 1 ? count : 0; t > 1; --t) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    unsigned other = unsigned(state >> 33) % t, swap = order[t - 1];
    order[t - 1] = order[other], order[other] = swap;
  }
}

void run_group(Worker* w, uint64_t linear) {
  set_up_group(w, linear);
  put_in_order(w->order, w->count, w->launch->order);
  for (bool more = true; more && !w->launch->faulted;) {
    for (unsigned i = 0; i < w->count && !w->launch->faulted; ++i)
      if (unsigned t = w->order[i]; w->state[t] == UNSTARTED || w->state[t] == RUNNABLE) resume(w, t);
    if (w->launch->faulted) return;
    more = false;
    for (unsigned s = 0; s < w->simds; ++s) more |= release_simd(w, s);
    if (!more && !w->launch->faulted) more = release_group(w);
  }
}

// Every worker has its own threadgroup memory, hence its own arguments.
void lay_out_arguments(Worker* w) {
  Launch* launch = w->launch;
  w->array_count = 0, w->arena_used = 64, w->arena_bytes = 0;
  fill(w->arena_owner, 0, sizeof w->arena_owner);
  for (int i = 0; i < launch->argument_count; ++i)
    w->arguments[i] = launch->argument_region[i] >= 0 ? launch->arguments[i]
        : kf_threadgroup_array(&launch->argument_offset[i], launch->argument_offset[i], launch->argument_granule[i], launch->argument_names[i], 0);
}

void run_groups(Worker* w, Launch* launch) {
  w->launch = launch, w->current = -1;
  kf_worker = w;
  lay_out_arguments(w);
  w->idle_count = 0;
  for (int i = 0; i < w->made; ++i) w->idle[w->idle_count++] = &w->fibers[i];
  uint64_t total = uint64_t(launch->groups[0]) * launch->groups[1] * launch->groups[2];
  for (;;) {
    uint64_t next = __atomic_fetch_add(&launch->next_group, 1, __ATOMIC_RELAXED);
    if (next >= total || __atomic_load_n(&launch->faulted, __ATOMIC_RELAXED)) break;
    run_group(w, launch->order == 1 ? total - 1 - next : next);
  }
  if (launch->faulted)  // fibers that were left in the middle start anew next time
    for (int i = 0; i < w->made; ++i) w->fibers[i].started = false;
  kf_worker = nullptr;
}

struct Start { Worker* worker; Launch* launch; };
void* start(void* given) {
  Start* s = static_cast<Start*>(given);
  run_groups(s->worker, s->launch);
  return nullptr;
}

bool prepare(Launch* launch) {
  for (int i = 0; i < launch->region_count; ++i) {
    Region& r = launch->regions[i];
    size_t shift = reinterpret_cast<uintptr_t>(r.original) % 4096;
    r.mapped = r.size + shift + 1, r.written = 0;
    r.mapping = map(r.mapped, FIRST_PLACE + APART * uintptr_t(i + 1));
    if (!r.mapping) return false;
    r.base = r.mapping + shift;
    copy(r.base, r.original, r.size);
    r.shadow = nullptr;
    if (launch->races && r.writable) {
      r.shadow = reinterpret_cast<Cell*>(map(sizeof(Cell) * (r.size / r.granule + 1), 0));
      if (!r.shadow) return false;
    }
  }
  for (int i = 0; i < launch->argument_count; ++i)
    if (launch->argument_region[i] >= 0)
      launch->arguments[i] = launch->regions[launch->argument_region[i]].base + launch->argument_offset[i];
  return true;
}

void finish(Launch* launch) {
  for (int i = 0; i < launch->region_count; ++i) {
    Region& r = launch->regions[i];
    if (r.mapping && r.written && r.writable && !launch->faulted) copy(r.original, r.base, r.size);
    if (r.shadow) munmap(r.shadow, sizeof(Cell) * (r.size / r.granule + 1));
    if (r.mapping) munmap(r.mapping, r.mapped);
  }
}
}  // namespace

void kf_switch_out(Worker* w) {
  Fiber* f = w->fiber[w->current];
  if (_setjmp(f->place) == 0) _longjmp(w->scheduler, 1);
}

void kf_record(Worker* w, const Fault& fault) {
  int none = 0;
  if (__atomic_compare_exchange_n(&w->launch->faulted, &none, 2, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) w->launch->fault = fault;
}

void kf_fail(Worker* w, const Fault& fault) {
  kf_record(w, fault);
  _longjmp(w->scheduler, 1);
}

extern "C" {
void kf_group_barrier(unsigned flags, unsigned line) { wait(IN_GROUP_BARRIER, line, flags); }
void kf_simd_barrier(unsigned flags, unsigned line) { wait(IN_SIMD_BARRIER, line, flags); }
unsigned kf_lane() { return unsigned(kf_worker->current) % WIDTH; }

const void* kf_exchange(const void* value, unsigned size, unsigned line, unsigned* active) {
  Worker* w = kf_worker;
  unsigned simd = unsigned(w->current) / WIDTH;
  w->value[w->current] = value, w->value_size[w->current] = size;
  wait(IN_SIMD, line, 0);
  *active = w->active[simd];
  return w->exchanged[simd];
}

void kf_matrix_multiply(const void* mine, float* result, unsigned line) {
  struct Share { float a[2], b[2]; };
  unsigned active, lane = kf_lane();
  const Share* all = static_cast<const Share*>(kf_exchange(mine, sizeof(Share), line, &active));
  if (active != ~0u) {
    Worker* w = kf_worker;
    Fault f = {};
    f.kind = MATRIX, f.line = line >> 12, f.number = __builtin_popcount(active);
    copy(f.thread, w->where[w->current].in_group, sizeof f.thread);
    copy(f.group, w->where[w->current].group, sizeof f.group);
    kf_fail(w, f);
  }
  float a[8][8], b[8][8];
  auto row = [](unsigned l) { return (l / 4 & 4) + l / 2 % 4; };
  auto column = [](unsigned l) { return (l / 4 & 2) * 2 + l % 2 * 2; };
  for (unsigned l = 0; l < WIDTH; ++l)
    for (unsigned i = 0; i < 2; ++i) a[row(l)][column(l) + i] = all[l].a[i], b[row(l)][column(l) + i] = all[l].b[i];
  for (unsigned i = 0; i < 2; ++i) {
    float sum = 0;
    for (unsigned k = 0; k < 8; ++k) sum += a[row(lane)][k] * b[k][column(lane) + i];
    result[i] = sum;
  }
}

// The place of an array in the group's memory: the first thread of a launch that comes by lays it out.
void* kf_threadgroup_array(const void* key, unsigned long size, unsigned granule, const char* name, unsigned line) {
  Worker* w = kf_worker;
  for (int i = 0; i < w->array_count; ++i) if (w->arrays[i].key == key) return w->arena + w->arrays[i].offset;
  Fault f = {};
  if (w->arena_bytes + size > LIMIT || w->array_count == MAX_ARRAYS) {
    f.kind = MEMORY_LIMIT, f.line = line, f.number = int64_t(w->arena_bytes + size);
    strncpy(f.name, name, sizeof f.name - 1);
    kf_fail(w, f);
  }
  Array& t = w->arrays[w->array_count++];
  t = {key, w->arena_used, unsigned(size), granule ? granule : 1, name};
  w->arena_bytes += unsigned(size);
  w->arena_used += (unsigned(size) + 15) / 16 * 16 + 1024;  // a gap, so that an index beyond the end is seen
  fill(w->arena + t.offset, 0xff, size);
  for (unsigned i = t.offset / 16; i < (t.offset + size + 15) / 16; ++i) w->arena_owner[i] = (unsigned char)w->array_count;
  return w->arena + t.offset;
}

// 0: done; 1: not enough memory; 2: the kernel is wrong, see `fault`.
int kf_launch(Launch* launch) {
  launch->faulted = launch->fenced = 0, launch->next_group = 0;
  fill(&launch->fault, 0, sizeof launch->fault);
  uint64_t total = 1;
  for (int d = 0; d < 3; ++d) {
    launch->groups[d] = (launch->grid[d] + launch->group_size[d] - 1) / launch->group_size[d];
    total *= launch->groups[d];
  }
  if (!total) return 0;
  bool ready = prepare(launch);
  unsigned count = launch->workers > 1 ? unsigned(launch->workers) : 1;
  if (count > total) count = unsigned(total);
  if (count > 64) count = 64;
  Start starts[64];
  pthread_t threads[64];
  bool running[64] = {};
  unsigned got = 0;
  while (ready && got < count && (starts[got].worker = take_worker())) starts[got++].launch = launch;
  for (unsigned i = 1; i < got; ++i) running[i] = pthread_create(&threads[i], nullptr, start, &starts[i]) == 0;
  if (got) start(&starts[0]);
  for (unsigned i = 1; i < got; ++i) if (running[i]) pthread_join(threads[i], nullptr);
  for (unsigned i = 0; i < got; ++i) give_worker(starts[i].worker);
  finish(launch);
  return got ? launch->faulted : 1;
}
}
