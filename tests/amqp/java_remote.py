"""The objects of a JVM with Apache Qpid JMS, used from Python: ``java.new("...").method(...)`` runs over there.

Build and JVM are shared: Maven runs once for each state of the sources, one JVM serves all tests of a process.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

PROJECT = Path(__file__).parent / "java"
BUILD_SECONDS = 300


def missing_tool() -> str | None:
    """Return what there must be to run Java programs and is not; None: all of it is there."""
    return next((f"there is no {tool}" for tool in ("java", "javac", "mvn") if shutil.which(tool) is None), None)


def build(project: Path = PROJECT) -> str:
    """Return the class path of *project*, built by Maven outside of the checkout, once for each state of its files."""
    files = sorted(path for path in project.rglob("*") if path.is_file() and "target" not in path.parts)
    state = hashlib.sha256(b"".join(path.name.encode() + path.read_bytes() for path in files)).hexdigest()[:16]
    place = Path(os.environ.get("KJMS_CACHE") or Path(tempfile.gettempdir()) / f"kjms-java-{os.getuid()}")
    done = place / f"{project.name}-{state}"
    if not done.exists():
        place.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f"{project.name}-", dir=place))
        shutil.copytree(project, work, dirs_exist_ok=True, ignore=shutil.ignore_patterns("target"))
        run = subprocess.run(
            ["mvn", "-q", "-B", "package"], cwd=work, capture_output=True, text=True, timeout=BUILD_SECONDS, check=False
        )
        assert run.returncode == 0, f"Maven failed:\n{run.stdout[-4000:]}{run.stderr[-2000:]}"
        with contextlib.suppress(OSError):  # another process was faster
            work.rename(done)
        shutil.rmtree(work, ignore_errors=True)
    return os.pathsep.join([str(done / "target" / "classes"), str(done / "target" / "dependency" / "*")])


class JavaError(Exception):
    """A Java exception: the class's name and its message."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(f"{name}: {text}")
        self.name = name.rpartition(".")[2]
        self.text = text


class Typed(NamedTuple):
    """A value of a Java type that Python's types do not name: ``Typed("short", 5)``."""

    kind: str
    value: Any


class JavaObject:
    """An object of the JVM; its methods are called as its own are."""

    def __init__(self, java: Java, number: int, class_name: str) -> None:
        self._java = java
        self._number = number
        self.class_name = class_name.rpartition(".")[2]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *arguments: self._java.ask(arguments, on=self._number, call=name)

    def __del__(self) -> None:
        self._java.dropped.append(self._number)

    def __repr__(self) -> str:
        return f"<{self.class_name} {self._number}>"


class Java:
    """A JVM that runs kjms.Remote.

    Args:
        options: Those of the JVM; the usual ones start soon.
    """

    def __init__(self, options: Sequence[str] = ("-XX:TieredStopAtLevel=1", "-Xmx256m")) -> None:
        self.dropped: list[int] = []  # objects that nobody here knows any more
        self._process = subprocess.Popen(
            ["java", *options, "-cp", build(), "kjms.Remote"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={name: value for name, value in os.environ.items() if name != "JAVA_TOOL_OPTIONS"},
        )

    def close(self) -> None:
        """End it."""
        self._process.communicate()

    def new(self, name: str, *arguments: Any) -> Any:
        """Return a new object of the class *name*."""
        return self.ask(arguments, new=name)

    def static(self, name: str, method: str, *arguments: Any) -> Any:
        """Return what a static method of the class *name* returns."""
        return self.ask(arguments, static=name, call=method)

    def ask(self, arguments: Sequence[Any], **question: Any) -> Any:
        """Ask, and return the answer in Python's types."""
        answer = self._answer(arguments, question)
        return None if answer is None else answer[1]

    def typed(self, target: JavaObject, method: str, *arguments: Any) -> tuple[str, Any] | None:
        """Return what a method returns, with the name of its Java type; None is Java's null."""
        return self._answer(arguments, {"on": target._number, "call": method})

    def _answer(self, arguments: Sequence[Any], question: dict[str, Any]) -> tuple[str, Any] | None:
        question["arguments"] = [_written(argument) for argument in arguments]
        question["dropped"], self.dropped = self.dropped, []
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        if "error" in answer:
            raise JavaError(answer["error"], answer["text"])
        value = answer.get("value")
        return None if value is None else (next(iter(value)), self._read(value))

    def _read(self, value: Any) -> Any:
        if value is None:
            return None
        kind, content = next(iter(value.items()))
        if kind == "object":
            return JavaObject(self, content, value["class"])
        if kind == "items":
            return [self._read(item) for item in content]
        if kind == "float":  # the nearest of 32 bits
            return struct.unpack("f", struct.pack("f", float(content)))[0]
        if kind == "double":
            return float(content)
        return base64.b64decode(content) if kind == "bytes" else content


def _written(value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, JavaObject):
        return {"object": value._number}
    if isinstance(value, Typed):
        kind, value = value
    else:
        kind = {bool: "boolean", int: "int", float: "double", str: "string", bytes: "bytes"}[type(value)]
    if kind == "bytes":
        value = base64.b64encode(value).decode()
    return {kind: str(value) if kind in {"float", "double"} else value}
