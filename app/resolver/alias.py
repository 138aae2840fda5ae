"""Aliases: one name that stands for another (RFC 3651, section 3.2: HS_ALIAS)."""

from __future__ import annotations

from typing import Final

import msgspec

from app.doi.name import HandleName
from app.errors import AliasChainTooLong, InvalidName
from app.resolver.options import ResolveOptions
from app.resolver.resolution import Resolution

#: Limit of aliases that are followed for one name.
MAX_ALIASES: Final = 20


class Chain(msgspec.Struct, frozen=True, gc=False):
    """The resolutions from the requested name to one that is not an alias or not found."""

    resolutions: tuple[Resolution, ...]

    @property
    def last(self) -> Resolution:
        """The resolution at the end of the chain."""
        return self.resolutions[-1]

    @property
    def is_alias(self) -> bool:
        """Whether any alias was followed."""
        return len(self.resolutions) > 1

    @property
    def is_verified(self) -> bool:
        """Whether signatures prove the whole chain."""
        return all(resolution.is_verified for resolution in self.resolutions)

    def then(self, resolution: Resolution) -> Chain:
        """A copy of the chain with one more resolution."""
        return Chain((*self.resolutions, resolution))


def next_alias_target(chain: Chain, options: ResolveOptions) -> HandleName | None:
    """The name that the end of the chain stands for. None if it is not an alias, or may not be followed.

    Only the selected values count: `type=URL` hides an alias. Raises AliasChainTooLong for a loop, and for more than
    MAX_ALIASES aliases.
    """
    if options.ignore_aliases or not chain.last.is_registered:
        return None
    values = chain.last.record.select(options.types, options.indexes).of_type("HS_ALIAS.")
    if not values:
        return None
    try:
        name = HandleName((values[0].text or "").strip())
    except InvalidName:
        return None
    if len(chain.resolutions) > MAX_ALIASES or any(name == one.name for one in chain.resolutions):
        raise AliasChainTooLong(reached=chain.last.name.text)
    return name
