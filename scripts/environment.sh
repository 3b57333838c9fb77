# Sourced by the scripts beside it: makes virtual environments from lock files.

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

# environment DIRECTORY LOCK [editable]: DIRECTORY holds what LOCK pins and, if asked,
# this project. What is there and unchanged stays: the stamp is what was installed.
environment() {
    local directory="$1" lock="requirements/$2.txt" stamp="$1/installed-$2"
    local wanted python="$1/bin/python"
    wanted="$(echo "$PWD" && cat pyproject.toml requirements/build.txt "$lock")"
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
    echo "environment: installing $lock into $directory" >&2
    rm -f "$stamp"
    if [[ "${3:-}" != editable ]]; then
        pip_install "$python" --only-binary :all: --require-hashes --requirement "$lock"
    else
        # What builds comes from a lock file too: nothing is fetched unpinned. PySpark,
        # which has no wheel, is the one package besides this one that is built here.
        pip_install "$python" --only-binary :all: --require-hashes \
            --requirement requirements/build.txt
        pip_install "$python" --only-binary :all: --no-binary pyspark \
            --no-build-isolation --require-hashes --requirement "$lock"
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
