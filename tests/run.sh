#!/usr/bin/env bash
# Sets up and runs every test. Needs a Rust toolchain, a C compiler, and Python 3 with venv; the rest it brings itself:
# a mail server that we did not write (aiosmtpd) goes into a virtual environment below target/.
set -euo pipefail
cd "$(dirname "$0")/.."

venv="${CARGO_TARGET_DIR:-target}/aiosmtpd"
if ! "$venv/bin/python" -c 'import aiosmtpd' 2>/dev/null; then
    python3 -m venv "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check 'aiosmtpd==1.4.6'
fi
SENDONCE_TEST_AIOSMTPD_PYTHON="$(cd "$venv/bin" && pwd)/python"
export SENDONCE_TEST_AIOSMTPD_PYTHON

exec cargo test --locked "$@"
