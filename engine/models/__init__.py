"""Network architectures, as Flax NNX modules: for examples, for benchmarks, and to begin a model of one's own with.

Names load on first use, as those of `engine`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...lazy import lazy_names

if TYPE_CHECKING:
    from .generation import GREEDY as GREEDY
    from .generation import Generated as Generated
    from .generation import Sampling as Sampling
    from .generation import generate as generate
    from .recommendation import DLRM as DLRM
    from .recommendation import ROWS_OVER_DEVICES as ROWS_OVER_DEVICES
    from .recommendation import WideAndDeep as WideAndDeep
    from .recommendation import table_ids as table_ids
    from .resnet import ResNet as ResNet
    from .transformer import BERT_BASE as BERT_BASE
    from .transformer import BERT_LARGE as BERT_LARGE
    from .transformer import Decoder as Decoder
    from .transformer import Encoder as Encoder
    from .transformer import MaskedLanguageModel as MaskedLanguageModel
    from .transformer import SequenceClassifier as SequenceClassifier
    from .transformer import TransformerSize as TransformerSize
    from .transformer import training_flops as training_flops

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "generation": "GREEDY Generated Sampling generate",
        "recommendation": "DLRM ROWS_OVER_DEVICES WideAndDeep table_ids",
        "resnet": "ResNet",
        "transformer": (
            "BERT_BASE BERT_LARGE Decoder Encoder MaskedLanguageModel SequenceClassifier TransformerSize training_flops"
        ),
    },
)
