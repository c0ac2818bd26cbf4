"""Best-of-N: what more samples buy, by an oracle, by vote and by the judge."""
