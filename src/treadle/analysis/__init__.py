"""Questions about a frozen program: accesses, dependences, aliases, liveness, order, cost."""
