"""Kafka consumers of queues and subscriptions, and which JMS consumer gets which message."""
