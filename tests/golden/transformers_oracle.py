"""What Hugging Face's transformers 4.46 computes, into transformers.json: `python transformers_oracle.py`.

Runs where these are installed, not in ours: `pip install transformers==4.46.3 jax==0.4.35 flax==0.10.2`. Weights are
drawn anew from their names, so that the file holds only inputs and logits, with seven digits.
"""
# mypy: ignore-errors

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

SIZES = {"vocabulary": 23, "length": 12, "width": 16, "layers": 2, "heads": 2, "hidden": 40}
CLASSES = 3


def weight(path: str, shape: tuple[int, ...]) -> np.ndarray:
    """Of a parameter by its name in transformers; what scales a normalised value is near 1."""
    values = np.random.default_rng(crc32(path.encode())).normal(scale=0.3, size=shape)
    return (values + path.endswith("/scale")).astype(np.float32)


def main() -> None:
    from flax.traverse_util import flatten_dict, unflatten_dict
    from transformers import (
        BertConfig,
        FlaxBertForMaskedLM,
        FlaxBertForSequenceClassification,
        FlaxGPT2LMHeadModel,
        GPT2Config,
    )

    random = np.random.default_rng(0)
    rows, length = 3, 9
    lengths = [9, 5, 1]
    inputs = {
        "tokens": random.integers(0, SIZES["vocabulary"], (rows, length)),
        "segment_ids": (np.arange(length) < np.array(lengths)[:, None]).astype(int),
        "token_types": random.integers(0, 2, (rows, length)),
    }
    names = ("vocab_size", "max_position_embeddings", "hidden_size", "num_hidden_layers", "num_attention_heads")
    bert = dict(zip((*names, "intermediate_size"), SIZES.values(), strict=True))
    names = ("vocab_size", "n_positions", "n_embd", "n_layer", "n_head", "n_inner")
    gpt = dict(zip(names, SIZES.values(), strict=True))

    def logits(model: Any, **arguments: Any) -> Any:
        flat = flatten_dict(model.params, sep="/")
        params = unflatten_dict({path: weight(path, leaf.shape) for path, leaf in flat.items()}, sep="/")
        result = model(inputs["tokens"], params=params, **arguments).logits
        return np.vectorize(lambda value: float(f"{value:.7g}"))(result).tolist()

    padded = {"attention_mask": inputs["segment_ids"], "token_type_ids": inputs["token_types"]}
    document = {
        "inputs": {name: array.tolist() for name, array in inputs.items()},
        "masked_language_model": logits(FlaxBertForMaskedLM(BertConfig(**bert)), **padded),
        "sequence_classifier": logits(
            FlaxBertForSequenceClassification(BertConfig(**bert, num_labels=CLASSES)), **padded
        ),
        "decoder": logits(FlaxGPT2LMHeadModel(GPT2Config(**gpt, activation_function="gelu"))),
    }
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in document.items())
    Path(__file__).with_name("transformers.json").write_text(f"{{\n{lines}\n}}\n", "utf-8")


if __name__ == "__main__":
    main()
