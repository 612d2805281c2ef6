"""The dialects of the SIMT languages. A module here is found by its name, and its `DIALECT` is what it speaks."""
