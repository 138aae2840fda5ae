"""The preset dictionaries of the stores' compression: texts that many records contain (RFC 1950, section 2.2: FDICT).

A dictionary is never changed after a release, because the records in stores are read with it. A better one gets a new
number, and a new format version. Written by hand from the shapes that the registration agencies and the large
publishers document, the commonest last: a short distance takes fewer bits.
docs/decisions/0014-compression-of-the-store.md has the measurements.
"""

from __future__ import annotations

from functools import cache

from doi_proxy.system.package_files import read_package_file


@cache
def read_dictionary_1() -> bytes:
    """The first dictionary: values of handle records, then beginnings and middle parts of URLs."""
    return read_package_file("doi_proxy.store", "dictionary_1.txt")
