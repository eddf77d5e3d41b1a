"""A Spark session with the connectors that match the installed pyspark."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from kjms.checking import checked
from kjms.errors import JMSException
from kjms.file_lock import alone_in
from kjms.spark._require import (
    packages,
    require_avro,
    require_format,
    require_kafka,
    require_pyspark,
    table_settings,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["spark_session"]

PACKAGES: Final = "spark.jars.packages"
JARS: Final = "spark.jars"
EXTENSIONS: Final = "spark.sql.extensions"
LOCAL_JARS: Final = "KJMS_SPARK_JARS"
_NEEDED: Final = ("spark-token-provider-kafka-0-10", "kafka-clients", "commons-pool2")
"""What the connectors need beside what pyspark has."""


@checked
def spark_session(
    app_name: str = "kjms",
    *,
    formats: Collection[str] = (),
    jars: str | os.PathLike[str] | None = None,
    **config: Any,
) -> SparkSession:
    """Return a Spark session that can read and write Kafka and Avro; one that is there already is used.

    The connectors are those of the installed pyspark's version. Spark's own Ivy fetches them from Maven Central once,
    or takes them from the local Maven repository or its cache (``~/.ivy2.5.2``); where they are then is kept in
    kjms's cache, so that later sessions start at once, and offline. Of programs that start at the same time, one
    fetches and the others wait for it. Under ``spark-submit --packages`` nothing is fetched here.

    Args:
        app_name: What Spark calls the program.
        formats: The formats of tables that the program uses beside Spark's own: ``delta``, ``iceberg``. The session
            gets their connectors and SQL extensions; with ``delta``, the session's catalog is Delta's.
        jars: A directory with the connectors and what they need, for machines without a network; all its ``.jar`` files
            are used. None: the one that the environment variable KJMS_SPARK_JARS names, if any.
        **config: Spark's settings, with two underscores for a dot where they are not passed as a dict with ``**``:
            ``spark_session(**{"spark.sql.shuffle.partitions": 4})``, ``spark_session(master="local[2]")``. ``remote``,
            such as ``sc://host:15002``, makes a session of Spark Connect; its server must have the connectors.

    Raises:
        JMSException: There is no pyspark, or one of another version; no Java; the connectors can neither be found nor
            fetched, or *jars* lacks some of them; or the session that is there already lacks them. The text says what
            to do.
        ValueError: There is no such format.
    """
    version = require_pyspark()
    formats = sorted(formats)
    needed = packages(version, formats)
    from pyspark.sql import SparkSession

    settings = {name.replace("__", "."): _text(value) for name, value in config.items()}
    session = SparkSession.getActiveSession()
    if session is None:
        remote, master = settings.pop("remote", None), settings.pop("master", None)
        builder = SparkSession.builder.appName(app_name)
        if remote is not None and not remote.startswith("local"):
            session = builder.remote(remote).config(map=settings).getOrCreate()  # the server has its own connectors
    if session is None:
        _require_java()
        if remote is not None:
            builder = builder.remote(remote)
        elif master is not None:
            builder = builder.master(master)
        local = jars if jars is not None else os.environ.get(LOCAL_JARS)
        known = _local_jars(Path(local), needed) if local else _known_jars(version, formats)
        if known:
            session = _started(builder, version, formats, settings, known)
        else:  # two programs that fetch at the same time would damage each other's files in Ivy's cache
            with alone_in(_cache(version, formats).parent):
                known = _known_jars(version, formats)
                session = _started(builder, version, formats, settings, known)
                has_others = settings.get(JARS) or settings.get(PACKAGES)
                if not (known or has_others or remote is not None):
                    _keep_jars(version, formats, session.sparkContext.getConf().get(JARS, ""))
    require_kafka(session)
    require_avro(session)
    for name in formats:
        require_format(session, name)
    return session


def _started(
    builder: SparkSession.Builder,
    version: str,
    formats: Collection[str],
    settings: Mapping[str, str],
    known: Collection[str],
) -> SparkSession:
    """Return a new session with the connectors in the files *known*; without any, Spark's Ivy finds them.

    Raises:
        JMSException: Spark does not start.
    """
    needed = packages(version, formats)
    key, wanted = (JARS, known) if known else (PACKAGES, needed)
    for name, value in {**settings, **table_settings(formats, settings.get(EXTENSIONS))}.items():
        builder = builder.config(name, value)
    builder = builder.config(key, ",".join([*filter(None, settings.get(key, "").split(",")), *wanted]))
    try:
        return builder.getOrCreate()
    except Exception as error:
        raise JMSException(
            f"Spark {version} does not start with {', '.join(needed)}: {_reason(error)}. The connectors"
            " come from Maven Central, once; without a network they must be in Ivy's cache or the local Maven"
            " repository"
        ) from error


def _cache(version: str, formats: Collection[str]) -> Path:
    from platformdirs import user_cache_path

    root = os.environ.get("KJMS_CACHE_DIR") or str(user_cache_path("kjms"))
    return Path(root).absolute() / f"spark-{'-'.join([version, *formats])}-jars.txt"


def _local_jars(folder: Path, needed: Collection[str]) -> list[str]:
    """Return the files of connectors in *folder*, which must have the Maven artifacts *needed*.

    Raises:
        JMSException: Some are missing.
    """
    found = sorted(str(path) for path in folder.absolute().glob("*.jar"))
    names = [Path(path).name for path in found]
    wanted = [":".join(each.split(":")[1:]).replace(":", "-") + ".jar" for each in needed]
    missing = [each for each in wanted if not any(name.endswith(each) for name in names)]
    missing += [f"{each}-*.jar" for each in _NEEDED if not any(each in name for name in names)]
    if missing:
        raise JMSException(f"{folder} lacks {', '.join(missing)}: copy the connectors, and what they need, into it")
    return found


def _known_jars(version: str, formats: Collection[str]) -> list[str]:
    """Return the connectors' files as Ivy found them last; none if one is gone."""
    try:
        jars = _cache(version, formats).read_text("utf-8").split("\n")
    except OSError:
        return []
    return jars if all(map(os.path.isfile, jars)) else []


def _keep_jars(version: str, formats: Collection[str], jars: str) -> None:
    paths = [unquote(urlsplit(jar).path) for jar in jars.split(",")]
    if not all(map(os.path.isfile, paths)):
        return  # on a cluster they may be anywhere
    try:
        _cache(version, formats).write_text("\n".join(paths), "utf-8")
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
