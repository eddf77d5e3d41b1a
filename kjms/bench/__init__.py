"""How fast kjms is beside the Kafka client that it stands on; ``kjms bench`` runs it, docs/performance.md explains it.

A module of this package whose name has no underscore in front holds workloads, and the runner finds it by itself.
"""
