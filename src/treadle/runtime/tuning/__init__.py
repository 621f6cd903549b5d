"""Which of a few schedules a device runs fastest: asked, measured, kept (ADR 0019)."""
