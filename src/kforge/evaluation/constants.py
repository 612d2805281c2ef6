"""Every constant of an evaluation, in one file, so that a reader can judge them together.

The values were calibrated by measurements. docs/decisions has the reasons for changes.
"""

from __future__ import annotations

from types import MappingProxyType

# the prompts contain these three as well, and the package of the agents may not import the evaluator
from kforge.records.tolerances import ERROR_FACTOR as ERROR_FACTOR
from kforge.records.tolerances import FLOORS as FLOORS
from kforge.records.tolerances import WEIGHT_CHANGES as WEIGHT_CHANGES

# --- deadlines, in seconds ----------------------------------------------------------------------------------

FOREVER = 7 * 24 * 3600.0
"""Seconds that a process waits for its next request. It notices sooner that its peer has died, by EOF on the
channel."""
START_DEADLINE = 60.0
"""Seconds for a worker's interpreter to start and to import torch, on a busy machine."""
BUILD_DEADLINE = 240.0
"""Seconds for importing and constructing a candidate. A `load_inline` build with torch's headers takes 40 to 60 s."""
COMPILE_DEADLINE = 420.0
"""Seconds for the first call of a baseline that `torch.compile` compiles."""
CALL_DEADLINES = 15
"""Limit on the total time of all checked, untimed calls of a program, as a multiple of the deadline of one call."""

# --- correctness --------------------------------------------------------------------------------------------

AS_GIVEN_CASES = 6
"""Number of correctness cases whose inputs come from the problem's own `get_inputs`. Every other input distribution
adds one case."""
ODD_SHARE = 0.25
"""Share of timed calls whose inputs have a few rows of another distribution."""
COMPARED_STATE_SHARE = 0.3
"""Share of calls after which the program's state is compared with the reference's, if the reference updates its
state."""
LOST, LOCAL_FACTOR = 0.01, 16.0
"""LOST: a row or block may be off by this share of its own scale, however small that scale is. LOCAL_FACTOR: it may
also be off by this factor times the floor. An honest formula with cancellation has such errors where torch's formula
has none. A program that returns zeros or a constant is off by the whole scale."""
FAST_FLOOR, FAST_ERROR_FACTOR = 4.0, 10.0
"""Error that convolutions may have: FAST_FLOOR times the floor, or FAST_ERROR_FACTOR times torch's own error. Libraries
use Winograd's F(4x4, 3x3), whose error is one to five floors in float32 for 16 to 128 channels, which is four to eight
times torch's. Multiplying numbers that were rounded to fourteen bits has an error of seven to ten floors."""
FAST_UNITS = 8.0
"""Assumed standard deviation of a fast convolution's error, in units in the last place of the largest value of an
image. Winograd's worst error, one to five floors, is about 4.5 such standard deviations."""
LOST_BESIDE_LARGE = 0.5
"""Like LOST, for fast convolutions: the share of its own scale by which a row or block may be off. A Fourier transform
or a Winograd tile is only exact relative to the largest value in it."""
SHAKEN_SHARE = 0.01
"""Largest share of wrong elements that rounding might explain; a single wrong element always may be explained. Up to
this share, torch is run again on slightly perturbed inputs to find out."""
SHAKES, SHAKEN_UNITS = 8, 4.0
"""SHAKES: number of runs of torch on perturbed inputs, to see whether rounding explains an error. SHAKEN_UNITS: largest
perturbation of an input element, in units in the last place."""
SINGULAR, SINGULAR_FACTOR = 0.05, 64.0
"""SINGULAR: if the solution of linear equations changes by this relative error for slightly perturbed inputs, the
matrix counts as singular. SINGULAR_FACTOR: on given inputs, such a solution may be off by this factor times its change.
A problem with only singular matrices has the label `constant_passes`."""
TIE_ORDERS = 24
"""Orders in which the reference may choose among equal scores, to explain outputs that follow from such choices: the
first, the last, and random ones. With ten equal scores, random orders prefer any given one in nine cases of ten."""
FLIPPED_SHARE = 1e-4
"""Largest share of different output indices that rounding might explain (one index is always allowed). Up to this
share, torch is run again on perturbed inputs to find out."""
FLIP_SHAKES = 64
"""Most runs of torch on perturbed inputs to explain different indices. For products that are summed in another order, 8
runs explain four fifths of the differences and 64 runs nearly all (found by a simulation that is not kept)."""
LEAST_SCALE = 1e-32
"""Smallest scale by which an output's error is divided. So a program may return 0 for an exponential below float32's
smallest normal number."""
VARIATION = 0.25
"""Largest amount by which weights are changed that every constructor sets to the same values, such as those of norms
and zero biases. They are changed before a program is judged."""
RECHECKED_SHARE = 0.5
"""Share of cases after which the output of the case before is read again, to see that it has not changed."""
DETERMINISM_SHARE = 0.25
"""If repeated calls on the same inputs differ by up to this share of the tolerance, the program gets a label. If they
differ by more, that is a mismatch, unless torch's own results vary as well (`UNSTEADY_FACTOR`)."""
UNSTEADY_FACTOR = 2.0
"""If torch's own results for the same inputs vary (atomic additions in any order), repeated calls of a program may
differ by this factor times torch's largest observed difference."""
UNSTEADY_RUNS = 8
"""Most repetitions of a torch call to measure how much its results vary. On two cores, a race shows in most runs."""

