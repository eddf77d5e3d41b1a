"""How fast kjms is beside what it stands on: ``python -m benchmarks``; docs/performance.md says what is measured."""
