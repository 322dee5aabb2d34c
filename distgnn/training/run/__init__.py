"""The RUN directory: settings, metrics, checkpoints and the trained model."""
