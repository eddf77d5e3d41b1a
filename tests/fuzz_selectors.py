"""The chore that throws damaged selectors at the parser: each must be a selector or a syntax error, and nothing else.

    python tests/fuzz_selectors.py [COUNT] [--seed SEED]

What is accepted is compiled, asked about messages in both ways, written, and read again. The exit code is 0, or 1 with
the first text that made something else happen; the same seed makes the same texts.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from selector_cases import SELECTOR_CASES, MappingMessage

from kjms.identifiers import RESERVED_WORDS
from kjms.selector import SelectorSyntaxException, parse_selector

TEXTS = sorted({text for text, _, _ in SELECTOR_CASES if len(text) < 200})
TOKENS = [
    *sorted(RESERVED_WORDS),
    *["(", ")", "+", "-", "*", "/", ",", "=", "<>", "<", "<=", ">", ">=", "'", ".", "!", '"', "%", "_", "\\", ";"],
    *["a", "b", "flag", "JMSType", "JMSReplyTo", "JMSXGroupID", "'x'", "'a%'", "'it''s'", "''", "'!'"],
    *[
        "0",
        "1",
        "-1",
        "0x1F",
        "017",
        "08",
        "1L",
        "1.5f",
        "1e3",
        ".5",
        "5.",
        "9223372036854775808",
        "1e400",
        "0b1",
        "1_0",
    ],
    *["\n", "\t", "\x00", "\xa0", "é", "😀", "\ud800", "\u2028", "²", "ı"],
]
MESSAGES = [
    MappingMessage({}),
    MappingMessage({"a": 1, "b": "x", "flag": True, "s": "abc", "n": 2**31 - 1, "d": 0.5}),
    MappingMessage({"a": "it's", "b": ("float", 0.5), "flag": 0, "s": 1, "n": 2**63 - 1, "d": float("nan")}),
]


def damaged(text: str, chance: random.Random) -> str:
    """Return *text* with a few places cut out, doubled, exchanged or filled with something else."""
    for _ in range(chance.randint(1, 4)):
        start = chance.randint(0, len(text))
        end = min(len(text), start + chance.randint(0, 6))
        piece = text[start:end]
        other = chance.choice(TOKENS) if chance.random() < 0.7 else chr(chance.choice([chance.randrange(128), 0x20AC]))
        text = text[:start] + chance.choice(["", other, piece + piece, f" {other} ", piece[::-1]]) + text[end:]
    return text


def made(chance: random.Random) -> str:
    """Return a text that may be a selector."""
    match chance.randrange(8):
        case 0:
            return " ".join(chance.choices(TOKENS, k=chance.randint(1, 14)))
        case 1:
            return "".join(chance.choices(TOKENS, k=chance.randint(1, 14)))
        case 2:
            return "".join(chr(chance.randrange(0x250)) for _ in range(chance.randint(1, 30)))
        case 3:
            joined = f" {chance.choice(['AND', 'OR', '+', '=', 'AND NOT'])} "
            return joined.join(f"({text})" for text in chance.choices(TEXTS, k=chance.randint(2, 5)))
        case 4:
            depth = chance.randint(1, 150)
            opening = chance.choice(["(", "NOT ", "-", "NOT (", "a = 1 OR (", "1 + ("])
            return opening * depth + chance.choice(TEXTS) + ")" * (depth if "(" in opening else 0)
        case _:
            return damaged(chance.choice(TEXTS), chance)


def tried(text: str) -> bool:
    """Tell whether *text* is a selector; raise what must not happen."""
    try:
        selector = parse_selector(text)
    except SelectorSyntaxException as error:
        if len(str(error).splitlines()) != 3:
            raise AssertionError("the error does not show its place") from error
        return False
    if selector is None:
        return False
    if parse_selector(str(selector)) != selector:
        raise AssertionError(f"{selector} is read as another selector")
    for message in MESSAGES:
        message.asked.clear()
        message.types_asked.clear()
        if selector.matches(message) is not (selector.evaluate(message) is True):
            raise AssertionError("matches and evaluate do not agree")
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description="Throw damaged selectors at the parser.")
    parser.add_argument("count", type=int, nargs="?", default=1_000_000, help="how many (1000000)")
    parser.add_argument("--seed", type=int, default=1, help="which ones (1)")
    options = parser.parse_args()
    chance = random.Random(options.seed)
    accepted, slowest, slowest_text = 0, 0.0, ""
    begin = time.perf_counter()
    for number in range(options.count):
        text = made(chance)
        start = time.perf_counter()
        try:
            accepted += tried(text)
        except Exception as error:
            print(f"text {number} of seed {options.seed}: {text!r}\n{type(error).__name__}: {error}", file=sys.stderr)
            return 1
        took = time.perf_counter() - start
        if took > slowest:
            slowest, slowest_text = took, text
    seconds = time.perf_counter() - begin
    print(f"{options.count} texts in {seconds:.0f} s: {accepted} selectors, {options.count - accepted} syntax errors")
    print(f"the slowest took {slowest * 1000:.0f} ms: {slowest_text[:80]!r}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
