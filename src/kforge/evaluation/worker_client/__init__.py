"""The referee's side of one worker: sends it orders, times them, checks its answers, and reads outputs in its
memory."""
