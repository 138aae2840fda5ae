"""Every setting, its unit and its default. A flag wins over the environment, the environment over the TOML file.

`DOI_PROXY_UPSTREAM_URL=…` in the environment, `url` in the table `[upstream]` of the TOML file and
`--upstream-url` on the command line are the same setting.
"""

from doi_proxy.assembly.settings.sources import Problem, build, load, mask_settings, validate
from doi_proxy.assembly.settings.upstream import Settings

__all__ = ["Problem", "Settings", "build", "load", "mask_settings", "validate"]
