"""The platform for HIP on AMD GPUs, with a torch that was built for ROCm."""
