"""A running server is asked to serve what was pushed, and watched until it does, or says why it does not."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from ..errors import InputError
from ..pipelines.project.context import LaunchContext
from ..serving.client import Client, ServerError

_LOOK_SECONDS: Final = 0.5
_FIRST_ANSWER: Final = 30.0  # seconds that a server may take to answer before anything was pushed
_UNSEEN: Final = 15.0  # seconds after which a version that the server does not list, or does not turn to, never comes
_UNAVAILABLE: Final = 503
_BAD_REQUEST: Final = 400
_NOT_FOUND: Final = 404
_GATEWAYS: Final = (502, 504)

Answer = TypeVar("Answer")


@dataclass
class RolloutStep:
    """A share of the requests that the new version had.

    Attributes:
        share: Percent of the requests that name no version.
        seconds: For how long, as far as it was seen.
        figures: What the server's guard last measured then: `candidate`, `incumbent`, `drift`.
    """

    share: float
    seconds: float = 0.0
    figures: dict[str, Any] = field(default_factory=dict)  # Any: JSON


@dataclass
class ServingReceipt:
    """What came of a version at a server.

    Attributes:
        server: The server's address.
        model: What it calls the model.
        before: The version that answered before; None: none.
        after: The version that was pushed, and answers now.
        load_seconds: From the push until it could be asked.
        steps: The shares that it had on its way, where the server has a rollout for the model.
    """

    server: str
    model: str
    before: int | None = None
    after: int = 0
    load_seconds: float = 0.0
    steps: list[RolloutStep] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:  # Any: JSON
        """As a receipt has it."""
        return asdict(self)


@dataclass
class ServerWatch:
    """Asks one model of a server, and is patient with a server that is being restarted.

    Attributes:
        client: The server.
        model: What the server calls the model.
        launch: Whose push it is.
        seconds: How long a version may take until it can be asked, and how long the server may be silent.
    """

    client: Client
    model: str
    launch: LaunchContext
    seconds: float

    @classmethod
    @contextmanager
    def open(
        cls, server: str, model: str, *, api_key: str | None, tls_ca: Path | None, seconds: float, launch: LaunchContext
    ) -> Iterator[ServerWatch]:
        """A connection to a server while the block runs.

        Raises:
            InputError: The address is not valid, or the certificates cannot be read.
        """
        context = None
        if tls_ca is not None:
            try:
                context = ssl.create_default_context(cafile=tls_ca)
            except (OSError, ValueError) as error:
                raise InputError(f"{tls_ca} holds no certificates: {error!s:.100}", fix="give a file in PEM") from None
        # A version is loaded while its request waits.
        with Client(server, model, api_key=api_key, tls=context, timeout=max(seconds, 1.0)) as client:
            yield cls(client, model, launch, seconds)

    def serving_now(self) -> int | None:
        """The version that answers, once the server has loaded what is there; None: none.

        So a wrong address, model or key is known before anything is pushed.

        Raises:
            ServerError: The server does not answer, has no such model, or does not let us in.
        """
        try:
            self._answer(self.client.load, min(_FIRST_ANSWER, self.seconds))
        except ServerError as error:
            if error.status != _UNAVAILABLE:
                raise
            return None  # to ask for its versions would be answered likewise, after three tries
        return self._current()

    def refuse_failed(self, bundle: str | None) -> None:
        """See that no rollout of the server has taken this bundle back, under any number.

        Args:
            bundle: The digest in its manifest, where it has one.

        Raises:
            ServerError: One has, and the bundle does not answer there by now.
        """
        traffic = self._traffic()
        current = traffic.get("current")
        for failed in (traffic.get("rollout") or {}).get("failed", ()):
            if bundle is None or failed.get("digest") != bundle:
                continue
            if current is None or self._answer(partial(self.client.digest, current), self.seconds) != bundle:
                raise self._taken_back(failed, current)

    def until_served(self, receipt: ServingReceipt, destination: str, bundle: str | None) -> None:
        """Have the server load the version now; return when it answers all requests that name no version.

        Args:
            receipt: Filled in on the way.
            destination: Where the version was pushed to, for messages.
            bundle: The digest in its manifest, where it has one.

        Raises:
            ServerError: The server refuses the version, or its guard did; the version before answers.
        """
        start = time.monotonic()
        self._until_available(receipt.after, destination, start + self.seconds)
        served = self._served_bundle(receipt.after, destination, bundle)
        receipt.load_seconds = round(time.monotonic() - start, 3)
        self.launch.note(f"{receipt.server} has loaded version {receipt.after} of {receipt.model}")
        self._until_taken_over(receipt, served)

    def _until_available(self, version: int, destination: str, deadline: float) -> None:
        unseen = time.monotonic() + _UNSEEN
        while True:
            try:
                self._answer(self.client.load, self.seconds)
            except ServerError as error:
                if error.status != _UNAVAILABLE:
                    raise
            statuses = self._statuses()
            status = next((each for each in statuses if each["version"] == str(version)), {})
            state, reason = status.get("state"), status.get("status", {}).get("error_message", "")
            if state == "AVAILABLE":
                return
            if state == "END" and status["status"]["error_code"] != "OK":
                raise ServerError(f"the server refuses version {version}: {reason}", fix="train and push a whole model")
            now = time.monotonic()
            if state in (None, "END") and now > unseen:
                newer = max((int(each["version"]) for each in statuses if each["state"] == "AVAILABLE"), default=0)
                fix = "let it serve that folder, and the newest version of it: see its base_path and versions"
                if newer > version:
                    fix = f"version {newer} answers there: where it was pushed since, leave it so; else {fix}"
                raise ServerError(f"the server does not serve version {version} of {destination}", fix=fix)
            if now > deadline:
                raise ServerError(f"the server has not loaded version {version} within {self.seconds:g} s")
            self._wait()

    def _served_bundle(self, version: int, destination: str, bundle: str | None) -> str:
        """The digest of the bundle that the server has, which is the one that was pushed, and none from elsewhere."""
        served = self._answer(lambda: self.client.digest(version), self.seconds)
        if bundle is not None and served not in ("", bundle):
            raise ServerError(
                f"version {version} of the server is the bundle {served[:12]}, not {bundle[:12]}, which was pushed",
                fix=f"let it serve {destination}",
            )
        return served

    def _until_taken_over(self, receipt: ServingReceipt, served: str) -> None:
        """Wait while the server's rollout, if it has one for the model, gives the version more and more requests.

        Args:
            receipt: Filled in on the way.
            served: The digest of the bundle: another one may have failed under its number before.
        """
        since = time.monotonic()
        unturned = since + _UNSEEN
        while True:
            traffic = self._traffic()
            rollout = traffic.get("rollout") or {}
            asked = not traffic or traffic.get("current") == receipt.after or str(receipt.after) in traffic["shares"]
            for failed in rollout.get("failed", ()):
                if failed["version"] == receipt.after and failed.get("digest", served) == served:
                    raise self._taken_back(failed, traffic.get("current"))
            now = time.monotonic()
            if rollout.get("candidate") == receipt.after:
                self._add_step(receipt, rollout, now - since)
                unturned = now + _UNSEEN
            elif asked or rollout.get("incumbent") == receipt.after:
                self._add_time(receipt, now - since)
                return
            elif (candidate := rollout.get("candidate")) is not None and candidate > receipt.after:
                raise ServerError(f"version {candidate} was pushed since, and takes over from version {receipt.before}")
            elif now > unturned:
                current = traffic.get("current")
                if current is not None and current > receipt.after:
                    raise ServerError(f"version {current} was pushed since, and answers")
                raise ServerError(
                    f"the server has loaded version {receipt.after}, and version {current} answers",
                    fix="see the rollout of the model in its configuration: it may name another version",
                )
            since = now
            self._wait()

    def _taken_back(self, failed: dict[str, Any], current: object) -> ServerError:  # Any: JSON
        """That a rollout has failed, and what to do."""
        return ServerError(
            f"the server took version {failed['version']} back ({failed['limit']}): {failed['reason']}",
            fix=f"version {current} answers; push a better model, or have the server try this one again: "
            f"POST /v1/models/{self.model}/rollout/retry",
        )

    def _add_step(self, receipt: ServingReceipt, rollout: dict[str, Any], seconds: float) -> None:
        share = float(rollout["share"])
        if not receipt.steps or receipt.steps[-1].share != share:
            receipt.steps.append(RolloutStep(share))
            self.launch.note(f"{share:g} % of the requests go to version {receipt.after}")
        self._add_time(receipt, seconds)
        if rollout.get("figures"):
            receipt.steps[-1].figures = rollout["figures"]

    def _add_time(self, receipt: ServingReceipt, seconds: float) -> None:
        if receipt.steps:
            receipt.steps[-1].seconds = round(receipt.steps[-1].seconds + seconds, 3)

    def _statuses(self) -> list[dict[str, Any]]:  # Any: JSON
        """What the server says of the model's versions; nothing where it has none."""
        try:
            return self._answer(self.client.status, self.seconds)
        except ServerError as error:
            if error.status != _UNAVAILABLE:
                raise
            return []

    def _current(self) -> int | None:
        statuses = self._statuses()
        if not statuses:
            return None
        available = [int(status["version"]) for status in statuses if status["state"] == "AVAILABLE"]
        current = self._traffic().get("current")
        return current if isinstance(current, int) else max(available, default=None)

    def _traffic(self) -> dict[str, Any]:  # Any: JSON
        """Which version gets which share; nothing from a server whose release does not say."""
        try:
            return self._answer(self.client.traffic, self.seconds)
        except ServerError as error:
            if error.status not in (_BAD_REQUEST, _NOT_FOUND):
                raise
            return {}

    def _answer(self, ask: Callable[[], Answer], seconds: float) -> Answer:
        """What the server says, once it does: one that is being restarted is asked again."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                return ask()
            except ServerError as error:
                if error.status not in (0, *_GATEWAYS) or time.monotonic() > deadline:
                    raise
            self._wait()

    def _wait(self) -> None:
        self.launch.check()
        time.sleep(_LOOK_SECONDS)
