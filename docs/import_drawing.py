"""Draws which folders of app/ import which, for docs/architecture.md. It imports nothing of app/."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

_APP: Final = Path(__file__).resolve().parents[1] / "app"
#: The package whose folders are drawn. The others are drawn whole.
_SERVICE: Final = "doi_proxy"
_FEATURES: Final = "features"

Edges = dict[str, set[str]]


def draw_imports() -> str:
    """The folders from the top down, each with those that it imports and that no other one of these imports for it.

    Below them are the features that import others. Raises ValueError if folders import each other in a circle.
    """
    folders, features = _read_edges()
    order = _sort(folders)
    width = max(map(len, order))
    lines = [_draw_line(folder, _leave_out_indirect(folders, folder), order, width) for folder in order]
    needing = [name for name in _sort(features) if features[name]]
    if needing:
        width = max(map(len, needing))
        lines += ["", *(_draw_line(name, features[name], sorted(features[name]), width) for name in needing)]
    return "\n".join(lines)


def _draw_line(name: str, imported: set[str], order: list[str], width: int) -> str:
    shown = ", ".join(one for one in order if one in imported)
    return f"{name:{width}} -> {shown}" if shown else name


def _read_edges() -> tuple[Edges, Edges]:
    """What each folder imports, and what each feature imports of other features."""
    folders, features = Edges(), Edges()
    for path in sorted(_APP.rglob("*.py")):
        parts = path.relative_to(_APP).with_suffix("").parts
        if parts[-1] == "__main__" or parts[-1] == "__init__":
            continue
        folder, feature = _folder_of(parts), _feature_of(parts)
        for target in _list_targets(path):
            other, other_feature = _folder_of(target), _feature_of(target)
            if other and other != folder:
                folders.setdefault(folder, set()).add(other)
                folders.setdefault(other, set())
            if feature and other_feature and feature != other_feature:
                features.setdefault(feature, set()).add(other_feature)
                features.setdefault(other_feature, set())
    return folders, features


def _list_targets(path: Path) -> Iterator[tuple[str, ...]]:
    """The parts of the names of the modules that a module imports."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from ((*node.module.split("."), alias.name) for alias in node.names)


def _folder_of(parts: tuple[str, ...]) -> str:
    """The package, or the folder or module of the service. "" for a library."""
    if parts[0] != _SERVICE:
        return parts[0] if (_APP / parts[0]).is_dir() else ""
    return parts[1] if len(parts) > 1 else ""


def _feature_of(parts: tuple[str, ...]) -> str:
    is_feature = parts[:2] == (_SERVICE, _FEATURES) and len(parts) > 2 and _APP.joinpath(*parts[:3]).is_dir()
    return parts[2] if is_feature else ""


def _sort(edges: Mapping[str, set[str]]) -> list[str]:
    """Every name before those that it imports; names that could stand in either order, by the alphabet."""
    left, order = {name: set(imported) for name, imported in edges.items()}, list[str]()
    while left:
        lowest = sorted(name for name, imported in left.items() if not imported)
        if not lowest:
            raise ValueError(f"these import each other in a circle: {', '.join(sorted(left))}")
        for name in lowest:
            del left[name]
        for imported in left.values():
            imported.difference_update(lowest)
        order = [*lowest, *order]
    return order


def _leave_out_indirect(edges: Mapping[str, set[str]], name: str) -> set[str]:
    """What a folder imports, without what these import too."""
    indirect = {below for one in edges[name] for below in _reach(edges, one)}
    return edges[name] - indirect


def _reach(edges: Mapping[str, set[str]], name: str) -> set[str]:
    found, new = set[str](), [name]
    while new:
        for one in edges[new.pop()] - found:
            found.add(one)
            new.append(one)
    return found
