"""Partitioning of graphs whose edges do not fit into memory: from disk, slice by slice."""
