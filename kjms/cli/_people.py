"""The options of commands that admit people by a users file or by Kafka, and ``--add-user``."""

from __future__ import annotations

import argparse
import getpass
import os
import sys
from pathlib import Path

from kjms.cli import WrongUse
from kjms.cli._connecting import PASSWORD_VARIABLE
from kjms.users import add_user, hashed

__all__ = ["add_people_options", "store_user"]


def add_people_options(parser: argparse._ActionsContainer) -> None:
    """Give *parser*, or a group of it, ``--users``, ``--pass-credentials`` and ``--add-user``."""
    parser.add_argument(
        "--users", metavar="FILE", type=Path, help="admit the users in this file, with a password; see --add-user"
    )
    parser.add_argument(
        "--pass-credentials",
        action="store_true",
        help="admit Kafka's users, with a password; Kafka's ACLs apply to each",
    )
    parser.add_argument(
        "--add-user",
        metavar="NAME",
        help="add this user to the --users file, or change the password, and exit; ask for the password unless"
        f" {PASSWORD_VARIABLE} holds it; without --users, print the line for the file",
    )


def store_user(arguments: argparse.Namespace, role: str | None, changed: str) -> int:
    """Do what ``--add-user`` says; return the exit code.

    Args:
        arguments: Those of `add_people_options`.
        role: The user's role; None: as it was, or none.
        changed: What is said of a user that was there.

    Raises:
        WrongUse: The name, the password or the file is wrong.
    """
    password = os.environ.get(PASSWORD_VARIABLE) or getpass.getpass(f"Password of {arguments.add_user}: ")
    try:
        if arguments.users is None:
            print(hashed(arguments.add_user, password, role or ""))
        else:
            was_there = add_user(arguments.users, arguments.add_user, password, role)
            print(f"{arguments.add_user}: {changed if was_there else 'added'}", file=sys.stderr)
    except ValueError as error:
        raise WrongUse(str(error)) from error
    return 0
