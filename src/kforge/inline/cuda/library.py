"""Kernels of a cubin: checks the arguments of a call and launches the kernel on torch's current stream. (torch, at a
launch)"""

from __future__ import annotations

import ctypes
import operator
from functools import cache
from typing import TYPE_CHECKING, Any

from kforge.inline import geometry
from kforge.inline.arguments import Arguments, MemoryKind
from kforge.inline.cuda import declarations, driver
from kforge.inline.cuda.translation import Translation, translate
from kforge.inline.errors import CompileError, LaunchError
from kforge.inline.library import Library

if TYPE_CHECKING:
    from collections.abc import Callable

    from kforge.inline.cuda.resources import Resources
    from kforge.inline.grammar import Signature

LIMITS = geometry.Limits(group=(1024, 1024, 64), group_threads=1024, groups=(2**31 - 1, 65535, 65535))
DEVICE = MemoryKind(operator.attrgetter("is_cuda"), "on a CUDA device")
FREELY_SHARED = 48 << 10
"""Bytes of shared memory that a thread group may use without setting a limit in the driver first."""
MAX_PLANS = 1024
"""Most launch plans that a kernel keeps for reuse."""


def build(source: str, flags: tuple[str, ...]) -> Library:
    """Return the library built from this source, from the cache if possible. No device is needed before the first
    launch.

    Raises CompileError if the source does not compile or has no kernel that can be called, and ToolchainError if there
    is no NVRTC or no writable cache.
    """
    found = declarations.parse(source)
    for name in declarations.clashes(source):
        raise CompileError(f"{name}: defined twice with different parameters; give each kernel its own name")
    plain = [one for one in found.values() if one.template is None]
    # A kernel with C linkage is its own symbol. The preprocessor may have removed it, so NVRTC is not asked for it.
    names = tuple(one.expression for one in plain if not one.c_linkage)
    built = translate(source, flags, names)
    image = _Image(built.image)
    kernels: dict[str, Any] = {
        one.name: CudaKernel(one.signature(), built, image, symbol, (_kernel, (source, flags, one.name)))
        for one in plain
        if (symbol := one.name if one.c_linkage else built.names[one.expression]) in built.resources
    }
    kernels |= {one.name: Template(one, source, flags) for one in found.values() if one.template is not None}
    if not kernels:
        raise CompileError(
            'the source has no kernel: write one as extern "C" __global__ void name(const float* x, int64_t n) { ... }'
        )
    return Library(kernels, (build, (source, flags)))


class Template:
    """A template kernel. `library.name["float", 4]` gives it its arguments and returns an ordinary kernel."""

    def __init__(self, declaration: declarations.Declaration, source: str, flags: tuple[str, ...]) -> None:
        self._declaration = declaration
        self._source = source
        self._flags = flags
        self._instances: dict[tuple[tuple[type, Any], ...], CudaKernel] = {}

    def __getitem__(self, arguments: Any) -> CudaKernel:
        """Return the kernel for these template arguments: types as C++ spells them, torch's dtypes, numbers or bools.
        Raises CompileError if an argument has no spelling in C++, or if the compiler refuses the kernel."""
        given = arguments if isinstance(arguments, tuple) else (arguments,)
        key = tuple((type(one), one) for one in given)  # True == 1, but they are different arguments
        if key not in self._instances:
            expression, signature = self._declaration.instance(given)
            built = translate(self._source, self._flags, (expression,))
            recipe = (_kernel, (self._source, self._flags, self._declaration.name, given))
            self._instances[key] = CudaKernel(signature, built, _Image(built.image), built.names[expression], recipe)
        return self._instances[key]

    def __call__(self, *_: Any, **__: Any) -> None:
        name = self._declaration.name
        parameters = ", ".join(name for name, _ in self._declaration.template or ())
        raise LaunchError(f"{name} is a template; pass its template arguments first: library.{name}[{parameters}](...)")


class _Image:
    """A cubin. It is loaded once per device, so that its kernels share their `__device__` variables."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._modules: dict[int, ctypes.c_void_p] = {}

    def function(self, index: int, symbol: str) -> ctypes.c_void_p:
        """Return the driver's handle of a kernel on this device, whose context must be current."""
        native = driver.load()
        if index not in self._modules:
            self._modules.setdefault(index, native.load_module(self._content))
        return native.function(self._modules[index], symbol)


class _Loaded:
    """A kernel on one device, with the limits for its launches."""

    def __init__(self, kernel: str, index: int, function: ctypes.c_void_p, taken: Resources) -> None:
        native = driver.load()
        self.function = function
        self._kernel = kernel
        self._registers = taken.registers
        self._threads = native.function_attribute(function, driver.FUNCTION_MAX_THREADS)
        self._shared = native.attribute(index, driver.SHARED_OPT_IN) - taken.static_shared
        self._allowed = FREELY_SHARED - taken.static_shared

    def admit(self, size: geometry.Three, shared: Any) -> None:
        """Check that a thread group of this size fits, and raise the driver's limit of shared memory if necessary.
        Raises LaunchError if it does not fit."""
        threads = size[0] * size[1] * size[2]
        if threads > self._threads:
            reason = f"because of its {self._registers} registers per thread and its launch bounds"
            raise LaunchError(f"{self._kernel}: at most {self._threads} threads per group {reason}, got {threads}")
        if type(shared) is not int or not 0 <= shared <= self._shared:
            raise LaunchError(
                f"{self._kernel}: shared must be 0 to {self._shared} bytes on this device, got {shared!r}"
            )
        if shared > self._allowed:
            driver.load().allow_shared(self.function, shared)
            self._allowed = shared


