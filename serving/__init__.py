"""The model server: bundles behind TensorFlow Serving's and the Open Inference Protocol's interfaces."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import lazy_names

if TYPE_CHECKING:
    from .asgi_application import asgi as asgi
    from .async_client import AsyncClient as AsyncClient
    from .client import Client as Client
    from .client import Prediction as Prediction
    from .client import ServerError as ServerError

__getattr__, __dir__, __all__ = lazy_names(
    __name__, {"asgi_application": "asgi", "async_client": "AsyncClient", "client": "Client Prediction ServerError"}
)