REFERENCE_NEWS = 5.0
"""Seconds between progress messages while the reference runs in double precision."""
REFERENCE_DEADLINE = 240.0
"""Seconds that one call of the reference in double precision may take."""
REFERENCE_TOTAL = 900.0
"""Seconds that all calls of the reference in double precision may take in one evaluation. More end it with an error."""
REFERENCE_SECONDS = 40.0
"""Seconds that all fp64 calls of the reference in one evaluation should take. If they are estimated to take longer,
only a part of each batch is computed in double precision. The other samples are compared with torch's own result first,
and with double precision only if they differ from it by more than the floor."""
SLOW_DESCRIPTION = 0.4
"""Seconds. If describing a problem (two calls and their inputs) takes less, its reference is not slow."""
ESTIMATED_CASES = 36
"""Approximate number of calls of the reference in one evaluation."""

# --- sanitizers ---------------------------------------------------------------------------------------------

SANITIZED_DISTRIBUTIONS = ("edges", "huge", "zeros")
"""Input distributions that are run under a sanitizer, besides one case with inputs as given. They are few, because each
case is slow, and the addresses that a kernel accesses hardly depend on values."""
SANITIZED_SECONDS = 60.0
"""Seconds after which no further case is begun under a sanitizer, which makes programs ten to fifty times slower. The
first case is always run."""
SANITIZED_TOTAL_SECONDS = 240.0
"""Seconds after which no further sanitizer of a platform is begun. The result names those that were not run."""
SANITIZER_ENDS = 30.0
"""Seconds for a program to end by itself, so that its sanitizer can write its report."""
LEAST_ROWS = 256
"""If a case is too slow under a sanitizer, it is tried with fewer rows: the inputs' first dimension is halved while at
least this many rows remain. 256 is a multiple of every common tile size."""
SANITIZED_PRECISION = "half"
"""Precision by which outputs under a sanitizer are judged. Instrumented loops are not vectorized, so they add in
another order than the verified kernel, and only a gross error is a finding."""

# --- profilers ----------------------------------------------------------------------------------------------

COUNTED_CALLS = 1
"""Calls under a profiler that reads hardware counters. One is enough: the profiler itself repeats every kernel a dozen
times, and counters hardly vary."""
COUNTED_SECONDS = 60.0
"""Seconds that a profiler with hardware counters may take to write its report."""
MAX_COUNTED_OUTPUT = 8 << 20
"""Most bytes of a profiler's report that are read."""

# --- problem lint -------------------------------------------------------------------------------------------

LEAST_VARIATION = 0.01
"""A problem whose output varies by less than this, relative to its size, has the label `output_barely_varies`."""
TOO_QUICK = 20e-6
"""Seconds. A problem whose reference takes less for a call has the label `too_quick_to_time`."""

# --- timing -------------------------------------------------------------------------------------------------

STATISTICS = 4
"""Version of the method that computes a speedup, its interval and the seconds from samples. Increase it with every
change of that method: `kforge verify` recomputes a receipt's summary only if the versions are equal."""

