"""Optimizers, which turn gradients into steps."""
