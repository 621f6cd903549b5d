"""The loop IR: types, operations, bodies, programs, their text, their rules, their meaning."""
