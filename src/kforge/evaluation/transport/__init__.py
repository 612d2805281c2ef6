"""What passes between referee and worker: typed frames, a channel with deadlines, shared memory, tensor addresses."""
