"""An AMQP 1.0 server in front of kjms: Java programs with Apache Qpid JMS meet the same queues and topics (docs/gateway.md).

Needs the extra ``amqp``.
"""

from kjms.gateway._options import GatewayOptions
from kjms.gateway._server import Gateway
from kjms.gateway._users import hashed

__all__ = ["Gateway", "GatewayOptions", "hashed"]
