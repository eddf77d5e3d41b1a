"""What only the project's developers measure, beside `kjms.bench`: ``python -m benchmarks`` runs both."""
