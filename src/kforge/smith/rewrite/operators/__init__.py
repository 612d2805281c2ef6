"""Rules that rewrite a graph, one module for each family of operators: softmax, pooling, scans and others."""
