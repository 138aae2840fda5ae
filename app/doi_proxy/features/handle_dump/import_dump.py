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
from typing import Final

import msgspec

from doi_proxy.errors import ConfigurationError
from doi_proxy.features.feature import CommandContext, Importer, refuse_options, require_libraries
from doi_proxy.features.handle_dump.feature import HandleDump
from doi_proxy.features.local_records.feature import LocalRecordSettings
from doi_proxy.features.local_records.file_text import IMPORT_START, read_records
from doi_proxy.features.local_records.files import MAX_RECORDS, record_files
from doi_proxy.system.files import Replacement, explain_failure, open_regular, read_regular, write_output
from doi_proxy.system.options import Settings
from doi_proxy.system.toml_text import FileProblem
from handle_protocol.dump import read_dump
from handle_protocol.errors import InvalidDump, MalformedMessage, SignatureInvalid, UnusableAnswer
from handle_protocol.json_sites import to_wire_value
from handle_protocol.value import HandleValue, escape_separators, read_value

#: The first line of a file of TOML that an earlier version wrote.
_MARK: Final = b"# Written by doi-proxy cache import --format handle-dump;"
_values: Final = msgspec.json.Decoder(list[msgspec.Raw])


class UnusableRecord(Exception):
    """A record of the dump cannot be a local record. The message names it, and says why."""

    def __init__(self, handle: str, reason: str) -> None:
        shown = handle[:200] if handle.isprintable() and handle == handle.strip() else repr(handle[:200])
        super().__init__(f"{shown}{reason}")


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
    target = folder / f"{path.name.lstrip('.').partition('.')[0]}.ndjson"
    earlier = target.with_suffix(".toml")
    try:
        if target.exists() and not _begins_with(target, IMPORT_START.encode()):
            raise ConfigurationError(f"{target} was not written by an import; rename it or the dump")
        replaced = {target, earlier} if earlier.exists() and _begins_with(earlier, _MARK) else {target}
        records = _Records(list(read_dump(read_regular(path, 512 * 1024 * 1024))))
        if skip is None and records.flaws:
            for _, text in records.flaws:
                print(f"doi-proxy: {path}: {text}", file=sys.stderr)
            hint = "--skip-unusable FILE leaves them out"
            raise InvalidDump(f"records that cannot be used: {len(records.flaws)}; {hint}")
        _write(records, target, replaced, skip)
    except OSError as error:
        print(f"doi-proxy: {error.filename or path}: {explain_failure(error)}", file=sys.stderr)
        return 1
    except InvalidDump as error:
        print(f"doi-proxy: {path}: {error}; nothing was imported", file=sys.stderr)
        return 1
    records.report(target)
    if earlier in replaced:
        print(f"{earlier}, which an earlier import wrote, is replaced by it")
    if skip is not None:
        print(f"{len(records.flaws)} records that cannot be used, left out; their names are in {skip}")
    return 0


def _write(records: _Records, target: Path, replaced: set[Path], skip: Path | None) -> None:
    """Put the file in the place of those that it replaces. Raises InvalidDump and OSError."""
    if not records.lines:
        raise InvalidDump("the dump has no records")
    with Replacement(target) as replacement:
        # The public may read these records, and the service may be another user.
        os.fchmod(replacement.file.fileno(), 0o644)
        replacement.file.writelines(records.lines)
        replacement.file.flush()
        _require_usable(replacement.partial, target.parent, replaced)
        if skip is not None:
            lines = (f"{json.dumps(handle)}\t{text}\n" for handle, text in records.flaws)
            write_output(skip, "".join(lines).encode())
        replacement.put()
    for file in replaced - {target}:
        file.unlink()


def _begins_with(path: Path, start: bytes) -> bool:
    """Whether a file begins so. Raises OSError."""
    with open_regular(path) as file:
        return file.read(len(start)) == start


