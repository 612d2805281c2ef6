"""The referee's end of one worker: orders and answers, its clock, and access to the memory of its outputs."""
