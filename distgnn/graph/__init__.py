"""The graph as layers see it: a whole graph or a part of one, behind one interface."""
