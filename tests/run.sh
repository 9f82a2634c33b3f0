#!/usr/bin/env bash
# Sets up and runs every test. Needs a Rust toolchain, a C compiler, and Python 3.11 or newer with venv; the rest it brings
# itself: a mail server, an SMSC and a reader of OpenAPI documents that we did not write (aiosmtpd, smpp34, schemathesis) go
# into a virtual environment below target/, and PostgreSQL, where the machine has none of version 15 or newer, comes from the
# distribution (apt-get, as root). The tests start clusters of their own; nothing is done to one that runs already.
set -euo pipefail
cd "$(dirname "$0")/.."

venv="${CARGO_TARGET_DIR:-target}/python"
if ! cmp -s tests/requirements.txt "$venv/requirements.txt"; then
    python3 -m venv "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --requirement tests/requirements.txt
    cp tests/requirements.txt "$venv/requirements.txt"
fi
venv="$(cd "$venv/bin" && pwd)"
export SENDONCE_TEST_AIOSMTPD_PYTHON="$venv/python"
export SENDONCE_TEST_SMPP34_PYTHON="$venv/python"
export SENDONCE_TEST_SCHEMATHESIS="$venv/schemathesis"

# Prints the directory of the newest PostgreSQL server's programs.
postgres_bin() {
    local dir version
    for dir in "${SENDONCE_TEST_PG_BIN:-}" /usr/lib/postgresql/*/bin "$(pg_config --bindir 2>/dev/null || true)"; do
        [[ -n $dir && -x $dir/initdb && -x $dir/postgres ]] || continue
        version="$("$dir/postgres" --version | grep -oE '[0-9]+' | head -n 1)"
        ((version >= 15)) && echo "$version $dir"
    done | sort -n | tail -n 1 | cut -d ' ' -f 2-
}

bin="$(postgres_bin)"
if [[ -z $bin ]]; then
    # Debian's package would make and start a cluster of its own; none is wanted.
    mkdir -p /etc/postgresql-common
    [[ -e /etc/postgresql-common/createcluster.conf ]] ||
        echo 'create_main_cluster = false' >/etc/postgresql-common/createcluster.conf
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends postgresql >/dev/null
    bin="$(postgres_bin)"
    [[ -n $bin ]] || { echo 'the tests need PostgreSQL 15 or newer' >&2; exit 1; }
fi
export SENDONCE_TEST_PG_BIN="$bin"

exec cargo test --locked "$@"
