"""The commands: arguments on one side, the JMS API on the other.

Each command is a module of its own with ``DESCRIPTION``, perhaps ``EXAMPLES``, ``add_arguments(parser)`` and
``run(arguments) -> exit code``. Only the one that was asked for is loaded, so that ``kjms --help`` answers at once.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import logging
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from typing import Any, Final, NoReturn

from kjms._version import __version__
from kjms.cli._terminal import shown_body
from kjms.errors import JMSException, hint

__all__ = ["COMMANDS", "WrongUse", "main"]

COMMANDS: Final = {
    "broker": "run a real Kafka on this machine, for development and tests",
    "demo": "run a small shop on a real Kafka: queues, topics, and plain Kafka programs",
    "send": "send arguments, or the lines of the standard input, as messages",
    "receive": "receive messages and write each as a line",
    "browse": "show the messages of a queue without receiving them",
    "queues": "list, create and delete queues; delete, move, copy and find their messages",
    "topics": "create and delete topics",
    "dlq": "list, show, retry or purge dead letters",
    "schedule": "list, cancel or deliver delayed messages, and define periodic ones",
    "destinations": "list queues and topics, and count waiting messages",
    "gateway": "serve AMQP 1.0 clients, such as Java programs with Qpid JMS",
    "bridge": "move messages between kjms and another broker, such as ActiveMQ",
    "worker": "run functions that consume messages, in several processes",
    "exporter": "serve Prometheus metrics of all queues and subscriptions of a cluster",
    "console": "serve a web page, and a JSON API, to see and steer queues and messages",
    "ping": "ask a cluster whether it is there, and whether it has what kjms needs",
    "doctor": "find what faults have left in a cluster, and repair it",
    "health": "ask a running worker, gateway, bridge, console or exporter whether it is alive or ready",
    "subscriptions": "list subscriptions and their backlog, or delete one",
    "consumers": "list the programs that consume queues and subscriptions",
    "top": "watch the queues, the busiest first",
    "config": "show or check the settings of a configuration file and the environment",
    "bench": "measure the speed of kjms on a cluster, compared with its Kafka client",
    "spark": "archive, replay, route, convert or report on messages, with Spark",
}

FAILED: Final = 1
WRONG_USE: Final = 2
SIGNALLED: Final = 128  # what shells add the signal's number to
EXPECTED: Final = (JMSException, OSError, ValueError)  # their texts say what went wrong; others are faults


class WrongUse(Exception):
    """The arguments make no sense together; the text says why."""


class Terminated(BaseException):
    """SIGTERM came; like KeyboardInterrupt it unwinds everything, so that connections close."""


_came: list[KeyboardInterrupt | Terminated] = []
"""What `end` has raised since the command began."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    Args:
        argv: The command and its arguments; None: those of the process.

    Returns:
        0, also without a command, which prints the help; 1 when it failed (one line on stderr says why;
        ``KJMS_TRACEBACK=1`` shows where); 2 when it was called wrongly; 130 after Ctrl-C, 143 after SIGTERM.
    """
    given = list(sys.argv[1:] if argv is None else argv)
    if isinstance(sys.stdout, io.TextIOWrapper):  # a name that the terminal's encoding does not have is no failure
        sys.stdout.reconfigure(errors="backslashreplace")
    if not given:
        _parser(None).print_help()
        return 0
    try:
        command = _command(given)
        if command:  # options may stand before it
            given.insert(0, given.pop(command))
        if given[0] not in COMMANDS and not given[0].startswith("-"):
            print(f"kjms: there is no command {given[0]!r}{hint(given[0], COMMANDS)}", file=sys.stderr)
            return WRONG_USE
        arguments = _parser(given[0] if given else None).parse_args(given)
    except SystemExit as end:  # argparse has said what is wrong, or printed what was asked for
        return int(end.code or 0)
    return _run(arguments)


def _command(given: Sequence[str]) -> int:
    """Return where the command is: after its options, as in ``--bootstrap host:9092 queues``; 0 where none is found."""
    for place, name in enumerate(given):
        if name in {"--", "-h", "--help", "--version"}:  # what is asked for, or an argument that is no option
            break
        if name in COMMANDS:
            own = _CommandParser(add_help=False, allow_abbrev=False)
            _module(name).add_arguments(own)
            before = own._option_string_actions.get(given[place - 1]) if place else None
            if before is None or before.nargs == 0:  # else it is that option's value
                return place
        elif place == 0 and not name.startswith("-"):
            break
    return 0


def _parser(command: str | None) -> argparse.ArgumentParser:
    """Return the parser: complete for *command*, with one line for each of the others."""
    parser = argparse.ArgumentParser(
        prog="kjms",
        description="JMS on plain Kafka.",
        epilog="'kjms COMMAND --help' describes a command and all its options.",
        formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=32, width=100),
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"kjms {__version__}")
    subparsers = parser.add_subparsers(
        dest="command", metavar="COMMAND", title="commands", required=True, parser_class=_CommandParser
    )
    for name, summary in COMMANDS.items():
        if name == command:
            module = _module(name)
            own = subparsers.add_parser(
                name,
                help=summary,
                description=module.DESCRIPTION,
                epilog=getattr(module, "EXAMPLES", None),
                formatter_class=argparse.RawDescriptionHelpFormatter,
                allow_abbrev=False,
            )
            module.add_arguments(own)
        else:
            subparsers.add_parser(name, help=summary)
    return parser


class _CommandParser(argparse.ArgumentParser):
    """Takes options before, between and after the other arguments: ``send orders --priority 7 "ten pens"``.

    It refuses itself what it does not know, so that its own usage is shown.
    """

    _is_inside = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse as ``parse_known_intermixed_args`` does; that calls this one again, for its parts."""
        if self._is_inside:
            return super().parse_known_args(args, namespace)
        self._is_inside = True
        try:
            found, unknown = self.parse_known_intermixed_args(args, namespace)
        finally:
            self._is_inside = False
        if unknown:
            options = [each for each in self._option_string_actions if each.startswith("--")]
            wrong = [each.partition("=")[0] for each in unknown if each.startswith("--")]
            near = [meant for each in wrong if "did you mean" in (meant := hint(each, options))]
            self.error(f"unrecognized arguments: {' '.join(unknown)}{''.join(near[:1])}")
        return found, unknown


