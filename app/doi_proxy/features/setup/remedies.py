"""The line of a front proxy's configuration that mends a fault. The files of `doi-proxy gen-config` have them all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

Fault = Literal[
    "slashes",
    "decoding",
    "encoded slashes",
    "characters",
    "query",
    "long request",
    "long header",
    "scheme",
    "host",
    "client",
    "trust",
    "forgery",
    "accept",
    "head",
    "errors",
    "redirect",
    "vary",
    "private",
    "cache key",
    "admin",
    "status",
    "lists",
]
KINDS: Final = ("nginx", "apache", "caddy", "haproxy")
#: Words in the Server header.
_SERVERS: Final[Mapping[str, str]] = {"nginx": "nginx", "openresty": "nginx", "apache": "apache", "caddy": "caddy"}

_NGINX: Final[Mapping[Fault, str]] = {
    "slashes": "`merge_slashes off;` in the server block and in the default server of the same port, and "
    "`proxy_pass http://doi_proxy;` with nothing after the name",
    "decoding": "`proxy_pass http://doi_proxy;` with nothing after the name, not even a slash, and without rewrite",
    "encoded slashes": "`proxy_pass http://doi_proxy;` with nothing after the name",
    "characters": "`location ^~ /`, or no `location ~ \\.php$` and no rewrite beside it",
    "query": "`proxy_pass http://doi_proxy;` without $uri or $args in it",
    "long request": "`large_client_header_buffers 4 64k;` in the server block and in the default server",
    "long header": "`proxy_buffer_size 64k; proxy_buffers 8 64k; proxy_busy_buffers_size 128k;`",
    "scheme": "`proxy_set_header X-Forwarded-Proto $scheme;`",
    "host": "`proxy_set_header Host $http_host;`",
    "client": "`proxy_set_header X-Forwarded-For $remote_addr;`",
    "forgery": "`proxy_set_header X-Forwarded-For $remote_addr;` instead of $proxy_add_x_forwarded_for",
    "accept": "remove `proxy_set_header Accept`",
    "head": "remove `proxy_method` and `limit_except`",
    "errors": "`proxy_intercept_errors off;`",
    "redirect": "`proxy_redirect off;`",
    "vary": "remove Vary from `proxy_ignore_headers` and from `proxy_hide_header`",
    "private": "remove Cache-Control from `proxy_ignore_headers`, and `proxy_cache_valid`",
    "cache key": "`proxy_cache_key $scheme$http_host$request_uri;`",
    "admin": "`allow 127.0.0.1; allow ::1; deny all;` in `location /admin/`",
    "status": "`allow` lines for your networks and `deny all;` in `location = /status`",
    "lists": "the lines of doi-proxy-pass-lists.conf, such as `client_max_body_size 0;`, in `location = /api/resolve`",
}
_APACHE: Final[Mapping[Fault, str]] = {
    "slashes": "`MergeSlashes Off` in the VirtualHost, and `nocanon` at the end of ProxyPass",
    "decoding": '`ProxyPass "/" "balancer://doi-proxy/" nocanon`, and no RewriteRule with [P]',
    "encoded slashes": "`AllowEncodedSlashes NoDecode` in the VirtualHost",
    "characters": '`ProxyPass "/" "balancer://doi-proxy/" nocanon` before all other ProxyPass and Alias lines',
    "query": "no RewriteRule with [P] and [QSA]",
    "long request": "`LimitRequestLine 65536` and `LimitRequestFieldSize 65536`",
    "long header": "`responsefieldsize=65536` on each BalancerMember",
    "scheme": "`RequestHeader set X-Forwarded-Proto expr=%{REQUEST_SCHEME}`",
    "host": "`ProxyPreserveHost On`",
    "client": "`ProxyAddHeaders On`",
    "forgery": "`RequestHeader unset X-Forwarded-For`",
    "accept": "remove `RequestHeader ... Accept`",
    "head": "remove the Limit or LimitExcept section",
    "errors": "`ProxyErrorOverride Off`",
    "redirect": "remove `ProxyPassReverse`",
    "vary": "remove `Header unset Vary` and `CacheIgnoreHeaders Vary`",
    "private": "`CacheStorePrivate Off`",
    "cache key": "`CacheIgnoreQueryString Off`, and no CacheIgnoreURLSessionIdentifiers",
    "admin": '`<Location "/admin/">` with `Require local`',
    "status": '`<Location "/status">` with `Require ip` for your networks',
    "lists": '`ProxyPass "/api/resolve"` to a balancer with a long `timeout`, and no LimitRequestBody below 1 GB',
}
_CADDY: Final[Mapping[Fault, str]] = {
    "slashes": "remove `rewrite`, `uri` and `handle_path` before `reverse_proxy`",
    "decoding": "remove `rewrite`, `uri` and `handle_path` before `reverse_proxy`",
    "encoded slashes": "remove `rewrite`, `uri` and `handle_path` before `reverse_proxy`",
    "characters": "remove `php_fastcgi`, `file_server` and `rewrite` from this site",
    "query": "remove `rewrite` and `uri query`",
    "long request": "remove `max_header_size` from the server options",
    "long header": "remove `max_response_header` from the transport",
    "scheme": "remove `header_up X-Forwarded-Proto`",
    "host": "remove `header_up Host`",
    "client": "remove `header_up -X-Forwarded-For`",
    "forgery": "remove `trusted_proxies`, unless another proxy stands before Caddy",
    "accept": "remove `header_up Accept`",
    "head": "remove `method` before `reverse_proxy`",
    "errors": "remove `handle_response` and `handle_errors`",
    "redirect": "remove `header_down Location`",
    "vary": "let the cache plugin obey Vary, or remove it",
    "private": "let the cache plugin obey Cache-Control, or remove it",
    "cache key": "put the whole URI into the key of the cache plugin, or remove it",
    "admin": "`path /admin/*` and `not remote_ip 127.0.0.1 ::1` in a matcher, and `respond` with 403 for it",
    "status": "`path /status` and `not remote_ip` with your networks in a matcher, and `respond` with 403 for it",
    "lists": "no `request_body max_size`, and a `reverse_proxy /api/resolve` with a long `response_header_timeout`",
}
_HAPROXY: Final[Mapping[Fault, str]] = {
    "slashes": "remove `http-request normalize-uri path-merge-slashes`",
    "decoding": "remove `http-request normalize-uri` and `http-request set-path`",
    "encoded slashes": "remove `http-request normalize-uri` and `http-request deny` for %2F",
    "characters": "remove `http-request set-path` and `http-request deny` rules for paths",
    "query": "remove `http-request set-query` and `normalize-uri query-sort-by-name`",
    "long request": "`tune.bufsize 65536` in the global section",
    "long header": "`tune.bufsize 65536` in the global section",
    "scheme": "`http-request set-header X-Forwarded-Proto %[ssl_fc,iif(https,http)]`",
    "host": "remove `http-request set-header Host`",
    "client": "`http-request set-header X-Forwarded-For %[src]`",
    "forgery": "`http-request set-header X-Forwarded-For %[src]` instead of `option forwardfor`",
    "accept": "remove `http-request set-header Accept`",
    "head": "remove `http-request set-method`",
    "errors": "remove `http-response return` and `errorfile` rules for the proxy's own statuses",
    "redirect": "remove `http-response replace-header Location`",
    "vary": "`process-vary on` in the cache section",
    "private": "remove `http-response set-header Cache-Control`",
    "cache key": "remove the cache, or give it the whole URI as its key",
    "admin": "`http-request deny if { path_beg /admin/ } !{ src 127.0.0.1 }`",
    "status": "`http-request deny if { path /status } !{ src 127.0.0.1 }` with your networks",
    "lists": "no rule on the length of bodies for /api/resolve, and a long `timeout server` for it",
}
_LINES: Final = {"nginx": _NGINX, "apache": _APACHE, "caddy": _CADDY, "haproxy": _HAPROXY}
_EXAMPLES: Final = {"nginx": "nginx", "apache": "apache", "caddy": "caddy"}


def front_kind(server: str) -> str:
    """The kind of front proxy by its Server header, "" if it is unknown."""
    lower = server.lower()
    return next((kind for word, kind in _SERVERS.items() if word in lower), "")


def remedy_for(fault: Fault, kind: str, value: str = "") -> str:
    """What to change. `value` is the address of a front proxy that is not trusted."""
    if fault == "trust":
        return f"set trusted_proxies of doi-proxy to {value}, if that is the front proxy's address"
    if kind in _LINES:
        example = f" (`doi-proxy gen-config {kind}` prints a whole file)" if kind in _EXAMPLES else ""
        return f"{kind}: {_LINES[kind][fault]}{example}"
    return "; ".join(f"{name}: {lines[fault]}" for name, lines in _LINES.items())
