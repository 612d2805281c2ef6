"""The format `hf-kernels`: a repository for Hugging Face's `kernels`, with the source and the build that it loads."""

from __future__ import annotations

import hashlib
import json
import tomllib
from typing import TYPE_CHECKING

from kforge.export import package
from kforge.export.writing import LICENSE, TEMPLATES, filled

if TYPE_CHECKING:
    from kforge.export.solution import Solution


def files(solution: Solution) -> dict[str, str | bytes]:
    """Return the files by relative path. Raises InputError if the program cannot do without kforge.

    `build/torch-BACKEND/` is what `kernels.get_local_kernel` loads: Python files that compile their kernel when they
    are imported. `torch-ext/` is the same as source.
    """
    values = package.facts(solution)
    backend = backend_of(solution)
    values |= {"hub_name": solution.package.replace("_", "-"), "backend": backend}
    inside = package.module_files(solution, values)
    built = f"build/torch-{backend}"
    return {
        "build.toml": filled("hub/build.toml.j2", values),
        "README.md": filled("package/README.md.j2", values),
        "LICENSE": LICENSE.read_bytes(),
        "receipt.json": solution.proof.to_json(indent=2) + "\n",
        "benchmarks/benchmark.py": filled("hub/benchmark.py.j2", values),
        **{f"torch-ext/{solution.package}/{name}": content for name, content in inside.items()},
        **{f"{built}/{name}": content for name, content in inside.items()},
        f"{built}/metadata.json": json.dumps(_metadata(solution, backend, inside), indent=2) + "\n",
    }


def backend_of(solution: Solution) -> str:
    """Return the hub's name for what the kernel runs on."""
    names = tomllib.loads((TEMPLATES / "hub" / "backends.toml").read_text())
    manifest = solution.platform.manifest
    device = manifest.device.partition(":")[0]
    found: str = names["platforms"].get(manifest.name) or names["devices"].get(device, device)
    return found


def _metadata(solution: Solution, backend: str, inside: dict[str, str | bytes]) -> dict[str, object]:
    """Return the content of `metadata.json`; the id differs for every program, because it is a module's name."""
    content = hashlib.sha256()
    for name, text in sorted(inside.items()):
        content.update(name.encode() + b"\0" + (text.encode() if isinstance(text, str) else text))
    return {
        "id": f"_{solution.package}_{backend}_{content.hexdigest()[:12]}",
        "name": solution.package.replace("_", "-"),
        "version": 1,
        "license": "Apache-2.0",
        "python-depends": [],  # `kernels` refuses all but a few names, none of which a platform needs
        "backend": {"type": backend},
    }
