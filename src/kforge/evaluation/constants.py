"""Every constant of an evaluation, in one place, so that a reader can judge them together.

They are proposals calibrated by measurement; changes and their reasons go into docs/decisions.
"""

from __future__ import annotations

from types import MappingProxyType

# --- deadlines, in seconds ----------------------------------------------------------------------------------

FOREVER = 7 * 24 * 3600.0
"""Idle timeout between requests; the death of the peer is seen as EOF on the channel."""
START_DEADLINE = 60.0
"""Interpreter start and `import torch` in a worker, on a busy machine."""
BUILD_DEADLINE = 240.0
"""Importing and constructing a candidate: a `load_inline` build with torch's headers takes 40 to 60 s."""
COMPILE_DEADLINE = 420.0
"""The first call of `torch.compile`'s baseline."""
CALL_DEADLINES = 15
"""All calls of a program that are checked and not timed may together take this many times the deadline of one call."""

# --- correctness --------------------------------------------------------------------------------------------

AS_GIVEN_CASES = 6
"""Cases drawn by the problem's own `get_inputs`; every other distribution adds one."""
ODD_SHARE = 0.25
"""Share of timed calls whose inputs have a few rows of another distribution."""
COMPARED_STATE_SHARE = 0.3
"""Share of the calls of a reference that updates its state after which the program's state is compared with it."""
ERROR_FACTOR = 4.0
"""A candidate may be this many times as far from the truth as torch itself is at the same dtype, or as far as the floor
of its dtype (`FLOORS`), whichever is larger."""
FLOORS = MappingProxyType(
    {
        "strict": MappingProxyType({"float64": 1e-12, "float32": 1e-5, "float16": 1e-3, "bfloat16": 8e-3}),
        "tf32": MappingProxyType({"float64": 1e-12, "float32": 2e-3, "float16": 2e-3, "bfloat16": 8e-3}),
        "half": MappingProxyType({"float64": 1e-12, "float32": 8e-3, "float16": 8e-3, "bfloat16": 1.6e-2}),
    }
)
"""Error that is always allowed, by declared precision and dtype, relative to the root mean square of the output."""
LOST, LOCAL_FACTOR = 0.01, 16.0
"""A row or block may be off by this share of its own scale, however small it is, or by this factor times the floor. An
honest formula with cancellation reaches such errors where torch's formula does not; zeros or a constant are off by the
whole scale."""
FAST_FLOOR, FAST_ERROR_FACTOR = 4.0, 10.0
"""Factors for convolutions, of the floor and of torch's own error. Winograd's F(4x4, 3x3), which libraries use, has an
error of one to five floors in single precision (16 to 128 channels), four to eight times that of torch. Factors of
fourteen bits have an error of seven to ten floors."""
FAST_UNITS = 8.0
"""Standard deviation of the error of fast convolutions, in units in the last place of the largest value of an image.
Winograd's worst error is one to five floors, which is about this many units at four and a half standard deviations."""
LOST_BESIDE_LARGE = 0.5
"""Share of its own scale by which a row or block of a fast convolution may be off: a Fourier transform, or a tile of
Winograd's, is exact to the scale of the largest value in it."""
SHAKEN_SHARE = 0.01
"""Largest share of wrong elements for which torch is run again on perturbed inputs, to see whether rounding explains
it."""
SHAKES, SHAKEN_UNITS = 8, 4.0
"""Number of such runs, and the largest perturbation of an input in units in the last place."""
SINGULAR = 0.05
"""Where a solution of linear equations is off by this for inputs as near, its matrix counts as singular, and any other
solution as good. A problem of which all matrices are singular has the label `constant_passes`."""
FLIPPED_SHARE = 1e-4
"""Largest share of different indices (but at least one) for which torch is run again on perturbed inputs."""
FLIP_SHAKES = 64
"""Most such runs, to see whether torch itself gives these indices. For products that are summed in another order, 8
runs explain four fifths of the differences and 64 nearly all (by a simulation that is not kept)."""
LEAST_SCALE = 1e-32
"""No output is judged on a smaller scale: an exponential that stops at float32's smallest normal number is fair."""
VARIATION = 0.25
"""How far weights that every constructor leaves alike (norms, zero biases) are moved before a program is judged."""
WEIGHT_CHANGES = 6
"""Changes of weights while a program is verified: first all of them, then places in some entries (five groups)."""
RECHECKED_SHARE = 0.5
"""Share of cases after which the output of the case before is looked at again."""
DETERMINISM_SHARE = 0.25
"""Repeated calls that differ by up to this share of the tolerance are labelled; a larger difference is a mismatch,
unless torch's own results vary as well (`UNSTEADY_FACTOR`)."""
UNSTEADY_FACTOR = 2.0
"""Where torch's own results for the same inputs vary (atomic additions in no fixed order), repeated calls may differ by
this factor times torch's largest difference, which is one sample of a random quantity."""
UNSTEADY_RUNS = 8
"""How often torch is run again, at most, to measure that: on two cores a race shows in most runs."""

