"""One page that shows what was decided and why: its data, its HTML, and forms for other tools."""
