"""Aggregations across a cut: sums, maxima, attention and the other aggregations of a layer."""
