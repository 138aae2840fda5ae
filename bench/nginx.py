"""The two nginx configurations: a constant answer, and `proxy_cache` in front of the stand-in.

One worker process, no access log, connections kept open: what the other contestants have as well.
"""

from __future__ import annotations

from typing import Final

from bench.names import HOT
from bench.records import answer_of, target_of

_HEAD: Final = """
%%(user)s
worker_processes 1;
daemon off;
pid nginx.pid;
events { worker_connections 16384; }
http {
    access_log off;
    keepalive_requests 1000000000;
    client_body_temp_path temp/body;
    proxy_temp_path temp/proxy;
    fastcgi_temp_path temp/fastcgi;
    uwsgi_temp_path temp/uwsgi;
    scgi_temp_path temp/scgi;
"""

_CONSTANT: Final = """
    server {
        listen 127.0.0.1:%%(port)s;
        location / { return 302 %(target)s; }
        location /api/ { default_type application/json; return 200 '%(record)s'; }
    }
}
"""

_CACHING: Final = """
    proxy_cache_path cache levels=1:2 keys_zone=names:64m max_size=4g inactive=1d use_temp_path=off;
    upstream stand_in { server %%(upstream)s; keepalive 32; }
    server {
        listen 127.0.0.1:%%(port)s%(tls)s;
        location / {
            proxy_pass http://stand_in;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_cache names;
            proxy_cache_key $request_uri;
            proxy_cache_valid 200 302 1d;
            proxy_cache_lock on;
        }
    }
}
"""


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")


#: Templates. Fill in port, upstream (host:port), user (a directive, or "") and folder, which has the certificate.
CONSTANT: Final = (_HEAD + _CONSTANT) % {
    "target": target_of(HOT),
    "record": _escaped(answer_of(HOT).decode()),
}
CACHING: Final = (_HEAD + _CACHING) % {"tls": ""}
CACHING_TLS: Final = (_HEAD + _CACHING) % {
    # Before 1.23.4, nginx has no TLS 1.3 by default. Resuming with TLS 1.2 needs no key exchange: half of the time.
    "tls": (
        " ssl; ssl_protocols TLSv1.2 TLSv1.3;"
        " ssl_certificate %(folder)s/cert.pem; ssl_certificate_key %(folder)s/key.pem"
    )
}
