"""From a message to weighted words, in the style of the sentiment example."""

from drivetrain.engine import ops

WORDS = 2000
DELIMITERS = " \t\n.,:;!?()[]{}<>'\"`=%/*+"


def preprocess(columns: ops.Columns) -> ops.Columns:
    """The ids of a message's words and pairs of words with their tf-idf weights; and `type_error`, 1.0 or 0.0."""
    words = ops.split(ops.lower(columns["message"]), DELIMITERS)
    terms = ops.vocabulary(ops.ngrams(words, (1, 2)), top_k=WORDS, oov_buckets=0)  # −1: none of the frequent ones
    ids, weights = ops.tfidf(terms, ops.vocabulary_size(terms) + 1)  # −1 becomes the last id
    return {
        "ids": ids,
        "weights": weights,
        "length": ops.min_max(ops.word_count(words)),
        "type_error": ops.cast(columns["raised"] == "TypeError", "float32"),
    }
