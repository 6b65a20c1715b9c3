"""The help texts of Python itself (`help("with")`), in passages that fit one window of the model.

They are the language reference, which comes with every Python under the PSF licence, as `pydoc_data.topics`.
"""

import re
from collections.abc import Iterator
from pydoc_data.topics import topics

import drivetrain as dt
import pyarrow as pa
from drivetrain.components import ExampleGen
from drivetrain.metadata import Examples

from .features import WINDOW


@dt.component
def Topics(*, length: int = WINDOW) -> Examples:
    """Each passage with its topic. What stands in several topics is a passage of the first one alone."""
    rows, seen = [], set[str]()
    for topic in sorted(topics):
        paragraphs = [text for text in re.split(r"\n\s*\n", topics[topic]) if text not in seen]
        seen.update(paragraphs)
        rows += [{"topic": topic, "text": text} for text in passages("\n\n".join(paragraphs), length)]
    return ExampleGen(pa.Table.from_pylist(rows), splits={"train": 12, "eval": 1}, split_by="text")


def passages(text: str, length: int) -> Iterator[str]:
    """The lines of a text in their order, as many at a time as there are room for; a longer line is cut."""
    passage = ""
    for line in text.splitlines(keepends=True):
        if passage and len(passage) + len(line) > length:
            yield passage
            passage = ""
        passage += line
        while len(passage) > length:
            yield passage[:length]
            passage = passage[length:]
    if passage.strip():
        yield passage
