"""Passes: functions from graph to graph, chained, each saying what it removed. XLA does fusion and layout."""

from .chain import EXPORTED as EXPORTED
from .chain import FROZEN as FROZEN
from .chain import STRUCTURAL as STRUCTURAL
from .chain import Pass as Pass
from .chain import PassReport as PassReport
from .chain import optimize as optimize
from .constants import fold as fold
from .layers import fold_batch_norm as fold_batch_norm
from .outlining import outline as outline
from .scans import write_scans as write_scans
from .structural import forget_gradients as forget_gradients
from .structural import inline as inline
from .structural import prune as prune
from .structural import share as share
from .text import fuse_text as fuse_text
from .training_only import drop_training as drop_training
