"""Rules, one module for each family of operators."""