REFERENCE_NEWS = 5.0
"""Seconds between progress messages while a reference runs in double precision."""
REFERENCE_DEADLINE = 240.0
"""Seconds that one call of a reference in double precision may take."""
REFERENCE_TOTAL = 900.0
"""Seconds that all of them may take in one evaluation; then it ends with an error."""
REFERENCE_SECONDS = 40.0
"""What the references of one evaluation should take: where they are estimated to take longer, a part of each batch is
computed in double precision, and the rest is compared with torch's own result. What is further from that than the
dtype's floor is compared with the truth after all."""
SLOW_DESCRIPTION = 0.4
"""Seconds: a problem that is described sooner (two calls and their inputs) has no slow reference."""
ESTIMATED_CASES = 36
"""Calls of a reference in one evaluation, about."""

# --- sanitizers ---------------------------------------------------------------------------------------------

SANITIZED_DISTRIBUTIONS = ("edges", "huge", "zeros")
"""Beside one case as given. Where a kernel reads and writes hardly depends on values, and each case is slow."""
SANITIZED_SECONDS = 60.0
"""Soft cap of the cases under a sanitizer, which takes ten to fifty times as long; the first one is always run."""
SANITIZED_TOTAL_SECONDS = 240.0
"""Where a platform has several sanitizers, none is begun later than this after the first; it is said which were not."""
SANITIZER_ENDS = 30.0
"""Seconds for a program to end by itself, so that its sanitizer can report what it has collected."""
LEAST_ROWS = 256
"""Where a case is too slow under a sanitizer, it is tried with this much of the inputs' first dimension (or the next
larger power of two that divides it): a multiple of every tile that is common."""
SANITIZED_PRECISION = "half"
"""Instrumented loops are not vectorized, so sums are added up in another order than in the kernel that was verified:
only what is grossly wrong is a finding."""

# --- profilers ----------------------------------------------------------------------------------------------

COUNTED_CALLS = 1
"""Calls under a profiler that counts: it runs every kernel a dozen times, and counters hardly vary."""
COUNTED_SECONDS = 60.0
"""Seconds that a counting profiler may take to write its report."""
MAX_COUNTED_OUTPUT = 8 << 20

# --- problem lint -------------------------------------------------------------------------------------------

LEAST_VARIATION = 0.01
TOO_QUICK = 20e-6

# --- timing -------------------------------------------------------------------------------------------------

STATISTICS = 1
"""Version of how a speedup, its interval and seconds come from samples. Raise it with every change of that: `verify`
recomputes the summary of a receipt only by the statistics that made it."""

