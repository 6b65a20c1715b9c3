"""`audit` and `upgrade`: edits are named, heads kept and signed, stores of an earlier release brought up to date."""

import shutil
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

Json = dict[str, Any]
Command = Callable[..., Result]
Read = Callable[[Result], Json]
OLD = Path(__file__).parents[1] / "fixtures" / "runs" / "0.1" / "root" / "metadata.db"


@pytest.fixture
def ran(shop: Path, drivetrain: Command, last_json: Read) -> Json:
    return last_json(drivetrain("run", "shop", "--json"))


def edit(shop: Path, *statements: str) -> None:
    with closing(sqlite3.connect(shop.parent / ".drivetrain" / "metadata.db")) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def test_a_run_is_as_it_was_written_and_an_edit_is_named(
    shop: Path, ran: Json, drivetrain: Command, last_json: Read
) -> None:
    clean = drivetrain("audit", "verify")
    assert clean.exit_code == 0, clean.output
    assert "as it was written" in clean.stdout
    assert "audit verify --payloads" in clean.stdout
    edit(shop, "UPDATE execution SET state = 'FAILED', error = 'no' WHERE id = 1")
    result = drivetrain("audit", "verify", "--json")
    assert result.exit_code == 1
    (finding,) = last_json(result)["findings"]
    assert (finding["kind"], finding["table"], finding["key"]) == ("changed", "execution", "1")
    assert finding["columns"] == ["state", "error"]
    text = drivetrain("audit", "verify").stdout
    assert f"execution 1 ({finding['name']}): state, error changed past the journal; its last entry is " in text


def rows_of(shop: Path, ran: Json) -> Path:
    (items,) = ran["nodes"]["Make"]["outputs"].values()
    return shop.parent / ".drivetrain" / str(items[0]["uri"]) / "content" / "rows"


def change_a_byte(file: Path) -> None:
    file.chmod(0o644)
    file.write_bytes(b"4" + file.read_bytes()[1:])


def cut(file: Path) -> None:
    file.chmod(0o644)
    file.write_bytes(b"")


def add_a_file(file: Path) -> None:
    file.parent.chmod(0o755)
    file.with_name("more").write_text("more")


def rename(file: Path) -> None:
    file.parent.chmod(0o755)
    file.rename(file.with_name("other"))


def delete(file: Path) -> None:
    file.parent.chmod(0o755)
    file.unlink()


def delete_all(file: Path) -> None:
    shutil.rmtree(file.parent.parent)


@pytest.mark.parametrize("change", [change_a_byte, cut, add_a_file, rename, delete, delete_all])
def test_an_edit_of_a_payload_is_found_by_its_digest(
    change: Callable[[Path], None], shop: Path, ran: Json, drivetrain: Command, last_json: Read
) -> None:
    assert drivetrain("audit", "verify", "--payloads").exit_code == 0
    file = rows_of(shop, ran)
    change(file)
    assert drivetrain("audit", "verify").exit_code == 0
    result = drivetrain("audit", "verify", "--payloads", "--json")
    assert result.exit_code == 1
    stored = last_json(result)["payloads"]
    assert str(file.parent.parent.relative_to(shop.parent / ".drivetrain")) in str(
        stored["corrupt"] + stored["missing"]
    )
    assert "drivetrain fsck" in drivetrain("audit", "verify", "--payloads").stdout


