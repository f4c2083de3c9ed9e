"""Config providers: where values are taken from, what is allowed, and what is refused."""

import pytest

from barnabas.config.parse import ConfigError, Setting, settings_of
from barnabas.config.providers import resolve

PACKAGE = "org.apache.kafka.common.config.provider"
ENVIRONMENT = {"CASTLE_SECRET": "sortini", "PATH": "/bin"}


def providers(**parameters: str) -> dict[str, str]:
    """The properties of all three providers."""
    texts = {
        "config.providers": "file, dir,env",
        "config.providers.file.class": f"{PACKAGE}.FileConfigProvider",
        "config.providers.dir.class": f"{PACKAGE}.DirectoryConfigProvider",
        "config.providers.env.class": f"{PACKAGE}.EnvVarConfigProvider",
    }
    return texts | {f"config.providers.{name.replace('_', '.', 1)}": text for name, text in parameters.items()}


def resolved(text: str, **parameters: str) -> str:
    texts = providers(**parameters) | {"ssl.key.password": text}
    (setting,) = resolve(settings_of(texts, "server.properties:7"), ENVIRONMENT)
    assert setting.name == "ssl.key.password"
    return setting.text


def refusal_of(text: str, **parameters: str) -> str:
    with pytest.raises(ConfigError) as refused:
        resolved(text, **parameters)
    return str(refused.value)


@pytest.fixture
def secrets(tmp_path):
    (tmp_path / "secrets.properties").write_text("klamm.password = so\\u0072tini\nempty=\n")
    (tmp_path / "password").write_text("sortini\n")
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "password").write_text("frieda")
    return tmp_path


def test_values_come_from_files_directories_and_the_environment(secrets):
    assert resolved(f"${{file:{secrets}/secrets.properties:klamm.password}}") == "sortini"
    assert resolved(f"${{file:{secrets}/secrets.properties:empty}}") == ""
    assert resolved(f"${{dir:{secrets}:password}}") == "sortini\n"
    assert resolved("${env:CASTLE_SECRET}") == resolved("${env::CASTLE_SECRET}") == "sortini"
    assert resolved(f"a ${{env:CASTLE_SECRET}} b ${{dir:{secrets}/inner:password}} c") == "a sortini b frieda c"


def test_without_providers_and_with_other_names_everything_is_text():
    settings = settings_of({"a": "${env:CASTLE_SECRET}"})
    assert resolve(settings, ENVIRONMENT) == settings
    for text in ("${vault:a:b}", "${env}", "$env:CASTLE_SECRET", "${", "${env:CASTLE_SECRET"):
        assert resolved(text) == text


def test_what_a_provider_gives_is_not_resolved_again(secrets):
    (secrets / "again").write_text("${env:CASTLE_SECRET}")
    assert resolved(f"${{dir:{secrets}:again}}") == "${env:CASTLE_SECRET}"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("${file:FOLDER/secrets.properties:frieda}", "there is no such key"),
        ("${file:FOLDER/missing:frieda}", "No such file or directory"),
        ("${file:FOLDER:frieda}", "Is a directory"),
        ("${dir:FOLDER:missing}", "there is no such file"),
        ("${dir:FOLDER/inner:../password}", "there is no such file"),
        ("${dir:FOLDER/missing:password}", "No such file or directory"),
        ("${env:MISSING}", "there is no such variable"),
        ("${env:path:CASTLE_SECRET}", "Path is not supported for EnvVarConfigProvider, invalid value 'path'"),
    ],
)
def test_a_reference_that_leads_nowhere_is_refused_and_named(secrets, text, why):
    text = text.replace("FOLDER", str(secrets))
    message = refusal_of(text)
    assert message.startswith(f"server.properties:7: ssl.key.password: {text}: {why}")


def test_all_references_that_lead_nowhere_are_named_with_their_places():
    settings = [
        *settings_of(providers(), "server.properties:1"),
        Setting("ssl.key.password", "${env:MISSING}", "server.properties:5"),
        Setting("num.partitions", "a ${env:CASTLE_SECRET} ${env:OTHER}", "--set"),
    ]
    with pytest.raises(ConfigError) as refused:
        resolve(settings, ENVIRONMENT)
    assert refused.value.problems == (
        "server.properties:5: ssl.key.password: ${env:MISSING}: there is no such variable, or it is not allowed",
        "--set: num.partitions: ${env:OTHER}: there is no such variable, or it is not allowed",
    )


def test_the_origin_of_a_value_names_where_it_was_taken_from():
    texts = providers() | {"num.partitions": "a${env:CASTLE_SECRET}b${env:PATH}", "log.dir": "${vault:x}"}
    settings = {each.name: each for each in resolve(settings_of(texts, "server.properties:7"), ENVIRONMENT)}
    assert settings["num.partitions"].text == "asortinib/bin"
    assert settings["num.partitions"].origin == "server.properties:7 ${env:CASTLE_SECRET} ${env:PATH}"
    assert settings["log.dir"].origin == "server.properties:7"


def test_the_last_setting_of_a_provider_applies():
    settings = [
        *settings_of(providers(env_class="example.Vault"), "server.properties:1"),
        Setting("config.providers.env.class", f"{PACKAGE}.EnvVarConfigProvider", "--set"),
        Setting("log.dir", "${env:CASTLE_SECRET}", "--set"),
    ]
    assert [each.text for each in resolve(settings, ENVIRONMENT)] == ["sortini"]


def test_only_allowed_paths_are_read(secrets):
    allowed = {"file_param.allowed.paths": f"{secrets}/inner, {secrets}/secrets.properties"}
    assert resolved(f"${{file:{secrets}/secrets.properties:empty}}", **allowed) == ""
    for path in (f"{secrets}/password", f"{secrets}/inner/../password", "password", f"{secrets}/inner2/password"):
        assert "is not within allowed.paths" in refusal_of(f"${{file:{path}:empty}}", **allowed)


def test_only_allowed_variables_are_read():
    assert resolved("${env:CASTLE_SECRET}", **{"env_param.allowlist.pattern": "CASTLE_.*"}) == "sortini"
    assert "not allowed" in refusal_of("${env:PATH}", **{"env_param.allowlist.pattern": "CASTLE_.*"})


@pytest.mark.parametrize(
    ("parameters", "why"),
    [
        ({"file_class": "example.Vault"}, "config.providers.file.class: example.Vault is not served"),
        ({"file_class": ""}, "config.providers.file.class: nothing is not served"),
        (
            {"file_param.allowed.paths": "inner"},
            "config.providers.file.param.allowed.paths: Path inner is not absolute",
        ),
        ({"file_param.allowed.paths": "/no/such"}, "Path /no/such does not exist"),
        ({"env_param.allowlist.pattern": "("}, "config.providers.env.param.allowlist.pattern: missing )"),
    ],
)
def test_providers_that_cannot_be_made_are_refused(parameters, why):
    message = refusal_of("text", **parameters)
    assert message.startswith("server.properties:7: config.providers.")
    assert why in message


def test_no_value_is_in_an_error(secrets):
    (secrets / "secrets.properties").write_bytes(b"password=sortini\nbroken=\\u00g0\n")
    assert "sortini" not in refusal_of(f"${{file:{secrets}/secrets.properties:password}}")