WARM_UPS = (1, 1, 4, 4)
"""Number of calls in each untimed block before the first timed pair. If warming up would take more than a quarter of
the timing stage, the last of these blocks are left out."""
HANDSHAKES = 10
"""Number of empty blocks that are run to measure the cost of starting a block (a message to the worker and its
answer)."""
LEAST_OF_A_BLOCK = 0.1
"""At least this share of a block's measured time counts as work, however large the subtracted cost of starting was.
Without this limit, a busy machine could give any ratio."""
MIN_PAIRS = 20
"""Number of timed pairs of blocks that a race usually has at least."""
MAX_PAIRS = 1000
"""Number of timed pairs of blocks after which a race ends."""
HALF_WIDTH = 0.01
"""The interval of a speedup is narrow enough if half its width is at most this share of the median."""
HALF_WIDTH_OF_FEW = 0.005
"""The interval of a speedup from fewer than MIN_PAIRS pairs is narrow enough if half its width is at most this share of
the median. This is stricter than HALF_WIDTH, because few pairs tell little about how they vary."""
BLOCK_SECONDS = 5e-3
"""Seconds that a timed block should take; its number of calls is chosen for that. The cost of starting a block (0.1 to
0.3 ms) is subtracted. A program that computes during the start, in a thread that watches its inputs, gains at most that
cost."""
DEVICE_BLOCK_SECONDS = 1e-2
"""Seconds that a timed block on a device should take. It is longer than on a host, because a device takes about a
millisecond to switch to another process and back, and that time varies by 60 µs."""
DEVICE_SETTLING_CALLS = 1
"""Calls on a device after which torch's allocator needs no more new memory: it then holds the outputs of two calls."""
OVERWRITTEN_CALLS, OVERWRITTEN_WHOLE, OVERWRITTEN_BYTES = 32, 0.5, 8 << 20
"""After a timed block was checked, the referee writes to the outputs of OVERWRITTEN_CALLS of its calls, as a caller
might. In a share OVERWRITTEN_WHOLE of these calls it overwrites a stretch of memory, until OVERWRITTEN_BYTES of outputs
were overwritten. In the others it overwrites some elements."""
UNEVEN = 0.1
"""If the speedup of all calls together is lower than that of the median block by more than this share, it counts
instead."""
LONGEST_BLOCK = 0.25
"""Seconds that a block of the slower side may take, if the number of calls was chosen for a side that is far faster."""
LEAST_CALLS_PER_BLOCK = 2
"""Fewest calls in a timed block, if memory allows. With a single call, the referee could not see that the next call
overwrites its output."""
KEPT_OUTPUTS, KEPT_BYTES = 8, 256 << 20
"""KEPT_OUTPUTS: most timed calls whose outputs are kept, and must be unchanged when the race is over. KEPT_BYTES: their
largest total size in bytes."""
KEPT_LARGE, KEPT_PART = 512 << 20, 4 << 20
"""KEPT_LARGE: largest size in bytes of outputs of one call that are kept although they exceed KEPT_BYTES; only where
memory is not short. KEPT_PART: bytes of each kept tensor that are compared."""
LAST_WEIGHTS = 1, 2
"""Fewest and most changes of weights after the last timed block. After each change, the outputs of one block are
checked."""
RENEWED_SHARE = 0.25
"""Chance that the weights are changed after two timed pairs, and after one pair of paced blocks."""
LEAST_PACED, MOST_PACED, PACED_SHARE = 3, 24, 0.2
"""Pairs of paced blocks for a program that seems faster: at least LEAST_PACED, usually at most MOST_PACED. Between
these limits, pairs are added while they take less than PACED_SHARE of the timing stage, or while the result is still
open. In a paced block, the inputs of a call appear only when the call before is over."""
MOST_PACED_OPEN = 200
"""Most pairs of paced blocks on a host, if MOST_PACED of them leave it open whether the program is faster one call at a
time. The interval is then examined each time their number has grown by LOOK_AGAIN."""
PACED_CALLS, SMALL_INPUTS = (8, 2), 1 << 18
"""PACED_CALLS: calls in a paced block with small inputs, and with larger ones. SMALL_INPUTS: largest size in bytes of
small inputs. The median call of a block counts; its first call is left out."""
SLOW_CALL = 0.02
"""Seconds. If a call takes longer, a paced block is a single call."""
MOST_DECOYS, DECOY_BYTES = 3, 256 << 20
"""On a device, up to MOST_DECOYS sets of wrong input values (decoys) are written before the true inputs of a block, if
the inputs have at most DECOY_BYTES bytes. A kernel that was launched early to wait for its inputs then computes with a
decoy."""
CONSUMED_BYTES = 1 << 30
"""On a device, outputs up to this many bytes are copied on the current stream as soon as a verified call returns."""
MAX_CALLS_PER_BLOCK = 128
"""Most calls in a timed block on a host."""
MAX_DEVICE_CALLS = 256
"""Most calls in a timed block on a device. A kernel takes microseconds there, and this many calls fill a block."""
QUIET_SECONDS = 5e-4
"""A device counts as idle if the referee's own small kernel takes less than these seconds. On an idle device that
kernel takes 20 µs, and up to 350 µs when the device has slept. Behind the work of another process it waits for a time
slice (2.4 ms on an H200)."""
QUIET_TRIES, QUIET_LOOKS = 3, 50
"""QUIET_TRIES: a device counts as busy if it was found busy this many times. QUIET_LOOKS: most times it is examined.
Examinations in which the referee only waited for a core of the host are not counted as busy."""
AWAKE_SECONDS = 2e-4
"""Most seconds that the referee's own small kernel takes on an idle device that is awake. It usually takes 50 µs."""
TURN_SECONDS = 1e-3
"""Most seconds that an idle device takes to switch to another process."""
LATE_SHARE = 0.5
"""Rule for devices: a program is rejected if its device still works at the end of more blocks than the baseline's, by
this share of all blocks."""
LATE_BLOCKS = 20
"""Fewest timed blocks before the rule of LATE_SHARE is applied. Among six blocks on a busy host, four may be late by
chance."""
BUSY_LOOKS, BUSY_PAUSE = 40, 5e-3
"""If a program seems to work without an order, it is killed. Then the device is examined up to BUSY_LOOKS times, with
BUSY_PAUSE seconds between, to find out whether another process works there."""
LOOK_AGAIN = 1.5
"""Factor by which the time grows between two examinations of whether the speedup is decided."""
FIRST_LOOK, LATER_LOOKS = 1.11, 1.5
"""Factors that widen the interval of a speedup for repeated examinations (looks), so that all together are wrong in 5 %
of cases. FIRST_LOOK is for the first one, which uses 3 % (2.17 standard errors, 1.11 times the 1.96 of 5 %).
LATER_LOOKS is for the up to six that follow, a third of a per cent each (2.94 standard errors)."""
LOAD_WINDOW = 3
"""The load of other processes around a pair is measured over this many pairs before and after it. One pair is too
short: Linux counts processor time in ticks of 10 ms."""
QUIET_PAIRS = 16
"""A pair is quiet if other processes used at most BUSY_SHARE of the machine. From this number of quiet pairs on, only
quiet pairs count."""
DISPLACED_SHARE = 0.25
"""Work of a program outside its timed calls, beyond what the baseline does there, as a share of the baseline's timed
work. Above this share, on a host, the program could have done its work in advance: it is timed for longer, and then its
speedup is in doubt."""
OUTSIDE_SHARE = 0.1
"""Share of the machine that a program uses outside its timed calls, beyond what the baseline does there. Above this
share the speedup is in doubt, because the program could prepare its answers there."""
COMPILED_HALF_WIDTH = 0.02
"""`torch.compile` is timed against eager until half the interval's width is at most this share of the median."""
MIN_PAIRS_SLOW = 6
"""Fewest timed pairs, even if the time is up: a slow problem gets an interval, too."""
SETTLE_SECONDS = 2e-3
"""Seconds between the answer of a worker that has prepared a block and the moment when it is stopped. Idle OpenMP
threads spin for a while before they sleep. A thread that is stopped while it spins goes on spinning later, often on the
core of the timed side."""
COMPARED_CALLS = 8
"""Timed calls of each pair of blocks whose outputs are compared with the baseline's outputs on the same inputs. A
program that skips one call in sixteen stays undetected with a chance of (15/16)^160 = 3e-5 over twenty pairs, and of 5
% over the six pairs of a slow problem. The best program of a run is evaluated again."""
COMPARABLE = 10.0
"""If the outputs of the two sides differ by more than this many tolerances, the baseline's output is no measure for the
candidate's, for example because a module's state changed. Then one output of the pair of blocks is checked against the
reference."""
CHECKED_SHARE = 0.1
"""Share of pairs of blocks of which one random output is checked against the reference even if it agrees with the
baseline's."""
CLOCK_TOLERANCE = 1.05
"""A program is rejected if its worker's clock shows more than this factor times the referee's clock."""
RESAMPLES = 2000
"""Number of bootstrap resamples for an interval."""
TRACE_SAMPLES = MappingProxyType({"library": 30, "custom": 200})
"""A program is stopped at random moments to see whose code runs. Number of samples of its threads that always suffice,
by track."""
TRACE_SECONDS = MappingProxyType({"library": 0.15, "custom": 2.0})
"""Least seconds for which a program is stopped at random moments, by track, unless TRACE_SAMPLES is reached sooner."""
TELLING_SAMPLES = MappingProxyType({"library": 16, "custom": 30})
"""Number of samples in the program's own code or a library's, by track, with which sampling may end after
TRACE_SECONDS."""
TRACE_PATIENCE = 10.0
"""Most seconds for stopping a program at random moments, on a busy machine."""
LEAST_TRACE_PATIENCE = 1.0
"""Seconds that stopping a program at random moments may always take, however short the timing is."""
TRACED_BLOCK_SECONDS = 0.015
"""Seconds that a block should take in which the program is stopped at random moments."""
TRACED_CALLS, TRACED_BYTES = 2048, 64 << 20
"""Limits of a block in which the program is stopped at random moments. TRACED_CALLS: most calls. TRACED_BYTES: largest
size of their outputs in bytes. A quick program is called more often than in a timed block, always on the same inputs,
because preparing takes 18 ms for a block and 0.15 ms for each set of inputs. With 32 calls of 20 µs in a block, it took
nine blocks to find one moment that counts."""
TRACED_SHARE = 0.3
"""On the track `custom`: number of blocks in which the program is stopped at random moments, as a share of the timed
pairs."""
VARIED_SHARE, LAST_VARIED = 0.05, 6
"""Blocks between timed ones in which the inputs of some calls are varied (`timing/varied_calls.py`), and whose time
does not count. One is always run at a random moment of the first pairs. VARIED_SHARE: number of the others, as a share
of the timed pairs. LAST_VARIED: most of them after the last timed pair, if some variation was not used before."""
VARIED_CALLS = 4
"""Most calls of such a block that are varied; at most half of its calls, so that the first call tells little about the
block."""
EXTRA_BLOCK_SAMPLES = 4
"""On the track `custom`, the program is also stopped at random moments in extra blocks between timed ones: at most this
many samples are taken in each."""
LEAST_TRACE_SAMPLES = 4
"""If fewer samples than this show whose code runs, they are ignored."""
CUSTOM_SHARE = 0.8
"""On the track `custom`: least share of the sampled moments, or of device time, that must be in the program's own
code."""
OWN_SHARE_ELSEWHERE = 2 / 3
"""Replaces CUSTOM_SHARE if a driver runs the kernels: least share of the sampled moments outside of libraries. It is
lower, because launching a small kernel and allocating its output takes longer than the kernel: for an honest program, a
seventh of the moments were in torch's allocator."""
WATCHED_CALLS = 3
"""Calls in the block in which a profiler records the kernels of a device."""
WATCHED_TRIES = 2
"""How often the block with recorded kernels is tried. The first session of a profiler may lose its events."""
WATCHED_TIMES, WATCHED_SLACK = 2.0, 1e-4
"""A recording is not believed if its kernels take longer than WATCHED_TIMES times the timed calls plus WATCHED_SLACK
seconds."""
SEEN_SHARE, HOST_SECONDS = 0.5, 2.5e-4
"""A recording is also not believed if its kernels take less than SEEN_SHARE of a timed call, and the missing time is
more than HOST_SECONDS for each launch and for one more. A launch takes 15 to 60 µs in Python; the other microseconds
are for a busy host."""
PHYSICS = 0.95
"""A program is rejected if a call takes less than this share of the time in which the device can move its data at peak
bandwidth."""
PIECES = 16
"""Number of parts of an input that are changed one by one, to see which parts the reference reads."""
QUARANTINE = 10.0
"""A speedup whose lower bound is above this is measured again before it is believed (`quarantine.py`)."""
REPLICATIONS = 3
"""Number of repetitions that must confirm a speedup above QUARANTINE."""
AGREEMENT = 0.8
"""A repetition confirms a speedup above QUARANTINE if the upper bound it finds is at least this share of the first
lower bound."""
MOST_ROUNDS = 7
"""Most pairs of fresh processes in which two programs are timed against each other. The result is examined after each
pair: once with FIRST_LOOK and six times with LATER_LOOKS."""
MORE_THREADS = 1.25
"""For each of two programs, processor time is divided by that of its busiest thread. If one quotient exceeds the other
by more than this factor, that program counts as working in more threads."""
CONTENDED_MARGIN = 1.02
"""On a machine that other processes use nearly all the time, contention may favour one of two programs. Then the lower
bound of the faster program's speedup must be higher by this factor."""
ONE_TIME_SECONDS = 0.05
"""Processor seconds that a program may use outside timed calls in one race, even if they exceed DISPLACED_SHARE of a
short race."""
CONTENDED_PATIENCE = 3.0
"""Factor on the time limit for timing two programs against each other, if the finding is in doubt, for example because
other processes use the machine."""
BUSY_SHARE = 0.1
"""If other processes used more than this share of the machine during timing, the result is labelled, and a pair that
was timed then is not quiet."""

