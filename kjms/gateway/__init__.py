"""An AMQP 1.0 server in front of kjms: Java programs with Apache Qpid JMS meet the same queues and topics.

Needs the extra ``amqp``. docs/gateway.md describes how to run it and what it does.
"""

from kjms._require import required
from kjms.gateway._options import GatewayOptions
from kjms.users import add_user, hashed

with required("kjms.gateway", "amqp"):
    from kjms.gateway._server import Gateway

__all__ = ["Gateway", "GatewayOptions", "add_user", "hashed"]
