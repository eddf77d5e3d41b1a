"""Order from the Java shop in Python, with the same queue, map message and temporary queue as the Java client."""

import sys

from kjms import ConnectionFactory, MapMessage, Queue


def main(article: str, pieces: int, bootstrap_servers: str = "localhost:9092") -> None:
    """Order this number of pieces of the article and print the shop's answer."""
    with ConnectionFactory(bootstrap_servers).create_context() as context:
        answers = context.create_temporary_queue()
        order = MapMessage({"article": article, "pieces": pieces})
        order.properties["size"] = "small" if pieces < 100 else "large"
        order.jms_reply_to = answers
        context.create_producer().send(Queue("orders"), order)
        print(context.create_consumer(answers).receive_body(str, 20_000) or "no answer")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])
