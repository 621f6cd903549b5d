"""Who carries out launch plans: each host is thin and decides nothing."""
