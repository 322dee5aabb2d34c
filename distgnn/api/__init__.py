"""The Python door: the objects and functions that `import distgnn` offers; see README.md."""
