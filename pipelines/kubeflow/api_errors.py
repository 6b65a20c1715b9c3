"""One error, with a fix, for whatever kfp, its generated client and urllib3 raise."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import warnings
from collections.abc import Iterator

from ...errors import DrivetrainError
from ...redaction import redact
from .connection import ApiSettings


class ApiError(DrivetrainError):
    """KFP's API could not be reached, or refused.

    Attributes:
        status: The HTTP status, 0 where there was no answer.
        sent: Whether the server may have carried out the request all the same.
    """

    def __init__(
        self, message: str, *, fix: str | None = None, where: str | None = None, status: int = 0, sent: bool = False
    ) -> None:
        super().__init__(message, fix=fix, where=where)
        self.status = status
        self.sent = sent


class NotAnApi(Exception):  # noqa: N818 - what was found, not what failed
    """An answer that is not JSON: its content type."""


@contextlib.contextmanager
def translated(api: ApiSettings, host: str, what: str, *, changes: bool = False) -> Iterator[None]:
    """Turn errors in the block into an `ApiError`, and keep kfp's prints, warnings and log lines away from the user.

    Args:
        api: How the server is reached.
        host: Its URL, "" where kfp found it by itself.
        what: What it is asked to do, as a verb for the message.
        changes: Whether the request changes something, so that without an answer it is open whether it was done.
    """
    import urllib3
    from kfp_server_api.exceptions import ApiException

    server = host or "Kubeflow Pipelines"
    log = logging.getLogger("urllib3.connectionpool")
    level = log.level
    log.setLevel(logging.ERROR)  # each retry is a warning
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    except ApiException as error:
        raise _answered(server, what, int(error.status or 0), error.body, str(error.reason), changes=changes) from None
    except NotAnApi as error:
        raise ApiError(
            f"{server} cannot {what}: it answers with {error}, as a page to log in does, not with KFP's API",
            fix="give the API's own URL (often the UI's, or that with /pipeline), and a token or cookies",
            status=200,
        ) from None
    except urllib3.exceptions.HTTPError as error:
        raise _unanswered(api, server, what, error, changes=changes) from None
    except OSError as error:  # a file of certificates
        raise ApiError(f"{server} cannot {what}: {error}", fix="see `api:` in kubeflow.yaml") from None
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        cause = redact(f"{type(error).__name__}: {error}")
        raise ApiError(
            f"{server} cannot {what}: kfp cannot read its answer ({cause:.300})",
            fix="see that it is Kubeflow Pipelines 2, and that kfp is of its release or newer",
        ) from error
    finally:
        log.setLevel(level)


_LOOK = "whether it was done is not known: see `drivetrain kubeflow status`, or `schedule list`, before you do it again"


def _answered(server: str, what: str, status: int, body: object, reason: str, *, changes: bool) -> ApiError:
    message = _server_message(body) or reason
    fixes = {
        400: "correct what it names",
        401: "give a token that is valid now: api.token_env, api.token_file, or cookies (docs/kubeflow.md)",
        403: "ask for the right to edit pipelines in that namespace, or give another with --namespace",
        404: "see that --host is KFP's API, and the id one of `drivetrain kubeflow status`",
        409: "give another name",
    }
    words = {401: "it does not accept the credentials", 403: "it does not allow that", 404: "it has no such thing"}
    fix = fixes.get(status, "see the log of its pod ml-pipeline, then ask again")
    because = f"{words[status]}: {message}" if status in words else message
    # A gateway's 504 says only that it stopped waiting, not what became of the request behind it.
    sent = changes and status >= 500
    return ApiError(
        f"{server} cannot {what}: {because} ({status})", fix=_LOOK if sent else fix, status=status, sent=sent
    )


def _unanswered(api: ApiSettings, server: str, what: str, error: Exception, *, changes: bool) -> ApiError:
    from urllib3 import exceptions

    cause: object = error.reason if isinstance(error, exceptions.MaxRetryError) else error
    late = isinstance(cause, exceptions.ReadTimeoutError)
    # A connection that broke after the request was sent leaves it as open as one on which no answer came.
    sent = changes and (late or isinstance(cause, exceptions.ProtocolError))
    if isinstance(cause, exceptions.SSLError):
        because, fix = f"TLS failed: {cause}", "name the authority's file as api.ca_cert; see that the host is right"
    elif isinstance(cause, exceptions.NewConnectionError):  # a kind of timeout, to urllib3
        because = "nothing listens there"
        fix = "see the host; to reach a cluster: kubectl port-forward -n kubeflow svc/ml-pipeline-ui 8080:80"
    elif late or isinstance(cause, exceptions.ConnectTimeoutError):
        because = f"it did not answer within {api.timeout:g} s"
        fix = "ask again, or raise api.timeout"
    else:
        because, fix = f"the connection broke: {cause}", "ask again"
    if sent:
        fix = _LOOK
    return ApiError(redact(f"{server} cannot {what}: {because}"), fix=fix, sent=sent)


def _server_message(body: object) -> str:
    """The message in a gRPC gateway's JSON, or the first line of any other body; without secrets, 300 characters."""
    text = body.decode("utf-8", "replace") if isinstance(body, bytes) else str(body or "")
    with contextlib.suppress(ValueError):
        answer = json.loads(text)
        if isinstance(answer, dict):
            text = str(answer.get("message") or answer.get("error") or answer.get("error_message") or "")
    return redact(text.strip().partition("\n")[0][:300])
