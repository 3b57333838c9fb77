# Sourced by the scripts beside it: makes virtual environments from uv.lock.

fail() {
    echo "error: $*" >&2
    exit 1
}

find_python() { # prints the first interpreter that can make an environment
    local name
    for name in python3 python3.14 python3.13 python3.12 python3.11; do
        if "$name" -c '
import ensurepip, sys, venv
sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
            echo "$name"
            return
        fi
    done
    fail "no Python 3.11 or later with venv was found on PATH: install one" \
        "(Debian, Ubuntu: apt install python3 python3-venv)"
}

# What each environment holds: extras and groups of pyproject.toml. One that isn't listed
# is the group of the same name, without kinesumer.
selection() { # selection NAME: prints the arguments of uv
    local product="--extra cli --extra local --extra otel --group build"
    case "$1" in
    test)
        echo "$product --extra arrow --extra avro --extra glue --extra protobuf" \
            "--extra faststream --extra spark-local --group lint --group docs --group test"
        ;;
    library) ;; # what a plain install brings
    demo) echo "$product" ;;
    demo-spark) echo "$product --extra spark-local" ;;
    delta) echo "$product --extra spark-local --group delta" ;;
    aioboto3) echo "$product --extra aioboto3 --group contract" ;;
    bench) echo "$product --group bench" ;;
    *) echo "--only-group $1" ;;
    esac
}

uv_command() { # installs uv as uv.lock pins it, into .venv-uv
    local python=.venv-uv/bin/python pin
    if ! "$python" -c '' 2>/dev/null; then
        "$(find_python)" -m venv --clear .venv-uv
    fi
    pin="$("$python" -c '
import tomllib
with open("uv.lock", "rb") as file:
    packages = tomllib.load(file)["package"]
uv = next(package for package in packages if package["name"] == "uv")
hashes = ["--hash=" + wheel["hash"] for wheel in uv["wheels"]]
print("uv==" + uv["version"], *hashes)')"
    if [[ "$pin" != "$(cat .venv-uv/pin 2>/dev/null)" ]]; then
        pip_install "$python" --only-binary :all: --require-hashes \
            --requirement <(echo "$pin")
        echo "$pin" >.venv-uv/pin
    fi
}

# requirements NAME: prints what uv.lock pins for an environment, with hashes. It names no
# index: pip asks the one that it is configured for, which may be a mirror of PyPI.
requirements() {
    uv_command
    # shellcheck disable=SC2046
    .venv-uv/bin/uv export --frozen --quiet --no-default-groups --no-emit-project \
        --no-header --no-annotate $(selection "$1")
}

# environment DIRECTORY NAME [editable]: DIRECTORY holds what uv.lock pins for NAME and,
# if asked, this project. What is there and unchanged stays: the stamp is what was
# installed.
environment() {
    local directory="$1" name="$2" stamp="$1/installed-$2"
    local wanted python="$1/bin/python"
    wanted="$(echo "$PWD" && cat scripts/environment.sh scripts/compiled_decoder.py \
        kinesumer/wire/_native.c pyproject.toml uv.lock | cksum)"
    if "$python" -c '' 2>/dev/null && [[ "$wanted" == "$(cat "$stamp" 2>/dev/null)" ]]
    then
        return
    fi
    # One that was moved with the project is made anew: its paths lead to the old place.
    local made_in base
    made_in="$(cat "$directory/made-in" 2>/dev/null || echo "$PWD")"
    if [[ "$made_in" != "$PWD" ]] || ! "$python" -c '' 2>/dev/null; then
        base="$(find_python)"
        echo "environment: making $directory with $("$base" --version)" >&2
        "$base" -m venv --clear "$directory"
    fi
    echo "environment: installing $name of uv.lock into $directory" >&2
    rm -f "$stamp"
    local pinned="$directory/requirements-$name.txt"
    requirements "$name" >"$pinned"
    if [[ "${3:-}" != editable ]]; then
        pip_install "$python" --only-binary :all: --require-hashes --requirement "$pinned"
    else
        # What builds comes from the lock file too: nothing is fetched unpinned. PySpark,
        # which has no wheel, is the one package besides this one that is built here.
        requirements build >"$directory/requirements-build.txt"
        pip_install "$python" --only-binary :all: --require-hashes \
            --requirement "$directory/requirements-build.txt"
        pip_install "$python" --only-binary :all: --no-binary pyspark \
            --no-build-isolation --require-hashes --requirement "$pinned"
        pip_install "$python" --no-build-isolation --editable .
    fi
    echo "$PWD" >"$directory/made-in"
    echo "$wanted" >"$stamp"
}

pip_install() {
    local python="$1"
    shift
    "$python" -m pip install --quiet --disable-pip-version-check --no-deps "$@" >&2
}