# --- memory and channel -------------------------------------------------------------------------------------

MAX_INPUT_BYTES = 1 << 30
"""Most bytes of all inputs of one timed block on a host."""
DEVICE_INPUT_SHARE = 1 / 11
"""Most bytes of all inputs of one timed block on a device, as a share of its free memory. Larger outputs than inputs
reduce the number of calls further (`fresh_inputs.sets_in_memory`). A full check needs the memory of another call."""
HELD_INPUTS, HELD_OUTPUTS = 3, 2
"""Number of copies of a call's inputs, and of its outputs, that are in memory at once. The referee has one copy of the
inputs. Each of the two workers has the inputs and the outputs until its block was checked."""
HOARD = 0.5
"""If memory runs out while a program holds more than this share of the memory that is free without it, the program is
blamed."""
WHOLE_CALLS = 11.0
"""Memory that is needed to judge a case as a whole, as a multiple of the inputs and outputs of one eager call. It holds
the drawn inputs and the shared ones, three outputs of the worker and three copies of the referee's, and the inputs,
outputs and temporaries in double precision."""
LEAN_CALLS = 4.0
"""Least memory to judge a case in pieces, as a multiple of the inputs and outputs of one eager call. A problem for
which the memory limit is smaller is refused."""
PIECE_CALLS, PIECE_SHARE = 6.0, 1 / 16
"""Memory of one piece in double precision: PIECE_CALLS times its part of a call's inputs and outputs. It may be at most
PIECE_SHARE of the memory limit."""
HOST_SHARE = 0.8
"""Share of the host's available memory that an evaluation may use if the user sets no limit."""
MAX_FRAME = 4 << 20
"""Most bytes of a message from a worker. Outputs are not messages: they go through shared memory."""
MAX_TRUSTED_FRAME = 256 << 20
"""Most bytes of a message between processes of kforge that run no foreign code."""
MAX_LOG = 20_000
"""Most characters of a candidate's log or traceback that are kept."""
MAX_REASON = 500
"""Most characters of the one-line reason of a candidate's failure."""
WORKER_FILE_LIMIT = 2 << 30
"""RLIMIT_FSIZE of a worker in bytes, so that an endless log cannot fill the disk."""
KEPT_LOG = 8 << 20
"""Bytes of a log that are kept after its worker has ended. No reader needs more (MAX_COUNTED_OUTPUT)."""