WARM_UPS = (1, 1, 4, 4)
"""Calls in each of the untimed blocks before the first pair, as far as a quarter of the timing stage allows."""
HANDSHAKES = 10
"""Empty blocks that measure the cost of starting a block (the message to the worker and its answer)."""
LEAST_OF_A_BLOCK = 0.1
"""However long a handshake took on a busy machine, this share of a block was work: else a ratio could be anything."""
MIN_PAIRS = 20
MAX_PAIRS = 1000
HALF_WIDTH = 0.01
"""The interval is tight when half its width is at most this share of the median."""
HALF_WIDTH_OF_FEW = 0.005
"""Largest half width of the interval, as a share of the median, for fewer than MIN_PAIRS pairs, which say less about
how they vary."""
BLOCK_SECONDS = 5e-3
"""A timed block is filled up to this length, in seconds. The cost of starting it (0.1 to 0.3 ms) is subtracted; a
program that works meanwhile, in a thread that watches its inputs appear, gains at most that much."""
DEVICE_BLOCK_SECONDS = 1e-2
"""On a device longer: that it turns from one process to another and back takes a millisecond, give or take 60 µs."""
DEVICE_SETTLING_CALLS = 1
"""Calls on a device after which memory has settled: torch's allocator then holds the output of this call beside that of
the first."""
OVERWRITTEN_CALLS, OVERWRITTEN_WHOLE, OVERWRITTEN_BYTES = 32, 0.5, 8 << 20
"""When a timed block has been looked at, outputs of this many of its calls are written to: in this share of them a
stretch of memory, until this many bytes of outputs are reached, and in the others some elements."""
UNEVEN = 0.1
"""By how much the speedup of all calls together may be lower than that of the median block before it counts instead."""
LONGEST_BLOCK = 0.25
"""Seconds that a block of the slower side may take, where blocks are filled for a side that is far faster."""
LEAST_CALLS_PER_BLOCK = 2
"""With a single call in a block, an output that the next call overwrites would not be seen."""
KEPT_OUTPUTS, KEPT_BYTES = 8, 256 << 20
"""Number of timed calls whose outputs must not have changed when the race is over, and their largest total size in
bytes."""
KEPT_LARGE, KEPT_PART = 512 << 20, 4 << 20
"""Largest size in bytes of outputs that are kept alone, where memory is not short; and of each kept tensor, the bytes
that are compared."""
LAST_WEIGHTS = 1, 2
"""Fewest and most changes of weights after the last timed block, each followed by a block that is checked."""
RENEWED_SHARE = 0.25
"""Chance of new weights after two pairs of timed blocks, and after a pair of paced ones."""
LEAST_PACED, MOST_PACED, PACED_SHARE = 3, 24, 0.2
"""Fewest and most pairs of paced blocks for a program that seems faster. In a paced block, a call's inputs appear only
when the call before is over. Pairs are added while they take less than this share of the timing, or decide nothing."""
PACED_CALLS, SMALL_INPUTS = (8, 2), 1 << 18
"""Calls in a paced block with small inputs and with larger ones, and the largest size in bytes of small inputs. The
median call of a block counts, without the first one."""
SLOW_CALL = 0.02
"""A paced block of calls that take longer than this (in seconds) is a single one."""
MOST_DECOYS, DECOY_BYTES = 3, 256 << 20
"""Most decoys that are written to the place of a block's inputs on a device before the true values, and the largest
size in bytes of inputs that get some. A kernel that was launched ahead to wait for its inputs begins on a decoy."""
CONSUMED_BYTES = 1 << 30
"""On a device, outputs up to this many bytes are copied on the current stream as soon as a verified call returns."""
MAX_CALLS_PER_BLOCK = 128
MAX_DEVICE_CALLS = 256
"""Most calls in a block on a device: kernels take microseconds, and this many fill a block."""
QUIET_SECONDS = 5e-4
"""A kernel of ours on an idle device takes 20 µs, and up to 350 µs when it has slept; behind another process's work it
waits for a slice of time (2.4 ms on an H200)."""
QUIET_TRIES, QUIET_LOOKS = 3, 50
"""A device is busy when it was busy in this many looks. Looks that only waited for a core of the host do not count;
there are at most this many looks in all."""
AWAKE_SECONDS = 2e-4
"""Longest time of a kernel of ours on an idle device that is awake; it usually takes 50 µs."""
TURN_SECONDS = 1e-3
"""Longest time in which an idle device switches to another process, in seconds."""
LATE_SHARE = 0.5
"""A program is rejected when its device still works at the end of this share of its blocks, beyond the baseline's
share."""
LATE_BLOCKS = 20
"""Fewest blocks for that: of six blocks on a busy host, one side may have four late ones by chance."""
BUSY_LOOKS, BUSY_PAUSE = 40, 5e-3
"""Number of looks at the device, and seconds between them, that tell whether another process works there, after a
program that seemed to work without an order has ended."""
LOOK_AGAIN = 1.5
"""The time between looks at whether it is decided grows by this factor from one look to the next."""
FIRST_LOOK, LATER_LOOKS = 1.11, 1.5
"""Looking seven times instead of once must not make seven chances of a false claim. The first look uses 3 % (2.17
standard errors, 1.11 times the 1.96 of 5 %), the six that may follow a third of a per cent each (2.94)."""
LOAD_WINDOW = 3
"""Pairs before and after a pair over which the foreign load around it is taken: Linux counts in ticks of 10 ms."""
QUIET_PAIRS = 16
"""Number of quiet pairs (foreign load of at most BUSY_SHARE) from which on the other pairs are left out."""
DISPLACED_SHARE = 0.25
"""On a host, a program that works this share of the baseline's timed work or more outside its timed calls, beyond what
the baseline does there, could have done its work in advance. It is timed for longer, and then nothing is claimed."""
OUTSIDE_SHARE = 0.1
"""A program that uses more of the machine than this outside its timed calls, beyond what the baseline does there, could
prepare its answers there, or hide a load behind its own work: nothing is claimed then."""
COMPILED_HALF_WIDTH = 0.02
"""The ratio of `torch.compile` to eager, which is kept, is timed until half its interval is at most this."""
MIN_PAIRS_SLOW = 6
"""Pairs that are taken even when the cap is reached: a slow problem still gets an interval."""
SETTLE_SECONDS = 2e-3
"""Between a worker's flush and being held still: idle OpenMP threads spin for a while before they sleep, and one that
is stopped while it spins wakes up spinning, often on the core that the block is timed on."""
COMPARED_CALLS = 8
"""Timed calls of each pair of blocks whose outputs are compared with the baseline's on the same inputs. Skipping one
call in sixteen goes unnoticed with a chance of (15/16)^160, or 3e-5, over twenty pairs, and of 5 % over the six that a
slow problem gets; what is reported best is evaluated again."""
COMPARABLE = 10.0
"""Outputs of both sides that differ by more than this many tolerances say nothing about each other (a module with state
of its own). Then one output of the pair of blocks is fully checked."""
CHECKED_SHARE = 0.1
"""Share of pairs of blocks of which one random output is fully checked, also when it agrees with the baseline's."""
CLOCK_TOLERANCE = 1.05
"""A worker that claims more time than the parent's clock saw (beyond this) has lost its clock, and is rejected."""
RESAMPLES = 2000
LOOKS = MappingProxyType({"library": 30, "custom": 200})
"""Moments at which a program is stopped to see whose code runs, by track."""
LOOK_SECONDS = MappingProxyType({"library": 0.15, "custom": 2.0})
"""Seconds that stopping the program at these moments usually takes."""
TELLING_LOOKS = MappingProxyType({"library": 16, "custom": 30})
"""Fewest moments that must lie in the program's own or a library's code before their share counts, by track."""
LOOK_PATIENCE = 10.0
"""Most seconds for these moments on a busy machine."""
LEAST_LOOK_PATIENCE = 1.0
"""Seconds that may always be spent on these moments, however short the timing is."""
TRACED_BLOCK_SECONDS = 0.015
"""Seconds of a block in which the program is stopped at random moments."""
TRACED_CALLS, TRACED_BYTES = 2048, 64 << 20
"""Most calls in such a block, and the largest size of their outputs in bytes. A quick program is called more often than
in a timed block, always on the same inputs. Preparing takes 18 ms a block, and 0.15 ms for each set of inputs: of
blocks of 32 calls of 20 µs it took nine to find one moment that counts."""
TRACED_SHARE = 0.3
"""On the track `custom`, share of pairs beside which a block like the timed ones is stopped at random moments."""
LEAST_LOOKS = 4
"""Fewest such moments among the timed blocks that count."""
CUSTOM_SHARE = 0.8
"""On the track `custom` at least this share of the moments must lie in the program's own code, or of device time."""
OWN_SHARE_ELSEWHERE = 2 / 3
"""Least share of moments outside of libraries, where a driver runs the kernels. Launching a small kernel and allocating
its output takes longer than the kernel: torch's allocator had a seventh of the moments of an honest program."""
WATCHED_CALLS = 3
"""Calls in the block in which a device's kernels are recorded by a profiler."""
WATCHED_TRIES = 2
"""A profiler's first session may lose what it saw."""
WATCHED_TIMES, WATCHED_SLACK = 2.0, 1e-4
"""Recorded kernels are not those that were timed when they take more than this factor times the timed calls, and this
many seconds more."""
SEEN_SHARE, HOST_SECONDS = 0.5, 2.5e-4
"""Recorded kernels are also not those that were timed when they take less than this share of the timed calls, with more
than this many seconds missing for every launch and one more. A launch takes 15 to 60 µs of Python; the rest is what a
busy host adds."""
PHYSICS = 0.95
"""A program that takes less than this share of the time that moving its data takes at the device's peak is rejected."""
PIECES = 16
"""Pieces of an input that are changed one by one, to see how much of it the reference reads."""
QUARANTINE = 10.0
"""A speedup whose lower bound is above this is measured again before it is believed."""
REPLICATIONS = 3
AGREEMENT = 0.8
"""A repetition agrees when it reaches this share of the first speedup."""
BUSY_SHARE = 0.1
"""Where others used more of the machine than this during timing, the result is labelled, and pairs do not count."""

