"""Settlement: what of a queue or subscription is done, and what Kafka is told about it."""
