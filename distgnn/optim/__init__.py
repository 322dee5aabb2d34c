"""Optimizers: from gradients to steps."""
