"""What looks after the ledger: sweeps that make stranded jobs runnable again. Knows the ledger, never the travel domain."""
