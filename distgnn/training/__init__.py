"""The trainer, what it measures, and what it leaves on disk."""
