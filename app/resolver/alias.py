"""Aliases: one name that stands for another (RFC 3651, section 3.2: HS_ALIAS)."""

from __future__ import annotations

from typing import Final

import msgspec

from app.doi.name import HandleName
from app.errors import AliasChainTooLong, InvalidName
from app.resolver.options import ResolveOptions
from app.resolver.resolution import Resolution

#: Aliases that are followed for one name.
MOST_ALIASES: Final = 20


class Chain(msgspec.Struct, frozen=True, gc=False):
    """The resolutions from the name asked for to the one that is no alias, or is not found."""

    resolutions: tuple[Resolution, ...]

    @property
    def last(self) -> Resolution:
        """Where the chain ends."""
        return self.resolutions[-1]

    @property
    def is_alias(self) -> bool:
        """Whether any alias was followed."""
        return len(self.resolutions) > 1

    def then(self, resolution: Resolution) -> Chain:
        """The chain with one more resolution."""
        return Chain((*self.resolutions, resolution))


def next_name(chain: Chain, options: ResolveOptions) -> HandleName | None:
    """The name that the end of the chain stands for, None if it is no alias that may be followed.

    Only the values asked for count: `type=URL` hides an alias. Raises AliasChainTooLong for a loop, and for an
    alias after the twentieth.
    """
    if options.ignore_aliases or not chain.last.found:
        return None
    values = chain.last.record.select(options.types, options.indexes).of_type("HS_ALIAS.")
    if not values:
        return None
    try:
        name = HandleName((values[0].text or "").strip())
    except InvalidName:
        return None
    if len(chain.resolutions) > MOST_ALIASES or any(name == one.name for one in chain.resolutions):
        raise AliasChainTooLong(reached=chain.last.name.text)
    return name
