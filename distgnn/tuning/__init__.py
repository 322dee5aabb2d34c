"""Search over runs: which settings train best, for how few epochs."""
