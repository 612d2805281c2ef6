"""Rewrite rules, one module for each family of operators: softmax, pooling, scans and others."""
