"""The epochs of a run: steps, evaluation, metrics and requests to stop."""
