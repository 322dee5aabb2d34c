"""Full-batch training of graph neural networks on clusters of CPU sockets."""

from __future__ import annotations

__version__ = "0.1.0"