class _Records:
    """The records of a dump as lines of a file, and what was done with them."""

    def __init__(self, dump: list[tuple[str, msgspec.Raw]]) -> None:
        """Raises InvalidDump for too many."""
        if len(dump) > MAX_RECORDS:
            raise InvalidDump(f"the dump has {len(dump)} records; at most {MAX_RECORDS} can be local records")
        self._keys = _read_keys(dump)
        self._names: set[str] = set()
        self.lines: list[bytes] = []
        #: The names of records that cannot be used, and the texts that say why.
        self.flaws: list[tuple[str, str]] = []
        self._counts: Counter[str] = Counter()
        for handle, values in dump:
            try:
                self._add(handle, _index(handle, values))
            except UnusableRecord as flaw:
                # The exception would keep its cause, whose traceback has the whole record.
                self.flaws.append((handle, str(flaw)))

    def report(self, target: Path) -> None:
        """Print what was done."""
        counts = self._counts
        print(f"{len(self.lines)} records of the dump are in {target}")
        print(
            f"{counts['private']} values that the public may not read, left out; "
            f"{counts['empty']} records have no others"
        )
        print(f"{counts['signed']} records have a signature of their values, {counts['verified']} by a key of the dump")
        if counts["unread"]:
            print(f"{counts['unread']} signatures cannot be read; their records are imported with them as they stand")

    def _add(self, handle: str, values: Mapping[int, HandleValue]) -> None:
        """Write one record. Raises UnusableRecord."""
        signatures, verified = self._check_signatures(handle, values)
        public = [
            value.raw for value in values.values() if value.permissions[2:3] == "1" and value.folded_type != "HS_SECKEY"
        ]
        line = IMPORT_START.encode() + msgspec.json.encode(handle) + b',"values":[' + b",".join(public) + b"]}\n"
        try:
            (record,) = read_records(line.decode(), "the dump")
        except UnicodeDecodeError as error:
            raise UnusableRecord(handle, ": a text is not UTF-8") from error
        if isinstance(record, FileProblem):
            raise UnusableRecord(handle, f": a proxy could not use it: {record.message}")
        if record.key in self._names:
            raise UnusableRecord(handle, " has a record already, in the dump")
        self._names.add(record.key)
        self.lines.append(escape_separators(line))
        counts = {"private": len(values) - len(public), "empty": not public}
        self._counts.update(counts | {"signed": bool(signatures), "verified": 0 < verified == signatures})

    def _check_signatures(self, handle: str, values: Mapping[int, HandleValue]) -> tuple[int, int]:
        """Compare the values with the digests of each HS_SIGNATURE, and verify it if the dump has its key.

        Returns the number of signatures, and of those that are verified. Raises UnusableRecord.
        """
        from handle_protocol.signature_chain import (  # noqa: PLC0415 - it loads the library of signatures
            SIGNATURE_ERRORS,
            read_signature,
        )

        signatures = [value for value in values.values() if value.folded_type == "HS_SIGNATURE"]
        if len(signatures) > 10:
            raise UnusableRecord(handle, " has over 10 signatures")
        verified = 0
        for value in signatures:
            place = f": the signature at index {value.index}"
            try:
                signature = read_signature(to_wire_value(value).data.decode())
            except SIGNATURE_ERRORS:
                # It proves nothing, and says nothing against the record. Its value stays as the server has it.
                self._counts["unread"] += 1
                continue
            try:
                changed = signature.find_changed(values)
                key = self._keys.get(signature.issuer.upper())
                if key is not None:
                    signature.verify(key)
                    verified += 1
            except SIGNATURE_ERRORS as error:
                raise UnusableRecord(handle, f"{place} cannot be compared: {str(error)[:200]}") from error
            except (SignatureInvalid, MalformedMessage) as error:
                raise UnusableRecord(handle, f"{place} was not made by {signature.issuer[:200]}") from error
            if signature.subject.upper() != handle.upper():
                raise UnusableRecord(handle, f"{place} is about {signature.subject[:200]}")
            if changed is not None:
                raise UnusableRecord(handle, f": the value at index {changed} is not the one that was signed")
        return len(signatures), verified


def _read_keys(dump: list[tuple[str, msgspec.Raw]]) -> dict[str, bytes]:
    """The public keys of the dump by "index:HANDLE"."""
    keys: dict[str, bytes] = {}
    for handle, values in dump:
        # To look for the word takes a hundredth of the time of reading all values.
        if b"HS_PUBKEY" in bytes(values).upper():
            with suppress(UnusableRecord, UnusableAnswer):
                for index, value in _index(handle, values).items():
                    if value.folded_type == "HS_PUBKEY":
                        keys[f"{index}:{handle.upper()}"] = to_wire_value(value).data
    return keys


def _index(handle: str, values: msgspec.Raw) -> dict[int, HandleValue]:
    """The values of a record by their index. Raises UnusableRecord."""
    if "/" not in handle:
        raise UnusableRecord(handle, " has no slash after its prefix")
    found: dict[int, HandleValue] = {}
    try:
        for raw in _values.decode(values):
            value = read_value(msgspec.json.format(bytes(raw), indent=-1))
            if value.index in found:
                raise UnusableRecord(handle, f": the value {value.index} is there twice")
            found[value.index] = value
    except msgspec.DecodeError as error:
        raise UnusableRecord(handle, " has no list of values") from error
    except UnusableAnswer as error:
        raise UnusableRecord(handle, f": a value cannot be read: {(error.detail or error.message)[:200]}") from error
    return found


def _require_usable(part: Path, folder: Path, replaced: set[Path]) -> None:
    """Read the new file beside the others of its folder as a proxy would. Raises InvalidDump."""
    kind = record_files(time.time)
    reading = kind.read_files([*(file for file in kind.list_files(folder) if file not in replaced), part])
    if reading.errors:
        # Conflicts with other files that are shown.
        message = "; ".join(problem.message for problem in reading.errors[:20])
        # Its lines are those of the file that was written, and not of the dump.
        message = re.sub(rf"(line \d+ of )?{re.escape(str(part))}", "the dump", message)
        raise InvalidDump(f"a proxy could not use it: {message}")


def _run(context: CommandContext, namespace: argparse.Namespace, form: str) -> int:
    options = namespace.since, namespace.missing, namespace.restart, namespace.no_checksum
    names = "--since, --missing, --restart and --no-checksum"
    refuse_options({names: any(options)}, "are not for the dump of a handle server")
    return import_dump(context.settings, Path(namespace.path), namespace.skip_unusable)


IMPORTER: Final = Importer(("handle-dump",), _run)
