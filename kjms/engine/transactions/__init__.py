"""What is written and settled in one Kafka transaction: commits, relocation, redelivery logs."""
