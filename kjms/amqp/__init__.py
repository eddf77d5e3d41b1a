"""AMQP 1.0 over asyncio, for the gateway and the bridge."""
