"""A Kafka at hand for development and tests."""
from kjms.broker._local import LocalBroker
__all__ = ["LocalBroker"]
