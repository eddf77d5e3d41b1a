"""Named subscriptions: created, shared, changed and ended among all processes."""
