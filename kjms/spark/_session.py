"""A Spark session with the connectors that match the installed pyspark."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from kjms.errors import JMSException
from kjms.spark._require import packages, require_avro, require_kafka, require_pyspark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["spark_session"]

PACKAGES: Final = "spark.jars.packages"
JARS: Final = "spark.jars"


def spark_session(app_name: str = "kjms", **config: Any) -> SparkSession:
    """Return a Spark session that can read and write Kafka and Avro; one that is there already is used.

    The connectors are those of the installed pyspark's version. Spark's own Ivy fetches them from Maven Central once,
    or takes them from the local Maven repository or its cache (``~/.ivy2.5.2``); where they are then is kept in
    kjms's cache, so that later sessions start at once, and offline. Under ``spark-submit --packages`` nothing is
    fetched here.

    Args:
        app_name: What Spark calls the program.
        **config: Spark's settings, with two underscores for a dot where they are not passed as a dict with ``**``:
            ``spark_session(**{"spark.sql.shuffle.partitions": 4})``, ``spark_session(master="local[2]")``.

    Raises:
        JMSException: There is no pyspark, or one of another version; no Java; the connectors can neither be found nor
            fetched; or the session that is there already lacks them. The text says what to do.
    """
    version = require_pyspark()
    from pyspark.sql import SparkSession

    settings = {name.replace("__", "."): _text(value) for name, value in config.items()}
    session = SparkSession.getActiveSession()
    if session is None:
        _require_java()
        builder = SparkSession.builder.appName(app_name)
        master = settings.pop("master", None)
        if master is not None:
            builder = builder.master(master)
        known = _known_jars(version)
        key, wanted = (JARS, known) if known else (PACKAGES, packages(version))
        settings[key] = ",".join([*filter(None, settings.get(key, "").split(",")), *wanted])
        for name, value in settings.items():
            builder = builder.config(name, value)
        try:
            session = builder.getOrCreate()
        except Exception as error:
            raise JMSException(
                f"Spark {version} does not start with {', '.join(packages(version))}: {_reason(error)}. The connectors"
                " come from Maven Central, once; without a network they must be in Ivy's cache or the local Maven"
                " repository"
            ) from error
        if not known and not settings.get(JARS) and settings[PACKAGES] == ",".join(packages(version)):
            _keep_jars(version, session.sparkContext.getConf().get(JARS, ""))
    require_kafka(session)
    require_avro(session)
    return session


def _cache(version: str) -> Path:
    from platformdirs import user_cache_path

    root = os.environ.get("KJMS_CACHE_DIR") or str(user_cache_path("kjms"))
    return Path(root).absolute() / f"spark-{version}-jars.txt"


def _known_jars(version: str) -> list[str]:
    """Return the connectors' files as Ivy found them last; none if one is gone."""
    try:
        jars = _cache(version).read_text("utf-8").split("\n")
    except OSError:
        return []
    return jars if all(map(os.path.isfile, jars)) else []


def _keep_jars(version: str, jars: str) -> None:
    paths = [unquote(urlsplit(jar).path) for jar in jars.split(",")]
    if not all(map(os.path.isfile, paths)):
        return  # on a cluster they may be anywhere
    try:
        _cache(version).parent.mkdir(parents=True, exist_ok=True)
        _cache(version).write_text("\n".join(paths), "utf-8")
    except OSError:
        pass  # the next session asks Ivy again


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _reason(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def _require_java() -> None:
    """Raise what is to be done where Spark finds no Java."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if java is None:
        raise JMSException("Spark needs Java 17 or later: JAVA_HOME is not set, and there is no java on the PATH")
    try:
        subprocess.run([java, "-version"], capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise JMSException(f"Spark needs Java 17 or later, and {java} does not run: {error}") from error
