"""Prove that the tests notice when the engine breaks a rule: seeded mutations, one at a time."""
