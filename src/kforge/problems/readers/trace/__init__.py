"""Reads FlashInfer-Trace and SOL-ExecBench: definitions with symbolic axes, and workloads that give them values."""
