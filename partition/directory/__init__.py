"""The partition directory, the only contract between partitioning and training."""
