"""Settings of a training run, and which of them go together."""