class CudaKernel:
    """One `__global__` function that can be launched."""

    def __init__(
        self, signature: Signature, built: Translation, image: _Image, symbol: str, recipe: tuple[Any, ...]
    ) -> None:
        """`recipe` is a pair (function, arguments); calling the function makes an equal kernel. Copying and pickling
        use it."""
        self.signature = signature
        self._recipe = recipe
        self._image = image
        self._symbol = symbol
        self._resources = built.resources[symbol]
        self._arguments: Arguments | None = None
        self._tensors = [index for index, parameter in enumerate(signature.parameters) if parameter.pointer]
        # The driver copies every argument from an address. All arguments lie in one block.
        fields = [
            (f"argument_{index}", ctypes.c_void_p if parameter.pointer else parameter.element.ctype)
            for index, parameter in enumerate(signature.parameters)
        ]
        self._block = type("Block", (ctypes.Structure,), {"_fields_": fields})
        self._offsets = [getattr(self._block, name).offset for name, _ in fields]
        self._pointers = ctypes.c_void_p * len(fields)
        self._loaded: dict[int, _Loaded] = {}
        self._plans: dict[tuple[Any, ...], driver.LaunchPlan] = {}

    def __call__(self, *arguments: Any, threads: Any, group_size: Any = 256, shared: int = 0) -> None:
        """Launch the kernel on torch's current stream, and return without waiting for it.

        `threads` and `group_size` are a number or up to three numbers; `threads` is rounded up to whole thread groups.
        `shared` is the size in bytes of a group's `extern __shared__` memory. Raises LaunchError if an argument does
        not fit the kernel or the device.
        """
        if self._arguments is None:
            self._arguments = Arguments(self.signature, DEVICE)
        values = self._arguments.convert(arguments)
        index = self._device(arguments)
        native = driver.load()
        entered = native.enter(index)
        try:
            try:
                plan = self._plans[index, threads, group_size, shared]
            except (KeyError, TypeError):  # not seen before, or a list
                plan = self._plan(index, threads, group_size, shared)
            block = self._block(*values)
            base = ctypes.addressof(block)
            pointers = self._pointers(*[base + offset for offset in self._offsets])
            status = native.launch(plan, _stream(index), pointers)
        finally:
            if entered:
                native.leave()
        if status:
            native.fail(status, f"{self.signature.name}: the launch")

    def __reduce__(self) -> tuple[Any, ...]:
        # A module that holds a kernel can then be copied and pickled, as one that holds a library can.
        return self._recipe

    def resources(self) -> Resources:
        """Return the registers, shared memory, stack and spills of the kernel. No device is needed."""
        return self._resources

    def occupancy(self, group_size: Any = 256, shared: int = 0) -> float:
        """Return the occupancy: the share of a multiprocessor's threads that groups of this size can fill, on torch's
        current device."""
        index, native = _current_device(), driver.load()
        size = geometry.group(self.signature.name, group_size, LIMITS)
        threads = size[0] * size[1] * size[2]
        with native.context(index):
            loaded = self._loaded.get(index) or self._load(index)
            loaded.admit(size, shared)
            groups = native.groups_per_multiprocessor(loaded.function, threads, shared)
        return groups * threads / native.attribute(index, driver.THREADS_PER_MULTIPROCESSOR)

    def _device(self, arguments: tuple[Any, ...]) -> int:
        """Return the index of the device on which all tensors lie. Raises LaunchError if they lie on several
        devices."""
        if not self._tensors:
            return _current_device()
        index: int = arguments[self._tensors[0]].get_device()
        for position in self._tensors[1:]:
            if arguments[position].get_device() != index:
                got = sorted({f"cuda:{arguments[one].get_device()}" for one in self._tensors})
                raise LaunchError(f"{self.signature.name}: all tensors must be on one device, got {', '.join(got)}")
        return index

    def _plan(self, index: int, threads: Any, group_size: Any, shared: int) -> driver.LaunchPlan:
        """Return a checked launch plan. It is kept and reused for launches of the same shape. Raises LaunchError if the
        kernel cannot be launched in this shape."""
        size = geometry.group(self.signature.name, group_size, LIMITS)
        groups = geometry.grid(self.signature.name, threads, size, LIMITS)
        loaded = self._loaded.get(index) or self._load(index)
        loaded.admit(size, shared)
        plan = driver.LaunchPlan(loaded.function, groups, size, shared)
        if not isinstance(threads, list) and not isinstance(group_size, list):
            if len(self._plans) >= MAX_PLANS:
                self._plans.clear()
            self._plans[index, threads, group_size, shared] = plan
        return plan

    def _load(self, index: int) -> _Loaded:
        function = self._image.function(index, self._symbol)
        self._loaded[index] = _Loaded(self.signature.name, index, function, self._resources)
        return self._loaded[index]


def _kernel(source: str, flags: tuple[str, ...], name: str, arguments: tuple[Any, ...] | None = None) -> Any:
    found = getattr(build(source, flags), name)
    return found if arguments is None else found[arguments]


def _current_device() -> int:
    import torch

    return torch.cuda.current_device()


@cache
def _raw_stream() -> Callable[[int], int]:
    """Return torch's private function that gives the current stream of a device as a driver handle. The public function
    makes an object for every launch."""
    import torch

    get: Callable[[int], int] = torch._C._cuda_getCurrentRawStream
    return get


def _stream(index: int) -> int:
    return _raw_stream()(index)
