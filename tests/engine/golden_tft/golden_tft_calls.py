"""What a TFT case says was called, called here; `golden_tft_ops` has our op for each of TFT's.

A step takes the column that it names; else what the step before "->" gave; else, for words, what was split last; else
the first raw column of a fitting type that is not said to be weights, labels or a key.
"""

from __future__ import annotations

import ast
import dataclasses
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from drivetrain.engine import ops
from golden_tft_grammar import (  # type: ignore[import-not-found]  # conftest puts this folder on the path
    NotUnderstoodError,
    Statement,
    Step,
)


@dataclass(frozen=True, eq=False)  # values are traced: == of them builds a comparison
class Made:
    """What one step gave: a value of the preprocessing function, or a vocabulary.

    Attributes:
        step: The step, None for a raw column.
        part: Which of several results it is: "counts", "edges", "indices", "weights", "keys", "left", "right", "fit".
        value: A column or array; what stands in an asset instead (counts per key) has the value that brings it along.
        column: The raw column that the step read, None where another step stands between.
        chain: The names of the steps before it.
        learnt: For ids, how their vocabulary is called in the bundle.
    """

    step: Step | None
    value: Any
    part: str = ""
    column: str | None = None
    chain: tuple[str, ...] = ()
    learnt: str | None = None

    @property
    def name(self) -> str:
        return self.step.name if self.step is not None else "column"


@dataclass(frozen=True)
class Feature:
    """A line of a case's feature_spec: the type's name, values per row (None: a scalar), whether any number of them."""

    name: str
    dtype: str
    width: int | None
    lists: bool
    default: Any = None


NUMBERS = ("float32", "int64")