# --- memory and channel -------------------------------------------------------------------------------------

MAX_INPUT_BYTES = 1 << 30
"""Most bytes of all inputs of one timed block on a host."""
DEVICE_INPUT_SHARE = 1 / 11
"""Most bytes of all inputs of one timed block on a device, as a share of its free memory, where outputs are no larger
than inputs. A full check takes as much again as a call holds."""
HELD_INPUTS, HELD_OUTPUTS = 3, 2
"""How often the inputs and the outputs of a call are in memory at once: the referee has the inputs, and each side has
them and the outputs, until its block was looked at."""
HOARD = 0.5
"""A program that holds more than this share of the memory that is free without it is blamed for a failure beside it."""
WHOLE_CALLS = 11.0
"""Memory in which a case is judged as a whole, as a multiple of what one eager call holds (its inputs and outputs): the
drawn inputs and those that are shared, three outputs of the worker and three copies of the referee's, and the inputs
and outputs in double precision with what lies between them."""
LEAN_CALLS = 4.0
"""Least memory in which a case is judged in pieces, as a multiple of what one eager call holds. A smaller limit is
refused."""
PIECE_CALLS, PIECE_SHARE = 6.0, 1 / 16
"""Memory of a piece in double precision: this multiple of its part of a call, and at most this share of all memory."""
HOST_SHARE = 0.8
"""Share of the host's available memory that an evaluation plans with where the user sets no limit."""
MAX_FRAME = 4 << 20
"""No frame from a worker is longer: outputs cross as memory, not as messages."""
MAX_TRUSTED_FRAME = 256 << 20
MAX_LOG = 20_000
"""Characters of a candidate's log or traceback that are kept."""
MAX_REASON = 500
"""Characters of what a candidate's failure says in one line."""
WORKER_FILE_LIMIT = 2 << 30
"""RLIMIT_FSIZE of a worker: a runaway log cannot fill the disk."""
KEPT_LOG = 8 << 20
"""Bytes of a log that are kept after its worker has ended: as many as are ever read (MAX_COUNTED_OUTPUT)."""

