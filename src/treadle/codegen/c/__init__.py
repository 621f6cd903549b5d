"""The C generator: one plain-C translation unit per program, right before fast."""
