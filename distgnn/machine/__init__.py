"""Limits, facts and short trials of the machine that runs a rank."""
