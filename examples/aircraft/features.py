"""From an entry of the register to features, in the style of the census example; the label is looked up."""

from drivetrain.engine import ops

NUMBERS = ("seats", "engines", "speed")
ONE_HOT = {"family": 32, "maker": 16}  # words that are kept; unknown and missing come on top
IDS = ("model", "airline")
ENGINES = {"turbo fan": 0, "turbo jet": 1, "turbo prop": 2, "turbo shaft": 3, "reciprocating": 4, "4 cycle": 4}
OTHER_ENGINE = 5
CENTURY = {"19": 0.0, "20": 1.0}

# The register writes "AIRBUS" and "AIRBUS INDUSTRIE", "MCDONNELL DOUGLAS AIRCRAFT CO" and "… CORPORATION".
COMPANY = r"\b(INDUSTRIES?|AIRCRAFT|AEROSPACE|AEROSPATIALE|CORPORATION|COMPANY|CORP|CO|INC|LTD)\b"


def preprocess(columns: ops.Columns) -> ops.Columns:
    """Features by name, and `new`: 1.0 for one of this century, 0.0 too where the year is missing; another fails."""
    features = {name: ops.fill_missing(ops.min_max(columns[name]), 0.5) for name in NUMBERS}
    features["no_speed"] = ops.cast(ops.is_missing(columns["speed"]), "float32")

    text = {
        "family": ops.regex_replace(ops.strip(columns["model"]), r"[-/( ].*", ""),  # 737-7H4 is a 737
        "maker": ops.strip(ops.regex_replace(columns["manufacturer"], COMPANY, "")),
        "model": ops.strip(columns["model"]),
        "airline": ops.regex_replace(columns["tailnum"], r"^N?[0-9]+", ""),  # N102UW flies for US Airways
    }
    ids = {name: ops.vocabulary(text[name], top_k=depth, oov_buckets=1) for name, depth in ONE_HOT.items()}
    features |= {name: ops.one_hot(ids[name], depth + 2) for name, depth in ONE_HOT.items()}
    features |= {name: ops.vocabulary(text[name], min_count=2, keep_empty=True) for name in IDS}
    features["common"] = ops.cast(features["model"] < ops.vocabulary_size(features["model"]), "float32")
    features["type"] = ops.multi_hot(ops.vocabulary(ops.split(ops.lower(columns["type"])), top_k=6), 8)
    engine = ops.strip(ops.lower(ops.regex_replace(columns["engine"], r"[^A-Za-z0-9]+", " ")))
    features["engine"] = ops.one_hot(ops.lookup(engine, ENGINES, default=OTHER_ENGINE), OTHER_ENGINE + 1)

    century = ops.lookup(ops.substr(ops.cast(columns["year"], "string"), 0, 2), CENTURY, default=-1.0)
    ops.check(ops.is_missing(century) | (century >= 0.0), "the year is of neither century")
    features["new"] = ops.fill_missing(century, 0.0)
    return features
