"""The platform for WGSL through WebGPU: on a GPU with Vulkan or Metal, or on the host with lavapipe."""
