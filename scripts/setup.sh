#!/usr/bin/env bash
# Set up .venv with all that training and tests need. A second run does nothing. VENV names another folder than .venv.
set -euo pipefail
cd "$(dirname "$0")/.."
VENV="${VENV:-.venv}"
say() { echo "setup: $* (${SECONDS} s)"; }
need() { # need PACKAGE... : install Debian packages as root, else say how
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        say "installing $*"
        apt-get update -qq >/dev/null && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
    else
        echo "setup: missing $*" >&2
        echo "  mend: apt-get install $*" >&2
        exit 2
    fi
}

stamp="$VENV/.envhub-$(cat pyproject.toml environments/*/pyproject.toml requirements/*.txt scripts/setup.sh | sha256sum | cut -c1-16)"
[ -e "$stamp" ] && exit 0

PYTHON="${PYTHON:-python3}"
"$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || need python3
command -v c++ >/dev/null || need g++
"$PYTHON" -c 'import sysconfig, os, sys; sys.exit(not os.path.exists(sysconfig.get_paths()["include"] + "/Python.h"))' || need python3-dev
"$PYTHON" -c 'import ensurepip' 2>/dev/null || need python3-venv

say "virtual environment in $VENV"
[ -x "$VENV/bin/python" ] || "$PYTHON" -m venv "$VENV"
pip() { "$VENV/bin/python" -m pip --disable-pip-version-check "$@" -qq; }
export PIP_CONSTRAINT="$PWD/requirements/constraints.txt"
pip install setuptools wheel ninja

if command -v nvidia-smi >/dev/null; then
    say "torch for this GPU"
    pip install torch
else
    say "torch for the CPU"
    torch="$(grep '^torch==' requirements/constraints.txt)"
    pip install "$torch+cpu" ${ENVHUB_TORCH_INDEX:+--extra-index-url "$ENVHUB_TORCH_INDEX"} 2>/dev/null || {
        say "no CPU build of $torch in pip's indexes: taking the larger CUDA build, which runs on the CPU too; ENVHUB_TORCH_INDEX may name an index"
        pip install "$torch"
    }
fi
say "packages"
pip install -r <("$VENV/bin/python" - <<'PY'
import glob, tomllib
project = tomllib.load(open("pyproject.toml", "rb"))["project"]
extras = project["optional-dependencies"]
wanted = project["dependencies"] + sum((extras[e] for e in ("train", "serve", "data", "ray", "dev")), [])
for path in sorted(glob.glob("environments/*/pyproject.toml")):
    wanted += tomllib.load(open(path, "rb"))["project"]["dependencies"]
print("\n".join(sorted({w for w in wanted if not w.startswith(("torch>", "deepspeed", "envhub-"))})))
PY
)
say "deepspeed"
DS_BUILD_OPS=0 pip install --no-build-isolation "$(grep '^deepspeed==' requirements/constraints.txt)"
pip uninstall -y torchvision torchaudio torchcodec 2>/dev/null || true # builds for GPUs break transformers on a CPU
say "envhub and its environments"
pip install --no-build-isolation --no-deps -e . $(for d in environments/*/; do echo "-e $d"; done)
if ! command -v nvidia-smi >/dev/null; then
    say "DeepSpeed's communication op for the CPU, once"
    "$VENV/bin/python" -m envhub.trainer.build_ops >/dev/null
fi
touch "$stamp"
say "done"
