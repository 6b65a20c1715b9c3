"""How a KFP API server is reached, and as whom: values by name, secrets by the name of a variable or a file."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from ...errors import InputError
from ...redaction import mark_secret

TOKEN = "DRIVETRAIN_KUBEFLOW_TOKEN"  # noqa: S105 - the name of a variable
COOKIES = "DRIVETRAIN_KUBEFLOW_COOKIES"
ENDPOINT = "KF_PIPELINES_ENDPOINT"
"""What kfp itself looks up where no host is given."""


@dataclass(frozen=True)
class ApiSettings:
    """The `api:` of `kubeflow.yaml`; all of it may be left out.

    Attributes:
        host: URL of KFP's API or UI; else $KF_PIPELINES_ENDPOINT, else the cluster that this runs in, else the one of
            the kube config, through its proxy.
        ui_host: URL of the UI, for links, where it is another.
        namespace: The user's namespace where Kubeflow has several users; where KFP is installed without a host.
        experiment: Runs are submitted to this one; the pipeline's name where empty.
        token_env: Variable that holds a bearer token; $DRIVETRAIN_KUBEFLOW_TOKEN where empty.
        token_file: File that holds one; read anew for each connection, as tokens of service accounts are rotated.
        service_account_token: File of a projected service account token, which kfp refreshes.
        cookies_env: Variable that holds cookies, such as Dex's; $DRIVETRAIN_KUBEFLOW_COOKIES where empty.
        iap_client_id: Client id of Google's Identity-Aware Proxy.
        iap_other_client_id: Client id of a desktop application that is allowed there.
        iap_other_client_secret_env: Variable that holds its secret.
        ca_cert: File of the authorities that the server's certificate is checked against.
        verify_ssl: Whether it is checked at all.
        proxy: URL of an HTTP proxy on the way.
        kube_context: Context of the kube config, where that shows the way.
        timeout: Seconds until an answer must have begun.
        retries: How often a question is asked again where the server or the way to it fails; what changes something
            is sent again only if it did not leave.
    """

    host: str = ""
    ui_host: str = ""
    namespace: str = ""
    experiment: str = ""
    token_env: str = ""
    token_file: str = ""
    service_account_token: str = ""
    cookies_env: str = ""
    iap_client_id: str = ""
    iap_other_client_id: str = ""
    iap_other_client_secret_env: str = ""
    ca_cert: str = ""
    verify_ssl: bool = True
    proxy: str = ""
    kube_context: str = ""
    timeout: float = 60.0
    retries: int = 4

    @property
    def url(self) -> str:
        """The host with its scheme, or "" where kfp has to find the cluster itself.

        Raises:
            InputError: There is none, and nothing to find it by.
        """
        host = (self.host or os.environ.get(ENDPOINT, "")).rstrip("/")
        if host:
            return host if "://" in host else f"https://{host}"
        kube = [Path(name) for name in os.environ.get("KUBECONFIG", "").split(os.pathsep) if name]
        has_config = any(file.exists() for file in kube or [Path.home() / ".kube" / "config"])
        if has_config or "KUBERNETES_SERVICE_HOST" in os.environ:
            return ""
        raise InputError(
            "it is not said where Kubeflow Pipelines answers",
            fix=f"write `api: {{host: https://…}}` in kubeflow.yaml, give --host, or set {ENDPOINT}",
        )

    def token(self) -> str:
        """The bearer token, "" where there is none.

        Raises:
            InputError: It is said where it is, and it is not there.
        """
        if self.token_file:
            try:
                value = Path(self.token_file).expanduser().read_text(encoding="utf-8").strip()
            except (OSError, ValueError) as error:
                raise InputError(
                    f"api.token_file {self.token_file} cannot be read: {error}",
                    fix="correct the path, or make the file readable",
                ) from None
            if not value:
                raise InputError(f"api.token_file {self.token_file} is empty", fix="have a token written into it")
            mark_secret(value)
            return value
        return _variable("api.token_env", self.token_env, TOKEN)

    def cookies(self) -> str:
        """The cookies, "" where there are none."""
        return _variable("api.cookies_env", self.cookies_env, COOKIES)

    def iap_secret(self) -> str:
        """The secret of the application that may pass the Identity-Aware Proxy, "" where there is none."""
        return _variable("api.iap_other_client_secret_env", self.iap_other_client_secret_env, "")


def _variable(key: str, named: str, default: str) -> str:
    value = os.environ.get(named or default, "").strip()
    if named and not value:
        raise InputError(f"the variable {named}, which {key} names, is not set", fix=f"export {named}=…")
    mark_secret(value)
    return value
