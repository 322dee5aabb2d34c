"""Tasks: targets, losses and metrics of vertices and of links."""
