"""From a text to the ids of its characters, of which the vocabulary is learnt."""

from drivetrain.engine import ops

WINDOW = 128
"""Characters that the model sees at once."""


def preprocess(columns: ops.Columns) -> ops.Columns:
    """The ids of the last characters; and how many they are, which predictions are judged by."""
    characters = ops.split(ops.substr(columns["text"], -WINDOW), regex="")
    return {
        "ids": ops.vocabulary(characters, oov_buckets=1),
        "characters": ops.cast(ops.fill_missing(ops.word_count(characters), 0), "float32"),
    }
