"""Scheduling: passes over frozen programs, one readable list, one runner that checks them."""
