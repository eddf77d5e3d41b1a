"""Topics, the registry, bookkeeping, and what deletes records and topics that are not needed any more."""
