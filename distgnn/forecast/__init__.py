"""The bytes, memory and time of an epoch, computed before the first one."""
