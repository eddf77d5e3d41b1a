"""Send a periodic message: a cron expression says when."""

from kjms import ConnectionFactory, Queue
from kjms.broker import find_broker
from kjms.schedule import Schedules

clock = Queue("examples.clock")

with find_broker() as broker:
    factory = ConnectionFactory(broker.bootstrap_servers)
    with factory.create_context() as context, Schedules(factory) as schedules:
        consumer = context.create_consumer(clock)
        schedules.add("tick", clock, "tick", cron="* * * * * *")  # every second

        first, second = consumer.receive(10_000), consumer.receive(10_000)
        times = [message.get_long_property("JMS_kjms_ScheduledTime") for message in (first, second)]
        print(first.text, "and", second.text, times[1] - times[0], "ms later")

        schedules.remove("tick", clock)
