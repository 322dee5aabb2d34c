"""Another number of parts, made of the parts there are."""
