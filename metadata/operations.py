"""What can be asked of a store from afar: a function and the roles that may, declared where the function stands."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, ParamSpec, Protocol, TypeAlias, TypeVar

from .roles import REGISTRY_LOG, Role, role_for_artifact, role_for_context

if TYPE_CHECKING:
    from .store import MetadataStore

_P = ParamSpec("_P")
_T = TypeVar("_T")

Arguments: TypeAlias = Mapping[str, Any]
"""By the names of the parameters; Any: of whatever types these have."""
Asked: TypeAlias = "Callable[[MetadataStore, Arguments], Sequence[Role]]"
"""Says for which roles it is, of the store where it is done and the arguments."""


class Operation(NamedTuple):
    """A function of a store, as it is asked for from afar.

    Attributes:
        name: "publish", "registry.set_alias".
        asked: For which roles it is; `roles.allows` says who has one.
        function: What does it; its first argument is the store, or what holds it as `store`.
        reads: Whether it changes nothing.
    """

    name: str
    asked: Asked
    function: Callable[..., Any]
    reads: bool


class Remote(Protocol):
    """The way to a store that is elsewhere."""

    def ask(self, operation: Operation, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """What an operation gives there; raises what it raises there."""


OPERATIONS: Final[dict[str, Operation]] = {}

_REGISTERED: Final = (REGISTRY_LOG, "registered_model")
"""What registered models are kept as: changed by the operations of the registry alone, which ask who agreed."""


def may_have_context(store: MetadataStore, arguments: Arguments) -> Sequence[Role]:
    """Who may get or make a context: any reader one that is there, else by its type."""
    type_, name = arguments["type"], arguments["name"]
    if not arguments.get("parents") and store.find_context(type_, name) is not None:
        return ("reader",)
    return _changers(type_)


def may_change_context(store: MetadataStore, arguments: Arguments) -> Sequence[Role]:
    """Who may change a context: by the type that it has in the store, not by what the caller says of it."""
    type_ = store.context_type(arguments["context"].id)
    return ("reader",) if type_ is None else _changers(type_)  # nobody can change what there is not


def may_bring_in(store: MetadataStore, arguments: Arguments) -> Sequence[Role]:
    """Who may take in an execution: a writer, into the contexts that are its own."""
    body = arguments["body"]
    while isinstance(body, dict):  # of one from the cache, the execution that it reuses too
        for context in body.get("contexts") or ():
            if isinstance(context, list) and context and _changers(context[0]) != ("writer",):
                return ("admin",)
        body = body.get("source")
    return ("writer",)


def may_change_artifacts(store: MetadataStore, arguments: Arguments) -> Sequence[Role]:
    """Who may change artifacts: see `role_for_artifact`."""
    return (role_for_artifact(arguments.get("state"), arguments.get("properties")),)


def _changers(context_type: object) -> Sequence[Role]:
    if not isinstance(context_type, str) or context_type.startswith(_REGISTERED):
        return ("admin",)
    return (role_for_context(context_type),)


def operation(*roles: Role, asked: Asked | None = None) -> Callable[[Callable[_P, _T]], Callable[_P, _T]]:
    """Declare that a function can be asked for from afar: where its store is elsewhere, it is done there.

    Its parameters and its result are sent by the types that it declares; what reports progress is not sent.

    Args:
        roles: Who may; none: who administers the store alone.
        asked: Says who may, where that depends on the arguments.
    """

    def declare(function: Callable[_P, _T]) -> Callable[_P, _T]:
        module = function.__module__.rpartition(".")[2]
        name = function.__name__ if module in ("reader", "store") else f"{module}.{function.__name__}"
        declared = Operation(name, asked or (lambda _, __: roles or ("admin",)), function, "reader" in roles)
        OPERATIONS[name] = declared

        @functools.wraps(function)
        def performed(*args: _P.args, **kwargs: _P.kwargs) -> _T:
            holder: Any = args[0]  # Any: a store, or what holds one
            remote: Remote | None = holder.remote
            if remote is None:
                return function(*args, **kwargs)
            answer: _T = remote.ask(declared, args[1:], kwargs)
            return answer

        return performed

    return declare
