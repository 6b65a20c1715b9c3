"""kfp's own client with bounds: on how long it waits, how often it asks again, and what it takes for an answer."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from ...errors import missing_extra
from .api_errors import NotAnApi, translated
from .connection import Api


def despite_others(ask: Callable[[], Any]) -> Any:  # Any: kfp's models
    """What `ask` gives, asked twice where another has made the experiment between kfp's look and its own making."""
    from kfp_server_api.exceptions import ApiException

    try:
        return ask()
    except ApiException as error:
        if error.status != 409:
            raise
    return ask()


def connect(api: Api, host: str) -> Any:  # Any: kfp has no types
    """Kfp's client for an API.

    Raises:
        DrivetrainError: The extra is not installed.
        InputError: A secret is not there.
        ApiError: It cannot be asked.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecations within kfp
        try:
            # By its own name: kfp lacks its parts where only its protobufs were asked for before (`protobufs.py`).
            from kfp.client import Client as KfpClient
            from kfp.client import set_volume_credentials
        except ImportError:
            raise missing_extra("kfp", "kubeflow") from None

    class Quick(KfpClient):  # type: ignore[misc]  # no types
        """Does not ask for the server's health, to guess a namespace that is always said here."""

        def get_kfp_healthz(self, sleep_duration: int = 5) -> Any:  # Any: kfp's model
            return SimpleNamespace(multi_user=False)

    credentials = None
    if api.service_account_token:
        credentials = set_volume_credentials.ServiceAccountTokenVolumeCredentials(api.service_account_token)
    # For the Identity-Aware Proxy it may ask a person to log in, who must see that; the answer to --json is on stdout.
    with translated(api, host, "be asked"), contextlib.redirect_stdout(sys.stderr):
        made = Quick(
            host=host or None,
            ui_host=api.ui_host or None,
            existing_token=api.token() or None,
            cookies=api.cookies() or None,
            credentials=credentials,
            client_id=api.iap_client_id or None,
            other_client_id=api.iap_other_client_id or None,
            other_client_secret=api.iap_secret() or None,
            ssl_ca_cert=api.ca_cert or None,
            verify_ssl=None if api.verify_ssl else False,
            proxy=api.proxy or None,
            kube_context=api.kube_context or None,
        )
    _bound(made, api)
    return made


def _bound(client: Any, api: Api) -> None:  # Any: kfp has no types
    """Give all its requests a timeout, retries, and eyes for what is no answer of an API."""
    import urllib3

    rest = client.runs.api_client.rest_client
    rest.pool_manager.connection_pool_kw["retries"] = urllib3.Retry(
        api.retries,
        backoff_factor=0.25,
        status_forcelist=(429, 500, 502, 503, 504),
        allowed_methods=("GET", "HEAD"),  # of others only those that did not leave are sent again
        raise_on_status=False,
    )
    send = rest.request

    def request(method: str, url: str, **more: Any) -> Any:  # Any: what the generated client passes on
        more["_request_timeout"] = more.get("_request_timeout") or (min(10.0, api.timeout), api.timeout)
        answer = send(method, url, **more)
        kind = answer.getheader("content-type") or "nothing"
        if "json" not in kind:
            raise NotAnApi(kind)
        return answer

    rest.request = request
