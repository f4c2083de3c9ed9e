"""Crates: the integration tests that one ships, built with its own lock; and our program for TLS and SASL."""

import json
import pathlib
from collections.abc import Mapping, Sequence

from compat_tests.clients.client import Outcome, Programs, Session
from compat_tests.clients.parsing import rust_outcomes

PUBLISHED = ".published"
TARGET_SECONDS = 240  # for one file of tests: most take less than twenty

MANIFEST = """\
[package]
name = "fetch-{crate}"
version = "0.0.0"
edition = "2021"

[dependencies]
{crate} = {{ version = "={version}", default-features = false }}
"""


def secured_program(session: Session) -> Programs:
    """Builds the crate `secured` in the client's folder."""
    target = session.work / "secured"
    session.prepare(
        "cargo", "build", "--quiet", "--locked", cwd=session.folder / "secured", CARGO_TARGET_DIR=str(target)
    )
    return {"": [str(target / "debug" / "secured")]}


def crate_sources(session: Session, crate: str, version: str) -> pathlib.Path:
    """A copy of the crate as published; what cargo downloads is checked against the registry's checksum by cargo."""
    name = f"{crate}-{version}"
    if (session.work / name).exists():
        return session.work / name
    fetch = session.work / "fetch"
    (fetch / "src").mkdir(parents=True, exist_ok=True)
    (fetch / "src" / "lib.rs").write_text("")
    (fetch / "Cargo.toml").write_text(MANIFEST.format(crate=crate, version=version))
    session.prepare("cargo", "fetch", "--quiet", cwd=fetch)
    packages = json.loads(session.prepare("cargo", "metadata", "--format-version", "1", cwd=fetch))["packages"]
    (manifest,) = [package["manifest_path"] for package in packages if package["name"] == crate]
    return session.copy(pathlib.Path(manifest).parent, name)


def rewrite(source: pathlib.Path, replaced: Mapping[str, str]) -> None:
    """Write this file from its published version, with each text of theirs replaced by one of ours."""
    published = source.with_suffix(PUBLISHED)
    if not published.exists():
        source.rename(published)
    wanted = published.read_text()
    for theirs, ours in replaced.items():
        assert theirs in wanted, f"{published} does not say {theirs}"
        wanted = wanted.replace(theirs, ours)
    if not source.exists() or source.read_text() != wanted:  # what is as it was is not built again
        source.write_text(wanted)


def run_integration_tests(
    session: Session,
    sources: pathlib.Path,
    targets: Sequence[str],
    environment: Mapping[str, str],
    only: Sequence[str] = (),
    features: str = "",
) -> list[Outcome]:
    """Build, with these features of the crate besides, and run each file of tests as a program of its own.

    `only` names some of their tests.
    """
    environment = {"CARGO_TARGET_DIR": str(session.work / "target"), **environment}
    chosen = [session.only] if session.only else only
    cargo_test = ["cargo", "test", "--locked", *(["--features", features] if features else [])]
    session.prepare(*cargo_test, "--no-run", "--tests", cwd=sources, **environment)
    outcomes = []
    for target in targets:
        command = [*cargo_test, "--quiet", "--test", target, "--", *chosen]
        listed = session.execute(*command, "--list", cwd=sources, **environment).output
        # One result a line, which libtest prints in its `pretty` format alone.
        printed = session.execute(
            *command, "--format", "pretty", cwd=sources, timeout=TARGET_SECONDS, **environment
        ).output
        outcomes += rust_outcomes(target, listed, printed)
    return outcomes
