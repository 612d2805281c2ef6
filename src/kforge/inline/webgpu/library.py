"""Kernels of a WGSL source: checks the arguments of a call, copies them to the device, runs the kernel and copies the
outputs back. (torch, at a launch)"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from kforge.inline import geometry, launches
from kforge.inline.errors import CompileError, LaunchError
from kforge.inline.headers import wgsl
from kforge.inline.library import Library
from kforge.inline.webgpu import compiler, numbers, source, tensors
from kforge.inline.webgpu.declarations import Override
from kforge.inline.webgpu.device import Device, open_device

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kforge.inline.webgpu.declarations import Entry

_ALIGNMENT = 4
"""The size of every copy and of every binding is a multiple of this many bytes."""


def build(text: str, flags: tuple[str, ...]) -> Library:
    """Return the library compiled for this process's device.

    Raises CompileError if the source does not compile or has no kernel that can be called, and ToolchainError if there
    is no `wgpu` or no device.
    """
    if flags:
        raise CompileError(f"WGSL has no compiler flags, got {list(flags)}")
    whole = wgsl.expanded(text, compiler.SOURCE)
    device = open_device()
    with device.lock:
        module = compiler.module(device, whole)
        kernels = {one.name: WebgpuKernel(device, module, one, text) for one in source.entries(whole)}
    if not kernels:
        raise CompileError(
            "the source has no kernel: write one as @compute @workgroup_size(64) "
            "fn name(@builtin(global_invocation_id) thread: vec3<u32>) { ... }"
        )
    return Library(kernels, (build, (text, flags)))


def _kernel(text: str, name: str) -> WebgpuKernel:
    found: WebgpuKernel = getattr(build(text, ()), name)
    return found


class WebgpuKernel:
    """One `@compute` function that can be launched."""

    def __init__(self, device: Device, module: Any, entry: Entry, text: str) -> None:
        self._device = device
        self._module = module
        self._entry = entry
        self._text = text
        if entry.group_bytes > device.group_bytes:
            raise CompileError(
                f"{entry.name}: its workgroup memory takes {entry.group_bytes} bytes; {device.name} has "
                f"{device.group_bytes}"
            )
        self._numbers = numbers.Block(entry)
        self._layout, self._pipeline_layout = self._layouts()
        self._pipelines: dict[geometry.Three, Any] = {}
        if all(not isinstance(one, Override) or one.default is not None for one in entry.group_size):
            # made now, so that a source that does not compile fails in `build` and not at the first launch
            self._pipeline(self._group(None))

    def __call__(self, *arguments: Any, threads: Any, group_size: Any = None) -> None:
        """Copy the tensors to the device, run the kernel, copy the outputs back, and return when the outputs are in
        host memory.

        `threads` and `group_size` are a number or up to three numbers; the package's docstring says how they relate to
        the source. Raises LaunchError if an argument does not fit the kernel or the device.
        """
        size = self._group(group_size)
        groups = geometry.grid(self._entry.name, threads, size, self._device.limits)
        given = self._tensors(arguments)
        values = self._numbers.pack([one for one in arguments if not _is_tensor(one)])
        if 0 in groups or not any(one.buffer.writable and one.nbytes for one in given):
            return  # nothing would change
        with self._device.lock, ExitStack() as stack:
            try:
                self._launch(stack, self._pipeline(size), groups, given, values)
            except self._device.wgpu.GPUError as error:
                line = " ".join(str(error).split())
                raise LaunchError(f"{self._entry.name}: the device refuses the launch: {line}") from error

    def __reduce__(self) -> tuple[Any, ...]:
        return _kernel, (self._text, self._entry.name)

    def _tensors(self, arguments: Sequence[Any]) -> list[tensors.Passed]:
        """Return the checked and converted tensors of a launch. Raises LaunchError if an argument is missing or does
        not fit."""
        name, buffers = self._entry.name, self._entry.buffers
        placed = [(index, one) for index, one in enumerate(arguments, start=1) if _is_tensor(one)]
        others = len(arguments) - len(placed)
        if len(placed) != len(buffers) or others != self._numbers.count:
            wanted = [*(one.name for one in buffers), *self._numbers.names]
            raise LaunchError(
                f"{name}: needs {len(buffers)} tensors and {self._numbers.count} numbers (in order: "
                f"{', '.join(wanted) or 'none'}), but got {len(placed)} tensors and {others} numbers"
            )
        given = [
            tensors.passed(
                f"{name}: argument {index} ({buffer.name})", buffer, value,
                only_written=buffer.name not in self._entry.read,
            )
            for (index, value), buffer in zip(placed, buffers, strict=True)
        ]  # fmt: skip
        self._check_overlap(given)
        for one in given:
            if one.nbytes > self._device.most_bytes:
                raise LaunchError(
                    f"{one.place} has {one.nbytes} bytes; {self._device.name} takes at most {self._device.most_bytes} "
                    "bytes in a buffer"
                )
        return given

    def _check_overlap(self, given: Sequence[tensors.Passed]) -> None:
        """Raise LaunchError if two tensors share memory and one of them is written, because each has its own copy on
        the device."""
        spans = sorted(
            (one.tensor.data_ptr(), one.tensor.data_ptr() + one.tensor.numel() * one.tensor.element_size(), index)
            for index, one in enumerate(given)
            if one.tensor.numel()
        )
        for place, (start, end, index) in enumerate(spans):
            for other_start, _, other in spans[place + 1 :]:
                if other_start >= end:
                    break
                if other_start >= start and (given[index].buffer.writable or given[other].buffer.writable):
                    first, second = sorted((given[index].buffer.name, given[other].buffer.name))
                    raise LaunchError(
                        f"{self._entry.name}: {first} and {second} share memory, and one is written; "
                        "use one variable for both in the kernel, or pass a .clone()"
                    )

    def _group(self, group_size: Any) -> geometry.Three:
        """Return the size of a thread group, from the launch and the source. Raises LaunchError if they contradict each
        other."""
        name, declared = self._entry.name, self._entry.group_size
        if group_size is None:
            for one in declared:
                if isinstance(one, Override) and one.default is None:
                    raise LaunchError(f"{name}: group_size must be given: {one.name} has no default in the source")
            x, y, z = (one.default or 0 if isinstance(one, Override) else one for one in declared)
            return x, y, z
        size = geometry.group(name, group_size, self._device.limits)
        values: dict[str, int] = {}
        for wanted, one in zip(size, declared, strict=True):
            fixed = values.setdefault(one.name, wanted) if isinstance(one, Override) else one
            if fixed != wanted:
                written = ", ".join(one.name if isinstance(one, Override) else str(one) for one in declared)
                raise LaunchError(
                    f"{name}: group_size={group_size!r} differs from @workgroup_size({written}) in the source"
                )
        return size

    def _layouts(self) -> tuple[Any, Any]:
        """Return the layout of the bindings that the kernel uses, and the pipeline layout made of it."""
        stage = self._device.wgpu.ShaderStage.COMPUTE
        entries = [
            {
                "binding": one.binding,
                "visibility": stage,
                "buffer": {"type": "storage" if one.writable else "read-only-storage"},
            }
            for one in self._entry.buffers
        ]
        entries += [
            {"binding": one.binding, "visibility": stage, "buffer": {"type": "uniform"}} for one in self._entry.uniforms
        ]
        try:
            layout = self._device.native.create_bind_group_layout(entries=entries)
            return layout, self._device.native.create_pipeline_layout(bind_group_layouts=[layout])
        except self._device.wgpu.GPUError as error:
            raise compiler.compile_error(error) from None

    def _pipeline(self, size: geometry.Three) -> Any:
        if size not in self._pipelines:
            declared = zip(size, self._entry.group_size, strict=True)
            constants = {one.key: value for value, one in declared if isinstance(one, Override)}
            stage = {"module": self._module, "entry_point": self._entry.name, "constants": constants}
            try:
                made = self._device.native.create_compute_pipeline(layout=self._pipeline_layout, compute=stage)
            except self._device.wgpu.GPUError as error:
                raise compiler.compile_error(error) from None
            self._pipelines[size] = made
        return self._pipelines[size]

    def _launch(
        self,
        stack: ExitStack,
        pipeline: Any,
        groups: geometry.Three,
        given: Sequence[tensors.Passed],
        values: Sequence[bytes],
    ) -> None:
        device, wgpu = self._device, self._device.wgpu
        native, usage = device.native, wgpu.BufferUsage
        bound, returning = [], []
        for one in given:
            size = max(_rounded(one.nbytes), _rounded(one.buffer.shape.alignment))
            buffer = stack.enter_context(device.buffer(size, usage.STORAGE | usage.COPY_DST | usage.COPY_SRC))
            if one.nbytes:
                native.queue.write_buffer(buffer, 0, _bytes(one.content, size))
            bound.append(_binding(one.buffer.binding, buffer, size))
            if one.buffer.writable and one.nbytes:
                back = stack.enter_context(device.buffer(size, usage.MAP_READ | usage.COPY_DST))
                returning.append((one, buffer, back, size))
        for uniform, content in zip(self._entry.uniforms, values, strict=True):
            buffer = stack.enter_context(device.buffer(len(content), usage.UNIFORM | usage.COPY_DST))
            native.queue.write_buffer(buffer, 0, content)
            bound.append(_binding(uniform.binding, buffer, len(content)))
        group = native.create_bind_group(layout=self._layout, entries=bound)
        encoder = native.create_command_encoder()
        timing = _Timing(device, stack) if launches.recording() and device.has_timestamps else None
        work = encoder.begin_compute_pass(timestamp_writes=timing.writes if timing is not None else None)
        work.set_pipeline(pipeline)
        work.set_bind_group(0, group)
        work.dispatch_workgroups(*groups)
        work.end()
        for _, buffer, back, size in returning:
            encoder.copy_buffer_to_buffer(buffer, 0, back, 0, size)
        if timing is not None:
            timing.resolve(encoder)
        native.queue.submit([encoder.finish()])
        for one, _, back, size in returning:
            back.map_sync(wgpu.MapMode.READ, 0, size)
            try:
                one.receive(back.read_mapped(0, size, copy=False))
            finally:
                back.unmap()
        if timing is not None:
            launches.note(self._entry.name, *timing.read())


class _Timing:
    """Timestamps of the device at the beginning and the end of one launch."""

    def __init__(self, device: Device, stack: ExitStack) -> None:
        self._wgpu = device.wgpu
        usage = self._wgpu.BufferUsage
        self._queries = device.native.create_query_set(type="timestamp", count=2)
        self._resolved = stack.enter_context(device.buffer(16, usage.QUERY_RESOLVE | usage.COPY_SRC))
        self._back = stack.enter_context(device.buffer(16, usage.MAP_READ | usage.COPY_DST))
        self.writes = {
            "query_set": self._queries,
            "beginning_of_pass_write_index": 0,
            "end_of_pass_write_index": 1,
        }

    def resolve(self, encoder: Any) -> None:
        encoder.resolve_query_set(self._queries, 0, 2, self._resolved, 0)
        encoder.copy_buffer_to_buffer(self._resolved, 0, self._back, 0, 16)

    def read(self) -> tuple[int, int]:
        """Return the beginning and the end in nanoseconds."""
        self._back.map_sync(self._wgpu.MapMode.READ, 0, 16)
        try:
            content = bytes(self._back.read_mapped(0, 16, copy=True))
        finally:
            self._back.unmap()
        return int.from_bytes(content[:8], "little"), int.from_bytes(content[8:], "little")


def _binding(number: int, buffer: Any, size: int) -> dict[str, Any]:
    return {"binding": number, "resource": {"buffer": buffer, "offset": 0, "size": size}}


def _rounded(size: int) -> int:
    return max(_ALIGNMENT, -(-size // _ALIGNMENT) * _ALIGNMENT)


def _bytes(content: Any, size: int) -> Any:
    """Return the bytes of a tensor, padded with zeros to a multiple of four."""
    import torch

    raw = content.view(torch.uint8)
    missing = _rounded(raw.numel()) - raw.numel()
    return (torch.nn.functional.pad(raw, (0, missing)) if missing else raw).numpy()[:size]


def _is_tensor(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor)
