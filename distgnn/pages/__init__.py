"""Pages about partitions and runs: one HTML file each, which asks nothing of a network."""
