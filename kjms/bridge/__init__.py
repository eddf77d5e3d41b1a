"""Bridges to other brokers: an AMQP 1.0 client that moves queues and follows topics, either way."""

from __future__ import annotations

from kjms._require import required
from kjms.bridge._options import BridgeOptions, PeerOptions

with required("kjms.bridge", "amqp"):
    from kjms.bridge._bridge import Bridge, Progress
    from kjms.bridge._inward import BridgeIn
    from kjms.bridge._outward import BridgeOut

__all__ = ["Bridge", "BridgeIn", "BridgeOptions", "BridgeOut", "PeerOptions", "Progress"]
