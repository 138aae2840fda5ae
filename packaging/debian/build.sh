#!/bin/sh
# Builds the Debian package in the folder OUTPUT: `make deb`. Usage: build.sh UV PYTHON BUILD_PYTHON OUTPUT
#
# PYTHON is the python3 of the Debian release that will run the package. BUILD_PYTHON builds the wheel: the one of `make setup`.
# Times in the package are those of the last commit: two builds of a commit with the same Python are identical.
set -eu

uv=$1 python=$2 build_python=$3 output=$4
cd "$(dirname "$0")/../.."
umask 022
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 1700000000)}
export SOURCE_DATE_EPOCH UV_LINK_MODE=copy

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
home=$root/opt/doi-proxy

# The environment. Its scripts find Python beside themselves, so the package also runs from a test root.
"$uv" venv --quiet --no-project --relocatable --python "$python" "$home"
"$uv" pip install --quiet --python "$home/bin/python" --no-deps --require-hashes -r requirements/runtime.lock
"$uv" build --quiet --wheel --no-build-isolation --python "$build_python" --out-dir "$work/wheel"
"$uv" pip install --quiet --python "$home/bin/python" --no-deps --no-index "$work"/wheel/*.whl
# What tells of this build: scripts of other packages, the activation of a shell, the origin of the wheel.
find "$home/bin" -mindepth 1 ! -name 'python*' ! -name doi-proxy -delete
find "$home" \( -name direct_url.json -o -name uv_cache.json -o -name REQUESTED -o -name INSTALLER \) -delete
sed -i -e '/direct_url.json,/d' -e '/uv_cache.json,/d' -e '/REQUESTED,/d' -e '/INSTALLER,/d' "$home"/lib/python3*/site-packages/*.dist-info/RECORD
rm -rf "$home/.lock" "$home/.gitignore" "$home/CACHEDIR.TAG"
find "$home" -name __pycache__ -prune -exec rm -rf {} +
# Bytecode that Python uses without a look at the source. The service may not write any.
"$python" -m compileall -q -j 0 --invalidation-mode unchecked-hash -s "$root" -p / "$home/lib"

install -d "$root/usr/bin" "$root/usr/share/doc/doi-proxy" "$root/usr/share/doi-proxy"
ln -s /opt/doi-proxy/bin/doi-proxy "$root/usr/bin/doi-proxy"
cp -R config/. "$root/usr/share/doi-proxy/"
install -D -m 644 -t "$root/usr/lib/systemd/system" config/systemd/doi-proxy@.service config/systemd/doi-proxy.socket \
    config/systemd/doi-proxy.target
install -D -m 755 config/systemd/doi-proxy-restart "$root/usr/sbin/doi-proxy-restart"
install -D -m 644 config/sysusers.d/doi-proxy.conf "$root/usr/lib/sysusers.d/doi-proxy.conf"
install -D -m 644 config/tmpfiles.d/doi-proxy.conf "$root/usr/lib/tmpfiles.d/doi-proxy.conf"
install -D -m 644 -t "$root/etc/doi-proxy" config/systemd/doi-proxy.toml config/systemd/allow.txt config/systemd/deny.txt
for pages in "$home"/lib/python3*/site-packages/doi_proxy/features/setup/docs; do
    ln -s "${pages#"$root"}" "$root/usr/share/doc/doi-proxy/manual"
done
install -m 644 LICENSE "$root/usr/share/doc/doi-proxy/copyright"
install -d "$root/usr/share/man/man1" "$root/usr/share/bash-completion/completions" \
    "$root/usr/share/zsh/vendor-completions" "$root/usr/share/fish/vendor_completions.d"
gzip -9n <"$home/share/man/man1/doi-proxy.1" >"$root/usr/share/man/man1/doi-proxy.1.gz"
mv "$home/share/bash-completion/completions/doi-proxy" "$root/usr/share/bash-completion/completions/"
mv "$home/share/zsh/site-functions/_doi-proxy" "$root/usr/share/zsh/vendor-completions/"
mv "$home/share/fish/vendor_completions.d/doi-proxy.fish" "$root/usr/share/fish/vendor_completions.d/"
rm -rf "$home/share"
gzip -9n <CHANGELOG.md >"$root/usr/share/doc/doi-proxy/changelog.gz"
chmod -R u+rwX,go+rX,go-w "$root"

# In Debian, a tilde sorts before the end: 1.0.0~dev12-1 and 1.0.0~rc1-1 are older than 1.0.0-1.
version=$("$home/bin/doi-proxy" --version | cut -d' ' -f2 | sed 's/\.dev/~dev/; s/rc/~rc/')-1
architecture=$(dpkg --print-architecture)
release=$("$python" -c 'import sys; print("%d.%d %d.%d" % (*sys.version_info[:2], sys.version_info[0], sys.version_info[1] + 1))')
# In KiB. The sizes of folders differ between two builds.
size=$(find "$root" -type f -printf '%s\n' | awk '{ bytes += $1 } END { print int(bytes / 1024) }')
mkdir "$root/DEBIAN"
# A package that is not a release has an address that cannot exist (RFC 2606, section 2).
maintainer=${DOI_PROXY_MAINTAINER:-built by hand <nobody@doi-proxy.invalid>}
sed -e "s/@VERSION@/$version/" -e "s|@MAINTAINER@|$maintainer|" -e "s|@HOMEPAGE@|${DOI_PROXY_HOMEPAGE:-}|" -e '/^Homepage: $/d' \
    -e "s/@ARCHITECTURE@/$architecture/" -e "s/@SIZE@/$size/" \
    -e "s/@PYTHON@/${release% *}/" -e "s/@NEXT_PYTHON@/${release#* }/" packaging/debian/control.in >"$root/DEBIAN/control"
printf '%s\n' /etc/doi-proxy/doi-proxy.toml /etc/doi-proxy/allow.txt /etc/doi-proxy/deny.txt >"$root/DEBIAN/conffiles"
install -m 755 packaging/debian/postinst packaging/debian/prerm packaging/debian/postrm "$root/DEBIAN/"
(cd "$root" && find . -path ./DEBIAN -prune -o -type f -print | LC_ALL=C sort | cut -c3- | tr '\n' '\0' | xargs -0 md5sum) >"$root/DEBIAN/md5sums"

mkdir -p "$output"
dpkg-deb --root-owner-group -Zzstd -z9 --build "$root" "$output" >/dev/null
echo "$output/doi-proxy_${version}_${architecture}.deb"
