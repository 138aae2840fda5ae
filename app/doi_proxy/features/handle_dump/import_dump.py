"""Writes the dump of a handle server as a file of local records: the whole file, or none of it."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO, Final

from doi_names.errors import InvalidName
from doi_names.name import HandleName
from doi_proxy.errors import ConfigurationError
from doi_proxy.features.command import CommandContext, Importer, refuse_options
from doi_proxy.features.feature import require_libraries
from doi_proxy.features.handle_dump.feature import HandleDump
from doi_proxy.features.local_records.feature import LocalRecordSettings
from doi_proxy.features.local_records.files import FileBounds, read_files
from doi_proxy.system.options import Settings
from doi_proxy.system.progress import Bar, progress
from doi_proxy.system.regular_file import explain_failure, open_regular
from doi_proxy.system.watched_files import list_toml_files
from handle_protocol.dump import DumpRecord, read_dump
from handle_protocol.errors import InvalidDump, MalformedMessage, SignatureInvalid

#: Keys of the dump that are remembered to verify its signatures, and signatures of one record.
_MAX_KEYS: Final = 10_000
_MAX_SIGNATURES: Final = 10
_USUAL: Final = "1110"
_STEP: Final = 200
_LINE_OF_DUMP: Final = re.compile(r"line \d+ of the dump")
#: The first line of a file that an import may replace.
_MARK: Final = "# Written by doi-proxy cache import --format handle-dump; the next import replaces this file.\n"
Values = Mapping[int, Mapping[str, Any]]


def import_dump(settings: Settings, path: Path) -> int:
    """Import a dump into the folder of `local_records`. Returns the exit status. Raises ConfigurationError."""
    group = settings.group(LocalRecordSettings)
    folder = group.local_records
    if folder is None or not folder.is_dir():
        raise ConfigurationError("handle-dump needs a folder in local_records, where it writes a file")
    require_libraries(HandleDump)
    # A proxy does not read a file whose name begins with a dot.
    target = folder / f"{path.name.lstrip('.').partition('.')[0]}.toml"
    part = target.with_suffix(".part")
    try:
        _require_own(target)
        counts = _write(path, part)
        _require_usable(part, target)
        part.replace(target)
    except OSError as error:
        print(f"doi-proxy: {error.filename or path}: {explain_failure(error)}", file=sys.stderr)
        return 1
    except InvalidDump as error:
        print(f"doi-proxy: {path}: {error}; nothing was imported", file=sys.stderr)
        return 1
    finally:
        part.unlink(missing_ok=True)
    _report(counts, target)
    return 0


def _require_own(target: Path) -> None:
    """Keep a file that an operator wrote. Raises ConfigurationError, and OSError."""
    try:
        with open_regular(target) as file:
            is_own = file.read(len(_MARK)) == _MARK.encode()
    except FileNotFoundError:
        return
    if not is_own:
        raise ConfigurationError(f"{target} was not written by an import; rename it or the dump")


def _report(counts: Counter[str], target: Path) -> None:
    print(f"{counts['records']} records of the dump are in {target}")
    private, empty = counts["private"], counts["empty"]
    print(f"{private} values that the public may not read, and {empty} records without others, left out")
    print(f"{counts['signed']} records have a signature of their values, {counts['verified']} by a key of the dump")


def _write(path: Path, part: Path) -> Counter[str]:
    """Write the records to a new file. Raises OSError and InvalidDump."""
    size = path.stat().st_size
    with open_regular(path) as file, progress("importing", 2 * size, in_bytes=True) as bar:
        keys = _read_keys(file, bar)
        file.seek(0)
        records = _Records(keys)
        with part.open("w", encoding="utf-8") as output:
            output.write(_MARK)
            position = 0
            for number, record in enumerate(read_dump(file)):
                output.write(records.write(record))
                if number % _STEP == 0:
                    bar.advance(file.tell() - position)
                    position = file.tell()
            output.flush()
            os.fsync(output.fileno())
    if not records.counts["records"]:
        raise InvalidDump("the dump has no records")
    return records.counts


def _read_keys(file: BinaryIO, bar: Bar) -> dict[str, bytes]:
    """The public keys of the dump by "index:HANDLE". The whole dump is read, so one that is not complete ends here."""
    from handle_protocol.value_signature import read_value_data  # noqa: PLC0415 - it loads the library of signatures

    keys: dict[str, bytes] = {}
    position = 0
    for number, record in enumerate(read_dump(file)):
        for index, value in _index(record).items():
            if value["type"].upper() == "HS_PUBKEY" and len(keys) < _MAX_KEYS:
                try:
                    keys[f"{index}:{record.handle.upper()}"] = read_value_data(value)
                except (ValueError, KeyError, TypeError):
                    continue
        if number % _STEP == 0:
            bar.advance(file.tell() - position)
            position = file.tell()
    return keys


def _index(record: DumpRecord) -> Values:
    """The values of a record by their index. Raises InvalidDump."""
    try:
        HandleName(record.handle)
    except InvalidName as error:
        raise InvalidDump(f"{record.handle[:200]!r}: {error.message}") from error
    if "/" not in record.handle:
        raise InvalidDump(f"{record.handle[:200]} has no slash after its prefix")
    if not isinstance(record.values, list):
        raise InvalidDump(f"{record.handle[:200]} has no list of values")
    values: dict[int, Mapping[str, Any]] = {}
    for value in record.values:
        if not isinstance(value, dict) or not isinstance(value.get("index"), int):
            raise InvalidDump(f"{record.handle[:200]}: a value has no index")
        if not isinstance(value.get("data"), dict):
            raise InvalidDump(f"{record.handle[:200]}: the value {value['index']} has no data")
        if not isinstance(value.get("type"), str) or value["index"] in values:
            raise InvalidDump(f"{record.handle[:200]}: the value {value['index']} has no type, or is there twice")
        values[value["index"]] = value
    return values


class _Records:
    """Writes records, and counts what was done."""

    def __init__(self, keys: Mapping[str, bytes]) -> None:
        self._keys = keys
        self.counts: Counter[str] = Counter()

    def write(self, record: DumpRecord) -> str:
        """A record as text; empty if the public may read none of its values. Raises InvalidDump."""
        values = _index(record)
        self._check_signatures(record.handle, values)
        public = [value for value in values.values() if _is_public(value)]
        self.counts["private"] += len(values) - len(public)
        if not public:
            self.counts["empty"] += 1
            return ""
        self.counts["records"] += 1
        return (
            f"[[record]]\ndoi = {_quote(record.handle)}\nvalues = {_quote(json.dumps(public, ensure_ascii=False))}\n\n"
        )

    def _check_signatures(self, handle: str, values: Values) -> None:
        """Compare the values with the digests of each HS_SIGNATURE, and verify it if the dump has its key."""
        from handle_protocol.value_signature import read_signature, read_value_data  # noqa: PLC0415 - see _read_keys

        signatures = [value for value in values.values() if value["type"].upper() == "HS_SIGNATURE"]
        if len(signatures) > _MAX_SIGNATURES:
            raise InvalidDump(f"{handle[:200]} has over {_MAX_SIGNATURES} signatures")
        self.counts["signed"] += bool(signatures)
        verified = 0
        for value in signatures:
            place = f"{handle[:200]}: the signature at index {value['index']}"
            try:
                signature = read_signature(read_value_data(value).decode())
                changed = signature.find_changed(values)
                key = self._keys.get(signature.issuer.upper())
                if key is not None:
                    signature.verify(key)
                    verified += 1
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                raise InvalidDump(f"{place} cannot be read: {str(error)[:200]}") from error
            except (SignatureInvalid, MalformedMessage) as error:
                raise InvalidDump(f"{place} was not made by {signature.issuer[:200]}") from error
            if signature.subject.upper() != handle.upper():
                raise InvalidDump(f"{place} is about {signature.subject[:200]}")
            if changed is not None:
                raise InvalidDump(f"{handle[:200]}: the value at index {changed} is not the one that was signed")
        self.counts["verified"] += bool(verified) and verified == len(signatures)


def _is_public(value: Mapping[str, Any]) -> bool:
    permissions = value.get("permissions", _USUAL)
    return isinstance(permissions, str) and permissions[2:3] == "1" and value["type"].upper() != "HS_SECKEY"


def _quote(text: str) -> str:
    """A basic string of TOML, whose escapes are those of JSON but for U+007F."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidDump("a text of the dump has half a character (a surrogate)") from error
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _require_usable(part: Path, target: Path) -> None:
    """Read the new file beside the others of its folder as a proxy would. Raises InvalidDump."""
    places: dict[str, str] = {}
    with TemporaryDirectory() as folder:
        for number, file in enumerate([*list_toml_files(target.parent), part]):
            if file != target:
                link = Path(folder) / f"{number}.toml"
                link.symlink_to(file.absolute())
                places[str(link)] = "the dump" if file == part else str(file)
        reading = read_files(Path(folder), FileBounds(), time.time())
    if reading.errors:
        message = reading.errors[0].message
        for link_text, place in places.items():
            message = message.replace(link_text, place)
        # Its lines are those of the file that was written, and not of the dump.
        raise InvalidDump(f"a proxy could not use it: {_LINE_OF_DUMP.sub('the dump', message)}")


def _run(context: CommandContext, namespace: argparse.Namespace, form: str) -> int:
    options = namespace.since, namespace.missing, namespace.restart, namespace.replace, namespace.no_checksum
    names = "--since, --missing, --restart, --replace and --no-checksum"
    refuse_options({names: any(options)}, "are not for the dump of a handle server")
    return import_dump(context.settings, Path(namespace.path))


IMPORTER: Final = Importer(("handle-dump",), _run)