# --- sandbox ------------------------------------------------------------------------------------------------

HOLD_DEADLINE = 2.0
"""Seconds in which a worker and all processes that it started must stop after SIGSTOP."""
WORKER_PROCESSES = 1024
"""RLIMIT_NPROC: processes and threads of all workers of one fork server together. `ninja` and OpenMP on many cores need
some hundreds. Before Linux 5.14 the user's other processes count as well."""
WORKER_OPEN_FILES = 4096
"""RLIMIT_NOFILE: open files of one worker process."""
SCRATCH_BYTES = 2 << 30
"""Bytes of each private file system of a worker. It has three, which are kept in memory: its folder, /tmp and
/dev/shm."""
SCRATCH_ENTRIES = 100_000
"""Most files and folders in each private file system of a worker. Even an empty file takes a kilobyte of kernel memory
and time to remove. A build with nvcc or torch's compiler makes a few thousand. Kept builds may have half as many
(BUILD_ENTRIES)."""
CELL_SECONDS = 30.0
"""Most seconds for ending a sandbox: the kernel removes its file systems before its last process is gone. CELL_SECONDS
and REMOVAL_SECONDS together are less than START_DEADLINE, for which the referee waits for the fork server."""
BUILD_BYTES = 1 << 30
"""Most bytes of one program's builds that are kept for its next evaluation. A larger folder is removed when its worker
ends."""
BUILD_ENTRIES = 50_000
"""Most files and folders in kept builds. Even an empty file takes an entry on the disk."""
BUILD_DEPTH = 64
"""Most levels of folders in kept builds. Compilers and caches use less than ten."""
REMOVAL_SECONDS = 20.0
"""Most seconds for removing one folder; what remains is removed next time. Less than START_DEADLINE, for which the
referee waits for a fork server that removes a folder."""
LEAST_BUILD_SPACE = 16 << 20
"""If less than these bytes are free on the disk, a failed build is an error of the evaluator and not a verdict."""
