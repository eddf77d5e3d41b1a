"""The settings of a Kafka for development: one source for the child process, the container and the compose file."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kjms.broker import LocalBroker
from kjms.broker._settings import CONTAINER_IMAGE, SHARED_SETTINGS, container_environment, properties_text

ROOT = Path(__file__).parents[3]
COMPOSE = ROOT / "docker" / "compose.yaml"


def unescaped(text: str) -> str:
    """What java.util.Properties makes of an escaped key or value."""
    units, position = [], 0
    while position < len(text):
        if text[position] != "\\":
            units.append(ord(text[position]))
            position += 1
        elif text[position + 1] == "u":
            units.append(int(text[position + 2 : position + 6], 16))
            position += 6
        else:
            units.append(ord({"n": "\n", "r": "\r", "t": "\t"}.get(text[position + 1], text[position + 1])))
            position += 2
    return b"".join(unit.to_bytes(2, "big") for unit in units).decode("utf-16-be")


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_any_value_survives_the_properties_file(value: str) -> None:
    """What is written is ASCII on one line, has no leading blank, and reads as it was."""
    line = properties_text({"key": value})
    assert line.isascii()
    assert line.startswith("key=")
    assert line.count("\n") == 1
    written = line.removeprefix("key=").removesuffix("\n")
    assert not written.startswith((" ", "\t", "\f"))
    assert unescaped(written) == value


def test_the_compose_file_has_the_embedded_brokers_settings() -> None:
    """Image and settings of the compose file are those that the package uses."""
    service = yaml.safe_load(COMPOSE.read_text("utf-8"))["services"]["kafka"]
    assert service["image"] == CONTAINER_IMAGE
    assert service["environment"] == container_environment("localhost", 9092)
    for key, value in SHARED_SETTINGS.items():
        assert service["environment"]["KAFKA_" + key.upper().replace(".", "_")] == value


def test_the_compose_file_is_reachable_from_this_machine_only_and_keeps_its_data() -> None:
    """The port is published on the loopback address, the data lies in a named volume, and there is a health check."""
    compose = yaml.safe_load(COMPOSE.read_text("utf-8"))
    service = compose["services"]["kafka"]
    assert service["ports"] == ["127.0.0.1:9092:9092"]
    (volume,) = service["volumes"]
    name, place = volume.split(":")
    assert name in compose["volumes"]
    assert place == service["environment"]["KAFKA_LOG_DIRS"]
    assert service["healthcheck"]["test"][0] == "CMD"


def test_the_compose_file_is_valid_for_docker() -> None:
    """``docker compose config`` accepts the file, where there is a docker compose."""
    docker = shutil.which("docker")
    if docker is None or subprocess.run([docker, "compose", "version"], capture_output=True, check=False).returncode:
        pytest.skip("no docker compose here")
    subprocess.run([docker, "compose", "-f", str(COMPOSE), "config", "--quiet"], check=True)


def test_the_environment_reads_back_as_the_settings() -> None:
    """The image turns KAFKA_A_B into a.b; no setting has another character than dots between its words."""
    environment = container_environment("example", 1234)
    settings = {key.replace("KAFKA_", "").lower().replace("_", "."): value for key, value in environment.items()}
    assert SHARED_SETTINGS.items() <= settings.items()


@pytest.mark.parametrize("key", ["log.dirs", "node.id", "controller.quorum.voters"])
def test_settings_of_the_brokers_own_are_refused(key: str) -> None:
    """A setting that LocalBroker depends on is refused by name, before anything starts."""
    with pytest.raises(ValueError, match=key.replace(".", r"\.")):
        LocalBroker(config={key: "x"})


def test_a_setting_is_text() -> None:
    """A number where Kafka wants text is refused with its type."""
    with pytest.raises(TypeError, match=r"'message\.max\.bytes'.*1000 \(int\)"):
        LocalBroker(config={"message.max.bytes": 1000})  # type: ignore[dict-item]


def test_a_comma_in_the_data_directory_is_refused(tmp_path: Path) -> None:
    """Kafka would read it as two directories."""
    with pytest.raises(ValueError, match="comma"):
        LocalBroker(data_dir=tmp_path / "a,b")