def test_a_head_is_exported_signed_and_held_against_the_store(
    shop: Path, ran: Json, drivetrain: Command, last_json: Read, tmp_path: Path
) -> None:
    pytest.importorskip("cryptography")
    exported = last_json(drivetrain("audit", "export", "head.json", "--json"))
    assert exported["hash"] in drivetrain("audit", "head").stdout
    earlier = (tmp_path / "head.json").read_bytes()
    assert drivetrain("tag", "--note", "seen").exit_code == 0  # the journal goes on
    again = drivetrain("audit", "export", "head.json")
    assert (again.exit_code, "head.json is there already" in again.stderr) == (2, True)
    assert (tmp_path / "head.json").read_bytes() == earlier
    exported = last_json(drivetrain("audit", "export", "head.json", "--replace", "--json"))
    assert (tmp_path / "head.json").read_bytes() != earlier
    for name in ("key", "other"):
        make = ["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", f"{name}.pem"]
        subprocess.run(make, cwd=tmp_path, check=True, capture_output=True)
        public = ["openssl", "ec", "-in", f"{name}.pem", "-pubout", "-out", f"{name}.pub"]
        subprocess.run(public, cwd=tmp_path, check=True, capture_output=True)
    key, pub, other = (str(tmp_path / name) for name in ("key.pem", "key.pub", "other.pub"))
    unsigned = drivetrain("audit", "verify", "--head", "head.json", "--public-key", pub)
    assert unsigned.exit_code == 2
    assert "head.json.sig cannot be read" in unsigned.stderr
    assert drivetrain("audit", "sign", "head.json", "--key", key).exit_code == 0
    assert drivetrain("run", "shop").exit_code == 0  # the journal goes on
    assert drivetrain("audit", "verify", "--head", "head.json", "--public-key", pub).exit_code == 0
    wrong = drivetrain("audit", "verify", "--head", "head.json", "--public-key", other)
    assert wrong.exit_code == 2
    assert "not of this key" in wrong.stderr
    end = exported["entries"]
    edit(
        shop,
        "DROP TRIGGER journal_is_not_shortened",
        f"DELETE FROM journal WHERE number >= {end}",
    )
    result = drivetrain("audit", "verify", "--head", "head.json", "--public-key", pub, "--json")
    assert result.exit_code == 1
    assert [each["entry"] for each in last_json(result)["findings"] if each["kind"] == "head"] == [end]
    head = Path("head.json")
    head.write_text(head.read_text().replace(f'"entries": {end}', f'"entries": {end - 1}'))
    changed = drivetrain("audit", "verify", "--head", "head.json", "--public-key", pub)
    assert changed.exit_code == 2
    assert "not as it was signed" in changed.stderr


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": "another"}', '{"format": "drivetrain-audit-head-v1"}'])
def test_a_file_that_is_no_head_is_refused_by_name(text: str, ran: Json, drivetrain: Command) -> None:
    Path("head.json").write_text(text)
    result = drivetrain("audit", "verify", "--head", "head.json")
    assert result.exit_code == 2
    assert "head.json is not the head of a journal" in result.stderr


def test_a_store_of_an_earlier_release_is_upgraded_by_command_only(
    shop: Path, drivetrain: Command, last_json: Read
) -> None:
    store = shop.parent / ".drivetrain" / "metadata.db"
    store.parent.mkdir(exist_ok=True)
    shutil.copy(OLD, store)
    for words in (["runs"], ["run", "shop"], ["audit", "verify"]):
        refused = drivetrain(*words)
        assert refused.exit_code == 2
        assert "`drivetrain upgrade`" in refused.stderr
    done = last_json(drivetrain("upgrade", "--json"))
    assert (done["before"], done["now"]) == (1, 3)
    assert Path(done["kept"]).parent == store.parent
    assert drivetrain("audit", "verify").exit_code == 0
    assert drivetrain("runs").exit_code == 0
    assert "is up to date" in drivetrain("upgrade").stdout
    assert drivetrain("backup", "--restore", done["kept"]).exit_code == 0  # and back, as it was
    assert drivetrain("runs").exit_code == 2
    assert last_json(drivetrain("upgrade", "--json"))["before"] == 1
    assert drivetrain("audit", "verify").exit_code == 0


def test_there_is_nothing_to_upgrade_where_there_is_no_store(drivetrain: Command) -> None:
    result = drivetrain("upgrade")
    assert result.exit_code == 2
    assert "there is no metadata store" in result.stderr
