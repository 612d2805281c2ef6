"""The transport between referee and worker: binary messages, a socket with deadlines, shared memory, tensor
addresses."""
