"""WGSL through WebGPU: on a GPU by Vulkan or Metal, or on the host by lavapipe."""
