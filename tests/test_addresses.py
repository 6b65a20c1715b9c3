"""What an address names: this machine's files or a URL; names that lead elsewhere, and secrets, are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from drivetrain.addresses import is_url, local_path, refuse_secrets, relative_name, scheme_in_path, scheme_of
from drivetrain.errors import InputError


@pytest.mark.parametrize(
    ("address", "path"),
    [
        ("a/b.csv", "a/b.csv"),
        ("file:///a%20b/c", "/a b/c"),
        ("file://localhost/a", "/a"),
        ("C:x", "C:x"),
        ("s3://bucket/a", None),
        ("HTTPS://host/a", None),
    ],
)
def test_what_lies_on_this_machine(address: str, path: str | None) -> None:
    assert local_path(address) == (None if path is None else Path(path))
    assert is_url(address) == (path is None)


@pytest.mark.parametrize(
    ("path", "scheme"),
    [(Path("s3://bucket/a"), "s3"), ("abfss://c@host/a", "abfss"), ("a/s3:/b", None), ("/s3:/b", None), ("C:/x", None)],
)
def test_a_url_is_known_though_it_was_taken_for_a_path(path: str | Path, scheme: str | None) -> None:
    assert scheme_in_path(path) == scheme


def test_another_machines_files_are_refused() -> None:
    with pytest.raises(InputError, match="names another machine"):
        local_path("file://host/a")


@pytest.mark.parametrize("name", ["/a", "a//b", "a/", ".", "../a", "a/../b", "a\\b", "a\x00", "a\n"])
def test_names_that_lead_elsewhere(name: str) -> None:
    with pytest.raises(InputError, match="leads elsewhere, or is empty"):
        relative_name(name)
    assert relative_name("a/b c/é") == "a/b c/é"


@pytest.mark.parametrize("url", ["s3://ann:T0KEN@bucket/a", "https://host/a?sig=T0KEN", "https://[T0KEN/a"])
def test_a_url_with_a_secret_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(InputError) as error:
        refuse_secrets(url)
    assert "T0KEN" not in str(error.value)


def test_what_is_known_of_a_kind_of_store() -> None:
    assert scheme_of("/a/folder") == scheme_of("file:///a/folder")
    assert scheme_of("S3://bucket/a").package == "s3fs"
    assert not scheme_of("odd://a").artifacts
