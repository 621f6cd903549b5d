"""Static memory plans: blocks with lives and sizes in, an address for each out, with a bound."""
