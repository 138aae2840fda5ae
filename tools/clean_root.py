"""A copy of this machine's file system with a network of its own, in which commands can be run as they are printed.

Linux keeps the copy in memory (an overlay in a mount namespace), and it ends with its processes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

#: For all commands of a page, in seconds: the end of one that hangs. A busy machine takes ten times as long as usual.
DEADLINE: Final = 1_200
#: Where the copy is mounted; the namespace hides the mount from every other process.
_PLACE: Final = "/media"
_ISOLATED: Final = ("unshare", "--mount", "--net", "--pid", "--fork", "--kill-child")

_MOUNTS: Final = f"""
set -e
mount -t tmpfs tmpfs {_PLACE}
mkdir {_PLACE}/upper {_PLACE}/work {_PLACE}/root
mount -t overlay overlay -o lowerdir=/,upperdir={_PLACE}/upper,workdir={_PLACE}/work {_PLACE}/root
mount --bind /dev {_PLACE}/root/dev
mount -t proc proc {_PLACE}/root/proc
mount -t tmpfs tmpfs {_PLACE}/root/tmp
ip link set lo up
"""

#: Starts a service as its unit says, without systemd, and sees whether it lives. The first instance of doi-proxy stands
#: for all. The upstream is a sealed doi-proxy with the example records. Everything else is done by the real systemctl.
_SYSTEMCTL: Final = """#!/bin/bash
is_active() { kill -0 "$(cat "/tmp/$1.pid")" 2> /dev/null && echo active || { echo failed; false; }; }
case $1 in
restart) ;;
is-active)
    for service in "${@:2}"; do is_active "$service"; done
    exit ;;
list-units)
    echo doi-proxy@1.service
    exit ;;
*) exec /usr/bin/systemctl "$@" ;;
esac
detached() { setsid "$@" < /dev/null > /dev/null 2> "/tmp/$service.log" & echo $! > "/tmp/$service.pid"; }
stopped() {
    [ -e "/tmp/$1.pid" ] || return 0
    kill "$(cat "/tmp/$1.pid")"
    for _ in {1..300}; do kill -0 "$(cat "/tmp/$1.pid")" || break; sleep 0.1; done
} 2> /dev/null
for service in "${@:2}"; do
    case $service in
    nginx) nginx ;;
    prometheus | prometheus-alertmanager)
        . "/etc/default/$service"
        detached "/usr/bin/$service" $ARGS
        port=$([ "$service" = prometheus ] && echo 9090 || echo 9093)
        curl -s -o /dev/null --retry 30 --retry-delay 1 --retry-connrefused "http://127.0.0.1:$port/-/ready" || true
        ;;
    doi-proxy.target | doi-proxy@1.service)
        service=doi-proxy unit=/usr/lib/systemd/system/doi-proxy@.service
        if [ ! -e /tmp/doi.org.pid ]; then
            service=doi.org detached /opt/doi-proxy/bin/doi-proxy serve --port 9000 --mode sealed --store-url memory: \\
                --seed /usr/share/doi-proxy/seed.ndjson
            curl -s -o /dev/null --retry 120 --retry-delay 1 --retry-connrefused http://127.0.0.1:9000/readyz
        fi
        stopped doi-proxy
        user=$(sed -n 's/^User=//p' "$unit")
        install -d -o "$user" -g "$user" /run/doi-proxy
        mapfile -t variables < <(sed -n 's/%i/1/g; s/^Environment=//p' "$unit")
        read -ra command < <(sed -n 's/^ExecStart=//p' "$unit")
        detached setpriv --reuid="$user" --regid="$user" --init-groups env --chdir=/ -i PATH=/usr/bin:/bin \\
            "${variables[@]}" DOI_PROXY_UPSTREAM_URL=http://127.0.0.1:9000 "${command[@]}"
        # As with Type=notify, the start is over when the service answers.
        curl -s -o /dev/null --retry 120 --retry-delay 1 --retry-connrefused http://127.0.0.1:8000/readyz
        ;;
    esac
done
"""


def missing() -> str | None:
    """Why commands cannot be run in such a copy here, if so."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return "needs root and unshare"
    done = subprocess.run([*_ISOLATED, "sh", "-c", _MOUNTS], capture_output=True, text=True, timeout=60, check=False)
    return done.stderr.strip() or None


def run(script: str, files: dict[str, Path]) -> str:
    """The output of a bash script that runs in the folder /root of the copy, with these files there."""
    copies = "".join(f"install -D '{source}' '{_PLACE}/root/root/{name}'\n" for name, source in files.items())
    stand_in = f"cat > {_PLACE}/root/usr/local/bin/systemctl <<'STAND_IN'\n{_SYSTEMCTL}STAND_IN\n"
    stand_in += f"chmod 755 {_PLACE}/root/usr/local/bin/systemctl\n"
    environment = {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/root",
        "LANG": "C.UTF-8",
    }
    command = f"exec chroot {_PLACE}/root bash -c 'cd /root && exec bash -e -o pipefail'\n"
    done = subprocess.run(
        [*_ISOLATED, "bash", "-c", _MOUNTS + copies + stand_in + command],
        env=environment,
        input=script,
        stdout=subprocess.PIPE,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    return done.stdout
