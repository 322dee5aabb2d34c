"""Settings that are flags of the command line and fields of dataclasses at once."""
