"""Why a text cannot be a name. The docstring of a class is its default message."""

from __future__ import annotations

from typing import ClassVar


class InvalidName(ValueError):
    """The name cannot be a DOI name."""

    #: The error as one word for programs.
    token: ClassVar[str] = "invalid-name"

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (type(self).__doc__ or "").strip().splitlines()[0])

    @property
    def message(self) -> str:
        """What is wrong, where, and what to do."""
        return str(self.args[0])


class MalformedEscape(InvalidName):
    """A "%" must be followed by two hexadecimal digits; write a literal percent sign as "%25"."""

    token = "malformed-escape"


class NotUTF8(InvalidName):
    """The bytes of the name are not UTF-8; encode it in UTF-8, then percent-encode it."""

    token = "not-utf-8"


class ForbiddenCodePoint(InvalidName):
    """The name contains a code point that is not allowed in a DOI name."""

    token = "forbidden-code-point"


class NameTooLong(InvalidName):
    """The name is too long."""

    token = "name-too-long"


class EmptyName(InvalidName):
    """The request has no DOI name."""

    token = "empty-name"


class NotADOI(InvalidName):
    """The name is not a DOI name."""

    token = "not-a-doi"
