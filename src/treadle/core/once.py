"""`once`: a property computed at first use and kept on the object."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar, overload

T = TypeVar("T")


class once(Generic[T]):  # noqa: N801 - it is read as a decorator
    """Like functools.cached_property without its lock, which cost more than most answers.

    Two threads may both compute the value; for frozen objects both get equal ones.
    """

    def __init__(self, compute: Callable[..., T]) -> None:
        self._compute = compute
        self._name = compute.__name__
        self.__doc__ = compute.__doc__

    @overload
    def __get__(self, owner: None, kind: type) -> once[T]: ...
    @overload
    def __get__(self, owner: object, kind: type) -> T: ...
    def __get__(self, owner: object | None, kind: type) -> once[T] | T:
        if owner is None:
            return self
        value = owner.__dict__[self._name] = self._compute(owner)
        return value
