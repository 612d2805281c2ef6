"""HIP on AMD's GPUs, by a torch that was built for ROCm."""
