"""The sentiment-style example: what is read off source code, tf-idf and the model against sklearn, the bundle alone."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest
from drivetrain.tests.examples import example_job, flights_job

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]
DELIMITERS = " \t\n.,:;!?()[]{}<>'\"`=%/*+"


@pytest.fixture(scope="module")
def source() -> ModuleType:
    path = flights_job.REPOSITORY / "examples" / "messages" / "messages.py"
    spec = importlib.util.spec_from_file_location("messages_of_the_test", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def messages(tmp_path_factory: pytest.TempPathFactory) -> example_job.Example:
    return example_job.run("messages", tmp_path_factory.mktemp("messages") / ".drivetrain", source="Messages")


def grams(text: str) -> list[str]:
    words = [word for word in re.split(f"[{re.escape(DELIMITERS)}]+", text.lower()) if word]
    return [gram for i in range(len(words)) for gram in (words[i], " ".join(words[i : i + 2]))[: len(words) - i]]


def label(raw: pd.DataFrame) -> np.ndarray:
    return np.asarray(raw["raised"] == "TypeError", np.float32)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ('raise TypeError("a b c")', [("a b c", "TypeError")]),
        ('raise ValueError(f"no {x!r} here", 3)', [("no {} here", "ValueError")]),
        ('raise ValueError("got %s" % x)', [("got %s", "ValueError")]),
        ('raise TypeError("got {}".format(x)) from None', [("got {}", "TypeError")]),
        ('raise KeyError("a b c")', []),
        ("raise TypeError(text)\nraise ValueError()\nraise TypeError\nraise", []),
        ('raise ValueError("broken', []),
        ("TypeError('never raised')", []),
    ],
)
def test_the_text_and_the_exception_are_read(source: ModuleType, code: str, expected: list[tuple[str, str]]) -> None:
    assert list(source.raised(code.encode())) == expected


@pytest.mark.slow
def test_every_message_stands_in_its_library_with_its_exception(messages: example_job.Example) -> None:
    rows = pd.concat([messages.rows(split).to_pandas() for split in ("train", "eval")])
    assert rows["message"].is_unique
    assert set(rows["library"]) == {"python", "jax", "numpy", "scipy"}
    module = Path(str(importlib.util.find_spec("json.decoder").origin)).read_text()  # type: ignore[union-attr]
    plain = {  # by another way than the example's: all constant first arguments of calls
        (node.args[0].value, node.func.id)
        for node in ast.walk(ast.parse(module))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        and node.func.id in ("TypeError", "ValueError") and node.args and isinstance(node.args[0], ast.Constant)
    }  # fmt: skip
    assert plain <= set(zip(rows["message"], rows["raised"], strict=True))


@pytest.mark.slow
def test_tf_idf_is_sklearns(messages: example_job.Example) -> None:
    from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer

    train, _ = messages.frames("train")
    raw, made = messages.frames("eval")
    words = example_job.words_by_count(train["message"].map(grams).explode(), 2000)
    places = {word: place for place, word in enumerate(words)}

    def ids(text: str) -> list[int]:
        return [places.get(gram, len(words)) for gram in grams(text)]

    count = CountVectorizer(analyzer=ids, vocabulary={place: place for place in range(len(words) + 1)})
    weigh = TfidfTransformer(norm=None, smooth_idf=True).fit(count.transform(train["message"]))
    lengths = np.array([max(len(ids(text)), 1) for text in raw["message"]])
    expected = weigh.transform(count.transform(raw["message"])).toarray() / lengths[:, None]
    found = np.zeros_like(expected)
    for row, (terms, weights) in enumerate(zip(made["ids"].to_pylist(), made["weights"].to_pylist(), strict=True)):
        found[row, terms] = weights
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)
    assert (expected[:, -1] > 0).any()
    np.testing.assert_array_equal(example_job.matrix(made, "type_error"), label(raw))


@pytest.mark.slow
def test_the_model_is_better_than_tf_idf_and_a_linear_model_of_sklearn(messages: example_job.Example) -> None:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import log_loss, roc_auc_score
    from sklearn.pipeline import make_pipeline

    train, rows = (messages.rows(split).to_pandas() for split in ("train", "eval"))
    linear = make_pipeline(TfidfVectorizer(), LogisticRegression(max_iter=1000)).fit(train["message"], label(train))
    predicted = linear.predict_proba(rows["message"])[:, 1]
    assert messages.metric("auc") > roc_auc_score(label(rows), predicted)
    assert messages.metric("log_loss") < log_loss(label(rows), predicted)


@pytest.mark.slow
def test_the_pushed_model_predicts_alone(messages: example_job.Example, tmp_path: Path) -> None:
    from sklearn.metrics import roc_auc_score

    predicted = example_job.predicted_alone(messages, ["raised", "library"], tmp_path)
    assert roc_auc_score(label(messages.rows("eval").slice(0, 1000).to_pandas()), predicted) > 0.8
