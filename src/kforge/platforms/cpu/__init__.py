"""The platform for C++ with OpenMP on the host's processor."""
