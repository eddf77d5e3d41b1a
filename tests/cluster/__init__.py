"""Long runs on three brokers, and of late requests: see docs/reliability.md."""
