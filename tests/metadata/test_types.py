"""Artifact types: declared properties, checked when set; folders; user types; displays."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, ClassVar

import pytest
from drivetrain import metadata
from drivetrain.errors import InputError
from drivetrain.metadata import (
    Anomalies,
    Artifact,
    Evaluation,
    Examples,
    MetadataStore,
    PushedModel,
    StagedArtifact,
    Statistics,
    artifact_type,
    staging,
    types,
)


class Report(Artifact):
    """A user's own type."""

    pages: int = 0
    share: float = 0.5
    tags: list[str] = []  # noqa: RUF012
    author: str | None = None
    anything: Any = None
    kinds: ClassVar[int] = 3


class LongReport(Report):
    chapters: int = 1


def test_standard_types_have_their_properties() -> None:
    assert Examples.new().properties == {"span": 0, "version": None, "rows": {}}
    assert Statistics.new(span=3).properties == {"span": 3}
    assert Anomalies.new().properties == {"passed": True, "errors": 0, "summary": "", "drifted": []}
    evaluated = {"blessed": False, "summary": "", "compared": None, "judged": "", "metrics": {}}
    assert Evaluation.new().properties == evaluated
    pushed = {"destination": "", "folder": "", "version": 0, "digest": "", "bundle": "", "server": "", "serving": {}}
    assert PushedModel.new().properties == pushed


def test_every_standard_type_is_public() -> None:
    standard = {name for name, kind in vars(types).items() if isinstance(kind, type) and issubclass(kind, Artifact)}
    assert standard <= set(metadata.__all__)
    assert len(set(metadata.__all__)) == len(metadata.__all__)


def test_new_has_folders_and_no_identity() -> None:
    report = Report.new(pages=2)
    assert report.content == report.path / "content"
    assert report.content.is_dir()
    assert report.extra.is_dir()
    assert (report.uid, report.uri, report.fingerprint) == (None, None, None)
    assert Report.new().path != report.path


def test_temporary_folders_go_with_the_process() -> None:
    code = "from drivetrain.metadata import Examples; print(Examples.new().path)"
    path = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    assert path
    assert not Path(path).exists()


def test_the_running_launch_gives_the_folder(tmp_path: Path) -> None:
    asked = []

    def provide(kind: type[Artifact]) -> Path:
        asked.append(kind)
        return tmp_path / f"{len(asked)}"

    token = staging.set(provide)
    try:
        assert Report.new().path == tmp_path / "1"
        assert Examples.new().content == tmp_path / "2" / "content"
        elsewhere: list[Path] = []
        thread = threading.Thread(target=lambda: elsewhere.append(Examples.new().path))
        thread.start()
        thread.join()
        assert tmp_path not in elsewhere[0].parents
    finally:
        staging.reset(token)
    assert asked == [Report, Examples]


def test_every_artifact_has_its_own_mutable_defaults() -> None:
    first, second = Examples.new(), Examples.new()
    first.rows["train"] = 5
    assert first.properties["rows"] == {"train": 5}
    assert second.rows == {}
    assert Examples.new(rows={"b": 1, "a": 2}).rows == {"b": 1, "a": 2}
    assert list(Examples.new(rows={"b": 1, "a": 2}).rows) == ["b", "a"]


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("pages", "3", "Report.pages is an integer, not '3'"),
        ("pages", True, "Report.pages is an integer"),
        ("pages", 1.5, "Report.pages is an integer"),
        ("pages", None, "Report.pages is an integer"),
        ("pages", 2**63, "Report.pages: 9223372036854775808 does not fit"),
        ("share", float("nan"), "Report.share: nan has no place in JSON"),
        ("tags", {"a": 1}, "Report.tags is a list"),
        ("tags", [object()], "Report.tags: a object is not a JSON value"),
        ("tags", "abc", "Report.tags is a list"),
        ("author", "a\0", "Report.author: text holds a NUL"),
        ("anything", b"x", "Report.anything: a bytes is not a JSON value"),
        ("nothing", 1, "Report has no property 'nothing'"),
        ("_hidden", 1, "Report has no property '_hidden'"),
        ("content", Path("x"), "Report has no property 'content'"),
    ],
)
def test_wrong_values_name_class_and_property(name: str, value: object, said: str) -> None:
    report = Report.new()
    with pytest.raises(InputError) as caught:
        setattr(report, name, value)
    assert said in caught.value.message
    with pytest.raises((InputError, TypeError)):
        Report.new(**{name: value})


def test_right_values_are_taken() -> None:
    report = LongReport.new(pages=1, share=1, tags=["a"], author="x", anything={"a": [1, None]}, chapters=2)
    assert report.properties == {
        "pages": 1, "share": 1.0, "tags": ["a"], "author": "x", "anything": {"a": [1, None]}, "chapters": 2,
    }  # fmt: skip
    assert type(report.share) is float
    report.author = None
    report.tags.append(object())  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"Report\.tags"):
        _ = report.properties


def test_bad_declarations_are_refused_where_they_stand() -> None:
    with pytest.raises(InputError, match=r"NoDefault\.x has no default"):

        class NoDefault(Artifact):
            x: int

    with pytest.raises(InputError, match=r"BadDefault\.x: a PosixPath"):

        class BadDefault(Artifact):
            x: object = Path("x")

    for taken in ("path", "uri", "content", "properties", "new"):
        with pytest.raises(InputError, match="a name that every artifact has"):
            type("Taken", (Artifact,), {"__annotations__": {taken: "int"}, taken: 1})


def test_from_record(tmp_path: Path) -> None:
    with MetadataStore.open(tmp_path / "metadata.db") as store:
        execution = store.start("Write")
        new = StagedArtifact("Report", "artifacts/r", "f" * 64, 1, {"pages": 4, "later": "added by a newer version"})
        record = store.publish(execution, {"out": [new]})["out"][0]
    report = Report.from_record(record, tmp_path / "r")
    assert (report.uid, report.uri, report.fingerprint) == (record.uid, "artifacts/r", "f" * 64)
    assert report.pages == 4
    assert report.share == 0.5
    assert report.properties["later"] == "added by a newer version"
    with pytest.raises(InputError, match="the artifact is published"):
        report.pages = 5
    with pytest.raises(InputError, match="is of type Report, not Examples"):
        Examples.from_record(record, tmp_path)
    assert Artifact.from_record(record, tmp_path).properties["pages"] == 4
    assert artifact_type("Report") is Report
    assert artifact_type("Unheard") is Artifact


def test_the_display_is_safe() -> None:
    report = Report.new(author="<script>alert(1)</script>")
    assert "<script>" not in report._repr_html_()
    assert "&lt;script&gt;" in report._repr_html_()
    (report.extra / "report.html").write_text('<h1 class="x">Æ</h1><script>alert(1)</script>', encoding="utf-8")
    shown = report._repr_html_()
    assert shown.startswith('<iframe srcdoc="&lt;h1 class=&quot;x&quot;&gt;Æ&lt;/h1&gt;')
    assert 'sandbox=""' in shown  # a component's own page is shown, and its scripts do nothing
    assert shown.count("<") == 2
    assert repr(report).startswith("Report(/")


def test_the_room_imports_nothing_heavy() -> None:
    code = (
        "import sys, drivetrain.metadata; "
        "print([m for m in ('numpy', 'pyarrow', 'pandas', 'jax', 'yaml', 'rich') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
