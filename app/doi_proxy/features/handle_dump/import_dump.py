"""Writes the dump of a handle server as a file of local records: the whole file, or none of it.

A dump is read to its end, and every record that cannot be used is reported. On request, these are left out.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO, Final, NamedTuple

from doi_names.errors import InvalidName
from doi_names.name import HandleName
from doi_proxy.errors import ConfigurationError
from doi_proxy.features.feature import CommandContext, Importer, refuse_options, require_libraries
from doi_proxy.features.handle_dump.feature import HandleDump
from doi_proxy.features.local_records.feature import LocalRecordSettings
from doi_proxy.features.local_records.file_text import read_records
from doi_proxy.features.local_records.files import MAX_RECORDS, record_files
from doi_proxy.store.kept_file import list_toml_files
from doi_proxy.system.files import Replacement, explain_failure, open_regular, write_output
from doi_proxy.system.options import Settings
from doi_proxy.system.progress import Bar, progress
from doi_proxy.system.toml_text import FileProblem
from handle_protocol.dump import DumpRecord, read_dump
from handle_protocol.errors import InvalidDump, MalformedMessage, SignatureInvalid

_STEP: Final = 200
_LINE_OF_DUMP: Final = re.compile(r"line \d+ of the dump")
#: The first line of a file that an import may replace.
_MARK: Final = "# Written by doi-proxy cache import --format handle-dump; the next import replaces this file.\n"
#: Records that cannot be used, and bytes of their names, after which the dump is not read on.
_MAX_FLAWS: Final = 100_000
_MAX_FLAW_BYTES: Final = 64 * 1024 * 1024
Values = Mapping[int, Mapping[str, Any]]


class UnusableRecord(Exception):
    """A record of the dump cannot be a local record. The message names it, and says why."""

    def __init__(self, handle: str, reason: str) -> None:
        shown = handle[:200] if handle.isprintable() and handle == handle.strip() else repr(handle[:200])
        super().__init__(f"{shown}{reason}")
        self.handle = handle


class _Flaw(NamedTuple):
    """The name of a record that cannot be used, and the text that says why."""

    handle: str
    text: str


def import_dump(settings: Settings, path: Path, skip: Path | None = None) -> int:
    """Import a dump into the folder of `local_records`. Returns the exit status. Raises ConfigurationError.

    With `skip`, records that cannot be used are left out, and that file gets their names.
    """
    group = settings.group(LocalRecordSettings)
    folder = group.local_records
    if folder is None or not folder.is_dir():
        raise ConfigurationError("handle-dump needs a folder in local_records, where it writes a file")
    require_libraries(HandleDump)
    # A proxy does not read a file whose name begins with a dot.
    target = folder / f"{path.name.lstrip('.').partition('.')[0]}.toml"
    try:
        _require_own(target)
        with Replacement(target) as replacement:
            # The public may read these records, and the service may be another user.
            os.fchmod(replacement.file.fileno(), 0o644)
            counts, flaws = _write(path, replacement.file)
            if flaws and skip is None:
                for flaw in flaws:
                    print(f"doi-proxy: {path}: {flaw.text}", file=sys.stderr)
                raise InvalidDump(f"records that cannot be used: {len(flaws)}; --skip-unusable FILE leaves them out")
            if not counts["records"]:
                raise InvalidDump("the dump has no records")
            _require_usable(replacement.partial, target)
            if skip is not None:
                lines = (f"{json.dumps(flaw.handle)}\t{flaw.text}\n" for flaw in flaws)
                write_output(skip, "".join(lines).encode())
            replacement.put()
    except OSError as error:
        print(f"doi-proxy: {error.filename or path}: {explain_failure(error)}", file=sys.stderr)
        return 1
    except InvalidDump as error:
        print(f"doi-proxy: {path}: {error}; nothing was imported", file=sys.stderr)
        return 1
    _report(counts, target)
    if skip is not None:
        print(f"{len(flaws)} records that cannot be used, left out; their names are in {skip}")
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
    print(
        f"{counts['private']} values that the public may not read, left out; {counts['empty']} records have no others"
    )
    print(f"{counts['signed']} records have a signature of their values, {counts['verified']} by a key of the dump")
    if counts["unread"]:
        print(f"{counts['unread']} signatures cannot be read; their records are imported with them as they stand")


def _write(path: Path, output: BinaryIO) -> tuple[Counter[str], list[_Flaw]]:
    """Write the records to an open file, without those that cannot be used. Raises OSError and InvalidDump."""
    flaws: list[_Flaw] = []
    flaw_bytes = 0
    size = path.stat().st_size
    with open_regular(path) as file, progress("importing", 2 * size, in_bytes=True) as bar:
        keys = _read_keys(file, bar)
        file.seek(0)
        records = _Records(keys)
        output.write(_MARK.encode())
        position = 0
        for number, record in enumerate(read_dump(file)):
            try:
                output.write(records.write(record).encode())
            except UnusableRecord as flaw:
                # The exception would keep its cause, whose traceback has the whole record.
                flaws.append(_Flaw(flaw.handle, str(flaw)))
                flaw_bytes += len(flaw.handle.encode(errors="surrogatepass"))
            is_flawed = len(flaws) > _MAX_FLAWS or flaw_bytes > _MAX_FLAW_BYTES
            if is_flawed or records.counts["records"] > MAX_RECORDS:
                raise InvalidDump(
                    f"the dump has over {MAX_RECORDS} records, or over {_MAX_FLAWS} that cannot be used, or "
                    f"names of these with over {_MAX_FLAW_BYTES} bytes"
                )
            if number % _STEP == 0:
                bar.advance(file.tell() - position)
                position = file.tell()
        output.flush()
    return records.counts, flaws


def _read_keys(file: BinaryIO, bar: Bar) -> dict[str, bytes]:
    """The public keys of the dump by "index:HANDLE". The whole dump is read, so one that is not complete ends here."""
    from handle_protocol.signature_chain import read_value_data  # noqa: PLC0415 - it loads the library of signatures

    keys: dict[str, bytes] = {}
    room = 16 * 1024 * 1024
    position = 0
    for number, record in enumerate(read_dump(file)):
        with suppress(UnusableRecord):
            for index, value in _index(record).items():
                if value["type"].upper() == "HS_PUBKEY":
                    with suppress(ValueError, KeyError, TypeError):
                        key, name = read_value_data(value), f"{index}:{record.handle.upper()}"
                        size = len(key) + len(name.encode(errors="surrogatepass"))
                        # The largest key that is remembered to verify signatures, all of them with their names, and
                        # signatures of one record. A key of 8,192 bits, the longest that is verified, has three numbers
                        # of 1 KiB at most.
                        if len(key) <= (4 * 1024) and size <= room:
                            keys[name] = key
                            room -= size
        if number % _STEP == 0:
            bar.advance(file.tell() - position)
            position = file.tell()
    return keys


def _index(record: DumpRecord) -> Values:
    """The values of a record by their index. Raises UnusableRecord."""
    handle = record.handle
    try:
        HandleName(handle)
    except InvalidName as error:
        raise UnusableRecord(handle, f": {error.message}") from error
    if "/" not in handle:
        raise UnusableRecord(handle, " has no slash after its prefix")
    if not isinstance(record.values, list):
        raise UnusableRecord(handle, " has no list of values")
    values: dict[int, Mapping[str, Any]] = {}
    for value in record.values:
        if not isinstance(value, dict) or not isinstance(value.get("index"), int):
            raise UnusableRecord(handle, ": a value has no index")
        if not isinstance(value.get("data"), dict):
            raise UnusableRecord(handle, f": the value {value['index']} has no data")
        if not isinstance(value.get("type"), str) or value["index"] in values:
            raise UnusableRecord(handle, f": the value {value['index']} has no type, or is there twice")
        values[value["index"]] = value
    return values


class _Records:
    """Writes records, and counts what was done."""

    def __init__(self, keys: Mapping[str, bytes]) -> None:
        self._keys = keys
        self._names: set[str] = set()
        self.counts: Counter[str] = Counter()

    def write(self, record: DumpRecord) -> str:
        """A record as text. Raises UnusableRecord."""
        values, handle = _index(record), record.handle
        signatures, verified = self._check_signatures(handle, values)
        public = [value for value in values.values() if _is_public(value)]
        # As the server wrote them: see `escape_separators`.
        written = json.dumps(public, ensure_ascii=False).replace("\u2028", r"\u2028").replace("\u2029", r"\u2029")
        text = f"[[record]]\ndoi = {_quote(handle, handle)}\nvalues = {_quote(written, handle)}\n\n"
        for found in read_records(text, "the dump"):
            if isinstance(found, FileProblem) and found.severity == "error":
                raise UnusableRecord(handle, f": a proxy could not use it: {found.message}")
        key = HandleName(handle).key
        if key in self._names:
            raise UnusableRecord(handle, " has a record already, in the dump")
        self._names.add(key)
        counts = {"private": len(values) - len(public), "empty": not public, "records": True}
        self.counts.update(counts | {"signed": bool(signatures), "verified": 0 < verified == signatures})
        return text

    def _check_signatures(self, handle: str, values: Values) -> tuple[int, int]:
        """Compare the values with the digests of each HS_SIGNATURE, and verify it if the dump has its key.

        Returns the number of signatures, and of those that are verified. Raises UnusableRecord.
        """
        from handle_protocol.signature_chain import read_signature, read_value_data  # noqa: PLC0415 - see _read_keys

        signatures = [value for value in values.values() if value["type"].upper() == "HS_SIGNATURE"]
        if len(signatures) > 10:
            raise UnusableRecord(handle, " has over 10 signatures")
        verified = 0
        for value in signatures:
            place = f": the signature at index {value['index']}"
            try:
                signature = read_signature(read_value_data(value).decode())
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                # It proves nothing, and says nothing against the record. Its value stays as the server has it.
                self.counts["unread"] += 1
                continue
            try:
                changed = signature.find_changed(values)
                key = self._keys.get(signature.issuer.upper())
                if key is not None:
                    signature.verify(key)
                    verified += 1
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                raise UnusableRecord(handle, f"{place} cannot be compared: {str(error)[:200]}") from error
            except (SignatureInvalid, MalformedMessage) as error:
                raise UnusableRecord(handle, f"{place} was not made by {signature.issuer[:200]}") from error
            if signature.subject.upper() != handle.upper():
                raise UnusableRecord(handle, f"{place} is about {signature.subject[:200]}")
            if changed is not None:
                raise UnusableRecord(handle, f": the value at index {changed} is not the one that was signed")
        return len(signatures), verified


def _is_public(value: Mapping[str, Any]) -> bool:
    permissions = value.get("permissions", "1110")
    return isinstance(permissions, str) and permissions[2:3] == "1" and value["type"].upper() != "HS_SECKEY"


def _quote(text: str, handle: str) -> str:
    """A basic string of TOML, whose escapes are those of JSON but for U+007F."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UnusableRecord(handle, ": a text has half a character (a surrogate)") from error
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
        reading = record_files(time.time).read(Path(folder))
    if reading.errors:
        # Conflicts with other files that are shown.
        message = "; ".join(problem.message for problem in reading.errors[:20])
        for link_text, place in places.items():
            message = message.replace(link_text, place)
        # Its lines are those of the file that was written, and not of the dump.
        raise InvalidDump(f"a proxy could not use it: {_LINE_OF_DUMP.sub('the dump', message)}")


def _run(context: CommandContext, namespace: argparse.Namespace, form: str) -> int:
    options = namespace.since, namespace.missing, namespace.restart, namespace.no_checksum
    names = "--since, --missing, --restart and --no-checksum"
    refuse_options({names: any(options)}, "are not for the dump of a handle server")
    return import_dump(context.settings, Path(namespace.path), namespace.skip_unusable)


IMPORTER: Final = Importer(("handle-dump",), _run)
