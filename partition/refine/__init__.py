"""Local search: moves of edges and roots that save rows or even out the parts."""
