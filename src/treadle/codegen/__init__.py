"""From scheduled programs to source text: lowering to host steps, and one generator per target."""
