"""What a Spark session of ours is given, and what is said when there can be none."""

import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from barnabas.pipeline.cli import Jobs, spark_session
from barnabas.pipeline.session import MissingSpark, connector_jars, feature_release, find_java, import_path


@pytest.mark.parametrize(
    ("said", "release"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment', 17),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ("The operation couldn't be completed. Unable to locate a Java Runtime.", 0),
    ],
)
def test_the_release_of_a_java_is_read_from_what_it_says(said, release):
    assert feature_release(said) == release


def test_a_directory_of_jars_stands_for_the_jars_in_it(tmp_path):
    for name in ("b.jar", "a.jar", "notes.txt"):
        (tmp_path / name).touch()
    assert connector_jars([str(tmp_path), "c.jar"]) == [str(tmp_path / "a.jar"), str(tmp_path / "b.jar"), "c.jar"]


def test_jars_that_are_named_go_before_those_of_the_environment(monkeypatch):
    monkeypatch.setenv("BARNABAS_SPARK_JARS", "one.jar,two.jar")
    assert connector_jars(None) == ["one.jar", "two.jar"]
    assert connector_jars(["three.jar"]) == ["three.jar"]


def test_a_directory_without_jars_is_named(tmp_path):
    with pytest.raises(MissingSpark, match=f"no jars in {tmp_path}"):
        connector_jars([str(tmp_path)])


def test_java_is_taken_from_java_home_where_it_is_set(monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert find_java() is None
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").touch(mode=0o755)
    assert find_java() == str(tmp_path / "bin" / "java")


def test_workers_find_the_package_where_the_driver_has_it():
    found = [sys.executable, "-S", "-c", "import barnabas; print(barnabas.__file__)"]
    ran = subprocess.run(found, env={"PYTHONPATH": import_path()}, capture_output=True, text=True, check=True)
    assert ran.stdout.startswith(import_path())


def test_a_command_without_spark_ends_with_status_2_and_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))  # there is no java in it

    @click.command()
    def job():
        with spark_session("job", "local[1]", (), "1g"):
            raise AssertionError("there is no Spark")

    ran = CliRunner().invoke(Jobs(commands={"job": job}), ["job"])
    assert ran.exit_code == 2
    assert "pip install '.[spark]' in a clone of Barnabas, and Java 17 or newer" in ran.stderr


def test_help_costs_no_spark():
    code = "import sys; from barnabas.pipeline.cli import pipeline; pipeline(['--help'], standalone_mode=False); "
    loaded = subprocess.run(
        [sys.executable, "-c", code + "print(*sys.modules)"], capture_output=True, text=True, check=True
    ).stdout
    assert "Apache Spark" in loaded
    assert not {"pyspark", "pyarrow", "confluent_kafka", "rich", "trio"} & set(loaded.split())


def test_an_unknown_name_of_the_package_is_an_attribute_error():
    import barnabas.pipeline

    with pytest.raises(AttributeError, match="no attribute 'archives'"):
        _ = barnabas.pipeline.archives


def test_every_public_name_is_there_or_says_what_to_install():
    import barnabas.pipeline

    for name in barnabas.pipeline.__all__:
        try:
            assert getattr(barnabas.pipeline, name).__name__ == name
        except MissingSpark as error:
            assert "pip install '.[spark]'" in str(error)
