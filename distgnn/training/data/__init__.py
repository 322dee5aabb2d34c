"""The inputs of a rank: features, labels, masks, and the place they are kept in."""
