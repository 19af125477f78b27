"""Real servers and simulators on loopback."""
