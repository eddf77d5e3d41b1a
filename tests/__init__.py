"""The tests of kjms; what they share is in ``tests.helpers``."""
