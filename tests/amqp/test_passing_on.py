"""Messages of AMQP programs without JMS, through the gateway and Kafka: the receiver gets what the sender sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from amqp_peer import Peer

from kjms.mapping.amqp import AmqpMessage
from kjms.mapping.amqp.sections import DATA, VALUE, Body, Properties

if TYPE_CHECKING:
    from gateway_thread import RunningGateway


@pytest.mark.requirement("AMQP-3.1-3")
@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_properties_and_body_pass_unchanged(gateway: RunningGateway, kjms_destination_name: str, kind: str) -> None:
    """Address, user, content type and body of messages arrive as they were sent, whatever the link's address is."""
    from proton import symbol

    known: dict[str, Any] = {"message_id": "1", "creation_time": 1_700_000_000_000}
    sent = [
        AmqpMessage(properties=Properties(**known, to="elsewhere"), body=Body(VALUE, ["x"])),
        AmqpMessage(properties=Properties(**known), body=Body(VALUE, [b"x"])),
        AmqpMessage(properties=Properties(**known, to=kjms_destination_name), body=Body(DATA, [b"x"])),
        AmqpMessage(properties=Properties(**known, user_id=b"\xff\xfe"), body=Body(DATA, [b"x"])),
        AmqpMessage(properties=Properties(**known, content_type="text/plain"), body=Body(VALUE, ["x"])),
        AmqpMessage(properties=Properties(**known, content_type="application/octet-stream"), body=Body(VALUE, ["x"])),
    ]
    with Peer(gateway.port, kjms_destination_name) as peer:
        receiver = peer.session.receiver("receiver")
        receiver.source.address = kjms_destination_name
        receiver.source.capabilities.put_object([symbol(kind)])
        receiver.open()
        receiver.flow(len(sent))
        sender = peer.session.sender("sender")
        sender.target.address = kjms_destination_name
        sender.target.capabilities.put_object([symbol(kind)])
        sender.open()
        peer.wait(lambda: sender.credit >= len(sent) and receiver.remote_source.address)
        for number, message in enumerate(sent):
            sender.delivery(str(number))
            sender.send(message.encode())
            sender.advance()
        found: list[AmqpMessage] = []

        def are_there() -> bool:
            while (delivery := receiver.current) is not None and delivery.readable and not delivery.partial:
                found.append(AmqpMessage.decode(bytes(receiver.recv(delivery.pending))))
                receiver.advance()
            return len(found) == len(sent)

        peer.wait(are_there)
    assert [each.properties for each in found] == [each.properties for each in sent]
    assert [(each.body.kind, each.body.values) for each in found] == [
        (b.kind, b.values) for b in (m.body for m in sent)
    ]
