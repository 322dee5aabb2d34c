"""Moving the rows of split vertices: routes, channels, and aggregation across a cut."""