def _module(command: str) -> Any:
    return importlib.import_module(f"kjms.cli._{command}")


def _run(arguments: argparse.Namespace) -> int:
    """Run the command, and say in one line what went wrong."""
    # Commands report through exit code and stderr themselves; the library's log would say it a second time.
    logging.getLogger("kjms").addHandler(logging.NullHandler())
    before = signal.signal(signal.SIGTERM, end)
    _came.clear()
    is_json = False
    with contextlib.ExitStack() as log:
        try:
            if hasattr(arguments, "log_format"):  # a command that runs for long has a log
                logs = _module("logs")
                log.enter_context(logs.logging_as(arguments))
                is_json = logs.is_json(arguments)
            code = int(_module(arguments.command).run(arguments))
            sys.stdout.flush()
        except WrongUse as error:
            return _say(arguments.command, error, WRONG_USE, is_json=is_json)
        except BrokenPipeError:  # the reader of the output has enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        except (KeyboardInterrupt, Terminated) as ending:  # the first may stand for what a call of C forgot
            return _signalled(_came[-1] if _came else ending)
        except Exception as error:
            before_it = _ending_before(error) or _replaced(error)
            if before_it is not None:
                return _signalled(before_it)
            return _say(arguments.command, error, FAILED, is_json=is_json)
        finally:
            signal.signal(signal.SIGTERM, before)
    return code


def _ending_before(error: BaseException) -> KeyboardInterrupt | Terminated | None:
    """Return the signal that led to *error*, as where it came inside of a call of C, or while a lock was taken."""
    seen: BaseException | None = error
    while seen is not None and not isinstance(seen, KeyboardInterrupt | Terminated):
        seen = seen.__cause__ or seen.__context__
    return seen


def _replaced(error: Exception) -> KeyboardInterrupt | Terminated | None:
    """Return the signal that a call of C took for a failure of its own, and so put *error* in its place."""
    return _came[-1] if _came and not isinstance(error, EXPECTED) else None


def _signalled(ending: KeyboardInterrupt | Terminated) -> int:
    return SIGNALLED + (signal.SIGINT if isinstance(ending, KeyboardInterrupt) else signal.SIGTERM)


def end(number: int, frame: object = None) -> NoReturn:
    """End the command: the handler of SIGTERM, and what a command's own handlers end with.

    Raises:
        KeyboardInterrupt: The signal is SIGINT.
        Terminated: It is another one.
    """
    ending = KeyboardInterrupt() if number == signal.SIGINT else Terminated()
    _came.append(ending)
    raise ending


def _say(command: str, error: Exception, code: int, *, is_json: bool) -> int:
    is_traced = os.environ.get("KJMS_TRACEBACK") == "1"
    text = str(error) if isinstance(error, WrongUse) else " ".join(str(error).split())
    if not isinstance(error, (*EXPECTED, WrongUse)) or not text:
        text = f"{type(error).__name__}: {text} (KJMS_TRACEBACK=1 prints the traceback)"
    if is_json:
        logging.getLogger(f"kjms.{command}").error("%s", text, exc_info=error if is_traced else None)
        return code
    if is_traced:
        traceback.print_exception(error)
    print(f"kjms {command}: {shown_body(text)}", file=sys.stderr)  # a selector's error has lines of its own
    return code
