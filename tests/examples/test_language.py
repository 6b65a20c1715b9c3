"""The language example: its passages, the perplexities against counting by hand, what the pushed model writes."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from drivetrain.tests.examples import example_job
from drivetrain.tests.examples import flights_job as job

pytestmark = [pytest.mark.slow, pytest.mark.engine, pytest.mark.timeout(900)]
WINDOW = 128


@pytest.fixture(scope="module")
def language(tmp_path_factory: pytest.TempPathFactory) -> example_job.Example:
    root = tmp_path_factory.mktemp("language") / ".drivetrain"
    done = job.run(root, project=job.REPOSITORY / "examples" / "language", timeout=800)
    assert done.code == 0, (done.result, done.err)
    assert set(done.states.values()) == {"COMPLETE"}
    return example_job.Example(root, done, "Topics")


def texts(language: example_job.Example, split: str) -> list[str]:
    passages: list[str] = language.rows(split)["text"].to_pylist()
    return passages


class Counted:
    """Shares of the next character after the last `order` ones, each smoothed by the order below (Witten and Bell)."""

    def __init__(self, passages: list[str], order: int) -> None:
        self.kinds = len(set("".join(passages))) + 1
        self.order = order
        self.counts: dict[str, Counter[str]] = defaultdict(Counter)
        for passage in passages:
            for history, character in self.histories(passage):
                for length in range(order + 1):
                    self.counts[history[len(history) - length :] if length else ""][character] += 1

    def histories(self, passage: str) -> Iterator[tuple[str, str]]:
        padded = "\0" * self.order + passage
        for at, character in enumerate(passage, self.order):
            yield padded[at - self.order : at], character

    def share(self, history: str, character: str) -> float:
        share = 1 / self.kinds
        for length in range(self.order + 1):
            counts = self.counts.get(history[len(history) - length :] if length else "")
            if counts:
                share = (counts[character] + len(counts) * share) / (counts.total() + len(counts))
        return share

    def perplexity(self, passages: list[str]) -> float:
        shares = [self.share(*pair) for passage in passages for pair in self.histories(passage)]
        return float(np.exp(-np.mean(np.log(shares))))


def test_passages_are_the_texts_of_the_topics(language: example_job.Example) -> None:
    from pydoc_data.topics import topics

    rows = pa.concat_tables([language.rows("train"), language.rows("eval")]).to_pylist()
    assert {row["topic"] for row in rows} <= topics.keys()
    assert all(0 < len(row["text"]) <= WINDOW for row in rows)
    whole = [row["text"] for row in rows if row["text"].rstrip("\n") in topics[row["topic"]]]
    assert len(whole) > 0.97 * len(rows)  # where a paragraph stands in an earlier topic, its neighbours meet here
    assert sum(len(row["text"]) for row in rows) > 0.6 * sum(map(len, topics.values()))


def test_the_model_is_better_than_counting(language: example_job.Example) -> None:
    train, judged = texts(language, "train"), texts(language, "eval")
    perplexity = language.metric("perplexity")
    bigrams, trigrams = (Counted(train, order).perplexity(judged) for order in (1, 2))
    assert perplexity < 0.8 * bigrams
    assert perplexity < trigrams
    validation = language.done.path(language.root, "Evaluator", "evaluation") / "content" / "validation.json"
    (threshold,) = json.loads(validation.read_text())["thresholds"]
    assert threshold["baseline"] == pytest.approx(bigrams, rel=1e-3)
    trained = language.done.path(language.root, "Trainer", "model") / "extra" / "history.json"
    accuracy = json.loads(trained.read_text())["epochs"][-1]["metrics"]["accuracy"]
    assert accuracy > 0.45


def test_the_pushed_model_writes_on_alone(language: example_job.Example) -> None:
    from drivetrain.engine import Bundle

    bundle = Bundle.load(language.pushed())
    (vocabulary,) = (table.column("value").to_pylist() for table in bundle.payload.assets.values())
    prompts = ["The ", "If the statement is "]
    written = bundle.run("predict", {"text": prompts})["continuation"]
    assert written.shape == (2, 32)
    # The likeliest next character, from the log-likelihoods of the texts that end by each.
    begins = [
        prompt + "".join(vocabulary[number] for number in ids[:step])
        for prompt, ids in zip(prompts, written, strict=True)
        for step in (0, 1)
    ]
    tried = [begin + character for begin in begins for character in vocabulary]
    likely = bundle.run("predict", {"text": tried})["log_likelihood"].reshape(len(begins), -1)
    np.testing.assert_array_equal(likely.argmax(axis=1), written[:, :2].ravel())