# --- sandbox ------------------------------------------------------------------------------------------------

HOLD_DEADLINE = 2.0
"""Seconds until a worker and all that it started must be at rest once they are told to stop."""
WORKER_PROCESSES = 1024
"""RLIMIT_NPROC: processes and threads of all workers of one fork server together. `ninja` and OpenMP on many cores need
some hundreds; before Linux 5.14 the user's other processes count as well."""
WORKER_OPEN_FILES = 4096
SCRATCH_BYTES = 2 << 30
"""Size of a worker's private file systems, which are kept in memory: its folder, /tmp and /dev/shm each."""
SCRATCH_ENTRIES = 100_000
"""Files and folders in each of them: one without a byte takes a kilobyte of the kernel's memory, and time to clear up.
A build with nvcc or torch's compiler makes a few thousand; builds that are kept may have half as many as this."""
CELL_SECONDS = 30.0
"""Most that ending a sandbox may take: the kernel clears up the file systems before its last process is gone. With
REMOVAL_SECONDS less than START_DEADLINE, for which the referee waits for the fork server."""
BUILD_BYTES = 1 << 30
"""Builds of one program that are kept for its next evaluation; a larger folder is removed when its worker ends."""
BUILD_ENTRIES = 50_000
"""Files and folders in builds that are kept: each takes a place on the disk, also one without a byte."""
BUILD_DEPTH = 64
"""Folders within folders in builds that are kept. Compilers and caches nest them less than ten deep."""
REMOVAL_SECONDS = 20.0
"""Most that removing one folder may take; the rest waits for the next time. Less than `START_DEADLINE`, for which the
referee waits for a fork server that removes one."""
LEAST_BUILD_SPACE = 16 << 20
"""Where less than this is left on the disk, a failed build is the disk's fault and no verdict."""
