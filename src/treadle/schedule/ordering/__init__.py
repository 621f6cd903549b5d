"""Orders with a lower peak: constructive orders, local search, and bounds that no order beats."""
