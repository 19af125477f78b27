"""Classes of tampering with a log, and what verification must find."""
