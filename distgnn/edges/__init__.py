"""The edges of a part, divided by whether their ends are roots or leaves."""
