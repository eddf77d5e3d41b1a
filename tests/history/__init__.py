"""The history of a run, and which promises of docs/delivery-guarantees.md it breaks."""
