"""Temporary destinations: one Kafka topic for each engine, shared by all of them."""