class Calls:
    """The steps of a case, called one after the other."""

    def __init__(
        self,
        columns: Mapping[str, Any],
        features: Mapping[str, Feature],
        rows: list[dict[str, Any]],
        outputs: Mapping[str, Any],
        known: Mapping[str, tuple[str, Call]],
    ) -> None:
        self.columns = columns
        self.known = known
        self.outputs = outputs  # TFT's of the first row: how long a vector is
        self.features = features
        self.rows = rows
        self.made = [Made(None, columns[name], column=name) for name in features]
        self.hidden: dict[str, Any] = {}  # outputs that bring an asset into the bundle
        self.learnt: dict[str, Any] = {}  # our name -> Vocabulary
        self.said: dict[str, Step] = {}  # our name -> how its vocabulary was asked for
        self.applied: dict[str, dict[str, Any]] = {}  # our name -> how its ids were asked for
        self.keys: dict[str, str] = {}  # a per-key step's text -> the key column
        self.sides: set[str] = set()
        self.used: list[tuple[str, str]] = []

    def run(self, said: list[Statement]) -> None:
        """Call everything. Raises NotUnderstoodError, with what was not understood."""
        for statement in said:
            for group in statement:
                self.sides.update(str(one.options[key]) for one in group for key in SIDES if key in one.options)
        for statement in said:
            named = [self._named(one) for group in statement for one in group]
            first = next((name for name in named if name is not None), None)
            current: Made | None = None
            for place, group in enumerate(statement):
                given = current
                for one in group:
                    before = given
                    alone = self._named(one) is None and not any(isinstance(arg, Step) for arg in one.args)
                    if before is None and place == 0 and alone and len(statement) > 1 and first:
                        before = self._raw(first)
                    current = self.call(one, before)
                    if one.name in MAPPERS and (given is not None or one.name in TEXT_MAPPERS):
                        given = current

    def call(self, step: Step, before: Made | None) -> Made:
        if step.name in self.features and not step.args:
            return self._raw(step.name)
        if step.name not in self.known:
            raise NotUnderstoodError(f"no op {step.name!r} is known: {step.text!r}")
        wants, call = self.known[step.name]
        found = [self.operand(step, wants, before)] if wants else [before or Made(None, None)]
        if step.name in EACH and before is None and self._named(step) is None:
            found = [self._raw(name) for name in self.features]
        results: list[Made] = []
        for source in found:
            for part, value, *learnt in call(self, step, source):
                chain = (*source.chain, *([source.name] if source.step is not None else []))
                column = source.column if source.step is None else None
                results.append(Made(step, value, part, column, chain, learnt[0] if learnt else None))
        self.made += results
        return results[0]

    def _named(self, step: Step) -> str | None:
        said = [arg for arg in (*step.args, step.options.get("x")) if isinstance(arg, str)]
        return next((arg for arg in said if arg in self.features), None)

    def _raw(self, name: str) -> Made:
        return next(made for made in self.made if made.step is None and made.column == name)

    def operand(self, step: Step, wants: str, before: Made | None) -> Made:
        """What a step reads. Beyond int32 there are no whole numbers on the device, and ours says to cast them."""
        found = self._operand(step, wants, before)
        feature = self.features.get(found.column or "") if found.step is None else None
        if wants == "number" and feature is not None and feature.dtype == "int64" and not feature.lists:
            values = [value for row in self.rows for value in _listed(row.get(feature.name)) if value is not None]
            if any(not -(2**31) <= value < 2**31 for value in values):
                return dataclasses.replace(found, value=ops.cast(found.value, "float32"))
        return found

    def _operand(self, step: Step, wants: str, before: Made | None) -> Made:
        inner = next((arg for arg in step.args if isinstance(arg, Step) and arg.name not in NOT_FED), None)
        if inner is not None:  # bucketize(scale_to_z_score(x), 3)
            return self.call(inner, before)
        name = self._named(step)
        if before is not None and name is not None and step.name != "apply_vocabulary":
            name = None if before.step is not None else name
        if name is not None:
            return self._raw(name)
        if before is not None and step.name != "apply_vocabulary":
            return before
        for arg in step.args:
            if isinstance(arg, Step):
                if arg.name == "concat":
                    return Made(None, [self.columns[each] for each in arg.args])
            elif isinstance(arg, str) and re.search(r"[<>*/+]| - ", arg) and wants == "number":
                return Made(Step("expression"), ops.cast(self.expression(arg), "float32"))
        if wants in ("tokens", "ids"):
            names = ("split",) if wants == "tokens" else ("compute_and_apply_vocabulary", "apply_vocabulary")
            for made in reversed(self.made):
                if made.name in names:
                    return made
        free = [f for f in self.features.values() if f.name not in self.sides and fits(f, wants)]
        if wants == "category":
            free.sort(key=lambda f: f.dtype != "string")
        if step.name == "sparse_tensor_to_dense_with_shape":
            kind = {str: ("string",), float: ("float32",)}.get(type(step.args[-1]), NUMBERS)
            free = [f for f in free if f.dtype in kind and (step.name, f.name) not in self.used] or free
        if step.name == "word_count":
            free.sort(key=lambda f: not (f.lists and f.dtype == "string"))
        free = free or list(self.features.values())[: len(self.features) == 1]  # the op itself says what is wrong
        if not free:
            raise NotUnderstoodError(f"no column for {step.text!r}, which takes {wants}")
        self.used.append((step.name, free[0].name))
        return self._raw(free[0].name)

    def side(self, step: Step, key: str) -> Any:
        """The column named by an option such as `weights=w`, None where it is not there."""
        name = step.options.get(key)
        if name is None:
            return None
        if name not in self.features:
            raise NotUnderstoodError(f"{key}={name!r} in {step.text!r} is not a column")
        return self.columns[name]

    def key(self, step: Step, source: Made) -> Any:
        """The key column of a per-key step."""
        named = [arg for arg in step.args if isinstance(arg, str) and arg in self.features]
        others = [f.name for f in self.features.values() if f.name != source.column and f.name not in self.sides]
        texts = [name for name in others if self.features[name].dtype == "string"]
        name = step.options.get("key") or (named[1] if len(named) > 1 else None) or next(iter(texts or others), None)
        if name is None:
            raise NotUnderstoodError(f"no key column for {step.text!r}")
        self.keys[step.text] = name
        return self.columns[name]

    def expression(self, text: str) -> Any:
        """Arithmetic of columns, numbers and analyzers of the first numeric column; "0.2 fare" is a product."""
        tree = ast.parse(re.sub(r"(\d)\s+(?=[A-Za-z])", r"\1 * ", text.strip()), mode="eval").body
        return self._value(tree, text)

    def _value(self, node: ast.AST, text: str) -> Any:
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.BinOp):
            return BINARY[type(node.op)](self._value(node.left, text), self._value(node.right, text))
        if isinstance(node, ast.Compare):
            return BINARY[type(node.ops[0])](self._value(node.left, text), self._value(node.comparators[0], text))
        if isinstance(node, ast.Name) and node.id in self.columns:
            return self.columns[node.id]
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in self.known:
                inner = Made(Step("expression"), self._value(node.args[0], text))
                more = tuple(each.value for each in node.args[1:] if isinstance(each, ast.Constant))
                return self.known[name][1](self, Step(name, more, text=text), inner)[0][1]
        if isinstance(node, ast.Name) and node.id in ("min", "max", "mean", "var", "sum"):
            of = next(n.id for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Name) and n.id in self.columns)
            return getattr(ops, node.id)(self.columns[of])
        raise NotUnderstoodError(f"{ast.dump(node)} in the expression {text!r}")

    def learn(self, step: Step, source: Made, min_diff: float | None) -> tuple[str, Any]:
        """A vocabulary as the step says, and our name for it."""
        unknown = set(step.options) - {*LEARNING, *APPLYING, *SIDES, "vocab_filename", "file_format", "store_frequency"}
        if unknown - {"fingerprint_shuffle", "key_fn"}:
            raise NotUnderstoodError(f"{sorted(unknown)} in {step.text!r}")
        options = {ours: step.options[theirs] for theirs, ours in LEARNING.items() if theirs in step.options}
        options["keep_empty"] = step.options.get("file_format") == "tfrecord_gzip"
        options |= {key: self.side(step, key) for key in ("weights", "labels") if key in step.options}
        if "labels" in options:
            options.setdefault("min_diff", min_diff)
        if step.flag("fingerprint_shuffle"):
            options["by_digest"] = True
        if "key_fn" in step.options:
            if step.options["key_fn"] != "first letter":
                raise NotUnderstoodError(f"key_fn={step.options['key_fn']!r}")
            options["coverage_key"] = first_letter
        given = source.value if isinstance(source.value, list) else [source.value]
        if not options["keep_empty"] and self._broken(source):
            # TFT's text files hold no word with a line break; ours may: such words are made empty for the learning.
            given = [ops.regex_replace(each, r"(?s)^.*[\n\r].*$", "") for each in given]
        name = f"v{len(self.learnt)}"
        self.learnt[name] = ops.learn_vocabulary(*given, name=name, **options)
        self.said[name] = step
        return name, self.learnt[name]

    def _broken(self, source: Made) -> bool:
        """Whether some text of the training data has a line break."""
        if source.step is not None or source.column is None or self.features[source.column].dtype != "string":
            return False
        texts = [row.get(source.column) for row in self.rows]
        return any(re.search(r"[\n\r]", text or "") for each in texts for text in _listed(each))


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def first_letter(word: str) -> str:
    return word[:1]


