"""Partitioning methods, one a file, and the steps that several of them share."""
