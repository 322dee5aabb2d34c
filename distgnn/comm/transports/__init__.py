"""The transports that a group can use: gloo, shared memory, MPI, and NCCL for devices."""
