"""Who speaks for the logs: the signer, and the directory that holds its keys and last notes."""
