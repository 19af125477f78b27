"""For people who look at a log: the entries that match what they ask for, and what the log holds, in figures."""
