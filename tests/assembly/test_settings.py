"""Settings: flags over environment over TOML file over defaults; an error names the source and the reason."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args

import pytest

from doi_proxy.assembly.settings import Settings, load
from doi_proxy.assembly.settings.sources import read_sources
from doi_proxy.errors import ConfigurationError
from doi_proxy.system.options import find_form, variable
from tests.table import table

#: The names that the black-box checks and the ready-made configurations rely on.
RELIED_ON = [
    "DOI_PROXY_UPSTREAM_URL",
    "DOI_PROXY_STORE_URL",
    "DOI_PROXY_CACHE_TTL_FLOOR",
    "DOI_PROXY_CACHE_TTL_CEILING",
    "DOI_PROXY_CACHE_NEGATIVE_TTL",
    "DOI_PROXY_UPSTREAM_MAX_CONCURRENCY",
    "DOI_PROXY_UPSTREAM_RATE",
    "DOI_PROXY_UPSTREAM_BREAKER_FAILURES",
    "DOI_PROXY_UPSTREAM_BREAKER_COOLDOWN",
    "DOI_PROXY_PUBLIC_URL",
    "DOI_PROXY_RESOLVE",
]


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    path = tmp_path / "doi-proxy.toml"
    path.write_text(
        'resolve = "any"\n'
        "[server]\nport = 8001\n"
        '[upstream]\nrate = 1.5\nurl = "http://file.example"\n'
        "[cache]\nttl_floor = 10\nnegative_ttl = 5\n"
        '[store]\nurl = "memory:"\n',
        "utf-8",
    )
    return path


def test_without_anything_the_defaults_hold() -> None:
    assert load({}, {}) == Settings()


@table("name", RELIED_ON)
def test_a_name_that_others_rely_on_is_a_setting(name: str) -> None:
    assert name in {variable(field) for field in Settings.model_fields}


@table("name", Settings.model_fields)
def test_every_setting_says_in_its_last_sentence_when_to_change_it(name: str) -> None:
    last = str(Settings.model_fields[name].description).rpartition(". ")[2]
    is_for_drills = name.startswith("upstream_breaker_") and last.startswith("It exists for drills")
    assert is_for_drills or last.split()[0] in {"Add", "Change", "Lower", "Raise", "Set", "Turn"}


@table(
    "name",
    [name for name, field in Settings.model_fields.items() if field.annotation is float and find_form(field) is None],
)
def test_a_number_without_a_written_unit_names_it(name: str) -> None:
    description = str(Settings.model_fields[name].description).lower()
    assert any(unit in description for unit in ("second", "bytes", "share", "queries", "requests"))


def test_no_group_of_settings_hides_a_check_of_another() -> None:
    """The groups are the base classes of one class, so a name in two of them leaves one check out."""
    own = [name for group in Settings.__mro__ for name in vars(group) if name.startswith("_") and name[1:2].isalpha()]
    checks = Settings.__pydantic_decorators__
    names = {*checks.field_validators, *checks.model_validators}
    assert len(names) > 10
    assert [name for name in sorted(names) if own.count(name) > 1] == []


@table("name", ["management_listen", "native_listen"])
def test_an_address_to_listen_on_is_refused_before_it_is_used(name: str) -> None:
    with pytest.raises(ConfigurationError, match="write it as"):
        load({name: "x"}, {})


def test_a_file_goes_before_the_defaults(toml: Path) -> None:
    settings = load({}, {}, toml)
    assert (settings.resolve, settings.port, settings.upstream_rate) == ("any", 8001, 1.5)
    assert (settings.cache_ttl_floor, settings.store_url) == (10, "memory:")
    assert settings.cache_ttl_ceiling == Settings().cache_ttl_ceiling


def test_a_burst_follows_from_its_rate_unless_it_is_set() -> None:
    usual = load({}, {})
    assert (usual.upstream_burst, usual.value("client_burst")) == (50, 100)
    fast = load({}, {"DOI_PROXY_UPSTREAM_RATE": "100", "DOI_PROXY_CLIENT_RATE": "50"})
    assert (fast.upstream_burst, fast.value("client_burst")) == (500, 200)
    assert load({"upstream_rate": "0.01"}, {}).upstream_burst == 1
    assert load({"upstream_rate": "1000000"}, {}).upstream_burst == 1_000_000
    assert load({"upstream_rate": "100", "upstream_burst": "7"}, {}).upstream_burst == 7
    with pytest.raises(ConfigurationError, match=r"^DOI_PROXY_UPSTREAM_RATE: this is not a number \(it is 'x'\)$"):
        load({}, {"DOI_PROXY_UPSTREAM_RATE": "x"})


def test_the_environment_names_the_file(toml: Path) -> None:
    assert load({}, {"DOI_PROXY_CONFIG": str(toml)}).port == 8001


def test_the_flag_for_the_file_goes_before_the_environment(toml: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    other.write_text("port = 9\n")
    assert load({}, {"DOI_PROXY_CONFIG": str(other)}, toml).port == 8001


def test_the_environment_goes_before_the_file(toml: Path) -> None:
    settings = load({}, {"DOI_PROXY_PORT": "8002", "DOI_PROXY_UPSTREAM_URL": "http://env.example"}, toml)
    assert (settings.port, settings.upstream_url, settings.upstream_rate) == (8002, ("http://env.example",), 1.5)


def test_flags_go_before_the_environment_and_absent_flags_do_not(toml: Path) -> None:
    environment = {"DOI_PROXY_PORT": "8002", "DOI_PROXY_UPSTREAM_BURST": "2"}
    settings = load({"port": "8003", "upstream_burst": None}, environment, toml)
    assert (settings.port, settings.upstream_burst) == (8003, 2)


def test_other_variables_of_the_environment_are_ignored() -> None:
    assert load({}, {"PATH": "/bin", "DOI_PROXYX": "1", "PORT": "9", "doi_proxy_port": "9"}) == Settings()


@table(
    ("name", "text", "value"),
    [
        ("port", "0", 0),
        ("upstream_private_servers", "true", True),
        ("upstream_private_servers", "1", True),
        ("cache_ttl_floor", "1.5", 1.5),
        ("seed", "config/seed.ndjson", Path("config/seed.ndjson")),
        ("public_url", "https://library.example.edu/doi", "https://library.example.edu/doi"),
        ("public_url", "HTTPS://Library.Example.edu:8443/DOI/", "https://library.example.edu:8443/DOI/"),
        ("public_url", "http://[2001:DB8::1]", "http://[2001:db8::1]"),
        ("host", "::", "::"),
        ("log_level", "debug", "debug"),
        ("upstream_url", "http://a.example, http://b.example/base", ("http://a.example", "http://b.example/base")),
        ("upstream_routes", "10.1=http://a.example,10.2=hdl://b", ("10.1=http://a.example", "10.2=hdl://b")),
        ("trusted_proxies", "10.0.0.0/8, ::1,", ("10.0.0.0/8", "::1")),
        ("trusted_proxies", "*", ("*",)),
        ("cache_grace", "30d", 30 * 86_400),
        ("cache_grace", "1.5 h", 5_400),
        ("upstream_timeout", "500ms", 0.5),
        ("upstream_timeout", "1.8s", 1.8),
        ("cache_ttl_ceiling", "15m", 900),
        ("cache_memory_bytes", "256M", 256 * 1024**2),
        ("cache_memory_bytes", "1.5G", 3 * 512 * 1024**2),
        ("cache_memory_bytes", "64KiB", 65_536),
        ("cache_memory_bytes", "1000000", 1_000_000),
        ("express_lane", "off", False),
        ("express_lane", "On", True),
        ("metadata", "true", True),
        ("upstream_contact", "https://library.example.org/doi", "https://library.example.org/doi"),
        ("upstream_contact", "mailto:library@example.org", "mailto:library@example.org"),
        ("upstream_contact", "library@example.org", "mailto:library@example.org"),
        ("upstream_contact", "HTTPS://library.example.org/doi", "HTTPS://library.example.org/doi"),
        ("upstream_contact", "MAILTO:library@example.org", "MAILTO:library@example.org"),
        ("upstream_url", "HTTPS://doi.org", ("HTTPS://doi.org",)),
        ("upstream_routes", "10.5072=HTTPS://handle.test.example", ("10.5072=HTTPS://handle.test.example",)),
        ("otel_endpoint", "HTTP://127.0.0.1:4318/v1/traces", "HTTP://127.0.0.1:4318/v1/traces"),
    ],
)
def test_text_is_read_as_what_the_setting_is(name: str, text: str, value: object) -> None:
    assert getattr(load({}, {variable(name): text}), name) == value
    assert getattr(load({name: text}, {}), name) == value


@table(
    ("name", "text"),
    [
        ("port", "abc"),
        ("port", "70000"),
        ("port", "-1"),
        ("port", "1.5"),
        ("resolve", "all"),
        ("log_level", "loud"),
        ("public_url", "library.example.edu"),
        ("public_url", "ftp://library.example.edu"),
        ("public_url", "https://library.example.edu/?x"),
        ("public_url", "https://library example"),
        ("public_url", "https://.example.edu"),
        ("public_url", "https://library..example.edu"),
        ("public_url", f"https://{'x' * 64}.example.edu"),
        ("public_url", "https://.:80"),
        ("public_url", "http://[bad"),
        ("upstream_url", "doi.org"),
        ("upstream_url", "ftp://doi.org"),
        ("upstream_url", "http://:80"),
        ("upstream_url", "http://[bad"),
        ("upstream_rate", "0"),
        ("upstream_rate", "-1"),
        ("upstream_rate", "nan"),
        ("upstream_rate", "inf"),
        ("upstream_max_concurrency", "0"),
        ("upstream_breaker_failures", "0"),
        ("upstream_breaker_cooldown", "0"),
        ("upstream_timeout", "0"),
        ("cache_ttl_floor", "-1"),
        ("cache_ttl_ceiling", "1 year"),
        ("cache_ttl_ceiling", "1h30m"),
        ("cache_ttl_ceiling", "1e3"),
        ("cache_ttl_ceiling", "4000d"),
        ("cache_memory_bytes", "256X"),
        ("cache_memory_bytes", "0.3K"),
        ("cache_memory_bytes", "200T"),
        ("upstream_url", "http://a.example http://b.example"),
        ("upstream_url", "http://a.example,,ftp://b.example"),
        ("upstream_routes", "http://a.example"),
        ("cache_negative_ttl", "nan"),
        ("store_max_bytes", "1"),
        ("upstream_private_servers", "perhaps"),
        ("trusted_proxies", "bogus"),
        ("trusted_proxies", "localhost"),
        ("trusted_proxies", "999.1.1.1"),
        ("trusted_proxies", "10.0.0.0/8, foo"),
        ("trusted_proxies", "10.0.0.1/8"),
        ("trusted_proxies", "127.0.0.1 ::1"),
        ("upstream_contact", "foo"),
        ("upstream_contact", "library@"),
        ("upstream_contact", "https://"),
        ("upstream_contact", "mailto:nobody"),
    ],
)
def test_a_wrong_value_is_told_with_its_source(name: str, text: str) -> None:
    flag = "--" + name.replace("_", "-")
    for flags, environment, source in (({}, {variable(name): text}, variable(name)), ({name: text}, {}, flag)):
        with pytest.raises(ConfigurationError) as caught:
            load(flags, environment)
        assert caught.value.message.startswith(f"{source}: ")
        assert "\n" not in caught.value.message and repr(text) in caught.value.message


def test_an_empty_flag_is_a_wrong_value_and_an_empty_variable_is_none() -> None:
    """A line `DOI_PROXY_PORT=` of an .env or compose file ended the start."""
    names = list(Settings.model_fields)
    assert load({}, {variable(name): "" for name in names}) == load({}, {})
    assert load({}, {"DOI_PROXY_ADMIN_TOKEN_FILE": ""}).value("admin_token") is None
    for name in ("port", "upstream_url", "seed"):
        with pytest.raises(ConfigurationError, match=f"^--{name.replace('_', '-')}: "):
            load({name: ""}, {})


@pytest.mark.parametrize(
    "name",
    [
        name
        for name, field in Settings.model_fields.items()
        if {int, float} & {field.annotation, *get_args(field.annotation)}
    ],
)
def test_every_number_has_a_largest_value_that_its_refusal_names(name: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load({name: "1" + "0" * 20}, {})
    assert re.search(r"the value must be at most [\d,]+[dhT]? \(it is '10", caught.value.message)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('trusted_proxies = ["127.0.0.1", "10.0.0.0/8"]', ("127.0.0.1", "10.0.0.0/8")),
        ('trusted_proxies = "127.0.0.1, 10.0.0.0/8"', ("127.0.0.1", "10.0.0.0/8")),
        ("trusted_proxies = []", ()),
    ],
)
def test_a_list_is_an_array_of_the_file_or_a_text_with_commas(
    tmp_path: Path, text: str, expected: tuple[str, ...]
) -> None:
    path = tmp_path / "doi-proxy.toml"
    path.write_text(text)
    assert load({}, {}, path).trusted_proxies == expected


@table(
    ("text", "message"),
    [
        ("trusted_proxies = 1", "this is not a list"),
        ("trusted_proxies = [1]", "this is not a list"),
        ('trusted_proxies = ["127.0.0.1,::1"]', "the item '127.0.0.1,::1' has a comma"),
        ('trusted_proxies = "127.0.0.1 ::1"', "'127.0.0.1 ::1' is not a network"),
        ("[cache]\ngrace = true", "this is not a duration"),
        ('[cache]\ngrace = "soon"', "such as 500ms, 10s, 15m, 12h or 30d"),
        ('[cache]\ngrace = "11y"', "this is not a duration"),
        ('[cache]\ngrace = "3651d"', "the value must be at most 3650d"),
        ('[store]\nmax_bytes = "1K"', "the value must be at least 1M"),
        ("[cache]\nmemory_bytes = 1.5", "this is not a whole number"),
        ("access_log = true", "use one of these: 'off', 'json' or 'text'"),
        ('express_lane = "perhaps"', "write on or off"),
        ('host = ["::"]', "this is not a text"),
        ('[server]\ntls_cert = ""\n', "line 2: tls_cert: the value is empty; remove the setting"),
        ("[server]\nmetadata = on\n", "in a TOML file, a text"),
        # It is refused before it takes memory.
        (
            "[server]\n" + ".".join("a" * 30_000) + " = 1\n",
            "line 2: the settings file cannot be read: a key has too many",
        ),
    ],
)
def test_the_refusal_of_a_value_names_the_forms_that_are_read(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "doi-proxy.toml"
    path.write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        load({}, {}, path)
    assert message in caught.value.message


def test_no_text_has_a_nul() -> None:
    with pytest.raises(ConfigurationError, match=r"^--library-rules: ") as caught:
        load({"library_rules": "a\0b"}, {})
    assert "the text has a NUL character; remove it" in caught.value.message


@pytest.mark.parametrize(
    ("given", "source"),
    [
        ({"environment": {"DOI_PROXY_PROT": "8000"}}, "DOI_PROXY_PROT"),
        ({"environment": {"DOI_PROXY_": "8000"}}, "DOI_PROXY_"),
        ({"flags": {"prot": "8000"}}, "--prot"),
    ],
)
def test_an_unknown_setting_is_told_with_its_source(given: dict[str, Any], source: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(**{"flags": {}, "environment": {}, **given})
    assert caught.value.message.startswith(f"{source}: there is no such setting")


@pytest.mark.parametrize(
    "text",
    [
        "prot = 8000",
        "[upstream]\nulr = 'http://x'",
        "[upsteam]\nurl = 'http://x'",
        "[server]\nport = 'abc'",
        "[upstream.deep]\nurl = 'http://x'",
        "port = ",
        "port = 1\nport = 2",
        "\x00",
        "[[upstream]]\nurl = 'http://x'",
        "upstream = 1",
    ],
)
def test_a_wrong_file_is_told_by_its_path(tmp_path: Path, text: str) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        load({}, {}, path)
    assert str(path) in caught.value.message and "\n" not in caught.value.message


def test_a_byte_order_mark_before_a_text_is_not_part_of_it(tmp_path: Path) -> None:
    """Windows Notepad writes one, and shows nothing of it."""
    settings, secret = tmp_path / "settings.toml", tmp_path / "secret"
    settings.write_bytes(b"\xef\xbb\xbf[cache]\r\nttl_floor = 7\r\n")
    secret.write_bytes(b"\xef\xbb\xbfan-administrator-of-16\r\n")
    values = read_sources({}, {"DOI_PROXY_ADMIN_TOKEN_FILE": str(secret)}, settings, Settings.model_fields)
    assert values["cache_ttl_floor"].value == 7
    assert values["admin_token"].value == "an-administrator-of-16"


def test_a_file_that_is_not_there_or_no_text_is_told_by_its_path(tmp_path: Path) -> None:
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe")
    for path in (tmp_path / "missing.toml", tmp_path, binary):
        with pytest.raises(ConfigurationError, match=str(path)):
            load({}, {}, path)


class TestSecretFiles:
    """DOI_PROXY_…_FILE holds the path of a file with the value."""

    def test_the_value_is_the_file_s_content_without_blanks_at_its_ends(self, tmp_path: Path) -> None:
        secret = tmp_path / "secret"
        secret.write_text("redis://:geheim@host/0\n")
        assert load({}, {"DOI_PROXY_STORE_URL_FILE": str(secret)}).store_url == "redis://:geheim@host/0"

    def test_a_wrong_value_is_told_by_the_variable_that_names_the_file(self, tmp_path: Path) -> None:
        secret = tmp_path / "secret"
        secret.write_text("x")
        with pytest.raises(ConfigurationError, match=r"^DOI_PROXY_PORT_FILE: "):
            load({}, {"DOI_PROXY_PORT_FILE": str(secret)})

    def test_an_unknown_setting_is_told_without_its_secret(self, tmp_path: Path) -> None:
        secret = tmp_path / "secret"
        secret.write_text("geheim")
        with pytest.raises(ConfigurationError) as caught:
            load({}, {"DOI_PROXY_STORE_PASSWORD_FILE": str(secret)})
        assert caught.value.message.startswith("DOI_PROXY_STORE_PASSWORD_FILE: ")
        assert "geheim" not in caught.value.message

    def test_a_file_that_is_not_there_is_told(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigurationError, match=r"DOI_PROXY_STORE_URL_FILE: .*missing"):
            load({}, {"DOI_PROXY_STORE_URL_FILE": str(tmp_path / "missing")})

    def test_the_file_wins_over_the_variable_whichever_comes_first(self, tmp_path: Path) -> None:
        secret = tmp_path / "secret"
        secret.write_text("memory:")
        both = {"DOI_PROXY_STORE_URL_FILE": str(secret), "DOI_PROXY_STORE_URL": "sqlite:///x"}
        for environment in (both, dict(reversed(both.items()))):
            assert load({}, environment).store_url == "memory:"


def test_a_setting_of_the_file_has_its_line(tmp_path: Path) -> None:
    file = tmp_path / "doi-proxy.toml"
    file.write_text('# [server]\n[server]\nhost = "::"\n\n[ upstream ]\n"rate" = 0\n[store]\nurl = "x"\n')
    values = read_sources({}, {}, file, Settings.model_fields)
    sources = {name: one.source for name, one in values.items()}
    assert sources == {
        "host": f"{file}, line 3: host",
        "upstream_rate": f"{file}, line 6: upstream_rate",
        "store_url": f"{file}, line 8: store_url",
    }