def fits(feature: Feature, wants: str) -> bool:
    """Whether a raw column is what a step wants."""
    text = feature.dtype == "string"
    several = feature.lists or (feature.width is not None and text)
    return {
        "number": not text, "text": text and not several, "tokens": text, "category": text or feature.dtype == "int64",
        "ids": feature.dtype == "int64" and several, "list": True, "any": True, "vector": feature.width is not None,
    }[wants]  # fmt: skip


SIDES = ("weights", "labels", "key_column")
LEARNING = {
    "top_k": "top_k", "frequency_threshold": "min_count", "use_adjusted_mutual_info": "adjusted",
    "min_diff_from_avg": "min_diff", "reserved_tokens": "reserved", "coverage_top_k": "coverage_top_k",
    "coverage_frequency_threshold": "coverage_min_count",
}  # fmt: skip
APPLYING = {"num_oov_buckets": "oov_buckets", "default_value": "default"}
BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Eq: operator.eq,
}  # fmt: skip
TEXT_MAPPERS = {"strip", "lower", "upper", "regex_replace", "split", "lookup", "as_string"}
MAPPERS = TEXT_MAPPERS | {"log1p"}
EACH = {"deduplicate_tensor_per_row"}
NOT_FED = {"quantiles", "concat"}  # calls inside of others that are not an operand by themselves


Result = list[tuple[Any, ...]]  # part, value and for ids the name of the vocabulary
Call = Callable[[Calls, Step, Made], Result]
