"""What all of JMS's objects that are closed share: a ``with`` statement closes them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

__all__ = ["AutoCloseable"]


class AutoCloseable(ABC):
    """An object that is closed at the end of a ``with`` statement."""

    __slots__ = ()

    @abstractmethod
    def close(self) -> None:
        """Close it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self._close_after(error)

    def _close_after(self, error: BaseException) -> None:
        """Close it because *error* leaves its ``with`` statement."""
        self.close()
