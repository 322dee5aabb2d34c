"""Benchmarks: our kernels beside those of every peer that is installed."""
