"""What of core the corpora reach: the targets are built once more, with the compiler's own counters, and run each input once."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / ".ci"))
import module_table  # noqa: E402

# Of the compiler's own version of LLVM; others may not read its profiles.
PROFDATA = os.environ.get("LLVM_PROFDATA", "llvm-profdata-22")
COV = os.environ.get("LLVM_COV", "llvm-cov-22")


def build(fuzz, host, targets, packages):
    """The programs of these targets by name, or none where LLVM's tools are missing."""
    if not has_tools():
        print(f"no table of modules: {PROFDATA} and {COV} are missing (Debian: llvm-22)", file=sys.stderr)
        return None
    directory = fuzz / "targets" / "target" / "coverage"
    flags = "-C instrument-coverage --cfg fuzzing"
    # Counters need no information for debuggers, and every input runs but once: the build is what takes time.
    environment = os.environ | {"RUSTFLAGS": flags, "CARGO_PROFILE_RELEASE_DEBUG": "0", "CARGO_PROFILE_RELEASE_OPT_LEVEL": "1"}
    command = ["cargo", "build", "--release", "--target", host, "--target-dir", directory]
    command += [part for target in targets for part in ("--bin", target)]
    command += [f"--package=cmap-fuzz-{package}-targets" for package in sorted({packages[target] for target in targets})]
    subprocess.run(command, cwd=fuzz / "targets", env=environment, check=True)
    return {target: directory / host / "release" / target for target in targets}


def has_tools():
    if shutil.which(PROFDATA) and shutil.which(COV):
        return True
    # As in .ci/coverage, where one may.
    if not shutil.which("apt-get") or os.geteuid() != 0:
        return False
    install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", "llvm-22"]
    for command in (["apt-get", "update", "-qq"], install):
        subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
    return bool(shutil.which(PROFDATA) and shutil.which(COV))


def report(fuzz, programs):
    """Prints the table of modules, of the corpora alone and together with what was found."""
    with tempfile.TemporaryDirectory() as directory:
        directory = Path(directory)
        profiles = {folder: run(fuzz / folder, programs, directory) for folder in ("corpus", "found")}
        corpus = export(profiles["corpus"], programs, directory / "corpus.json")
        both = export(profiles["corpus"] + profiles["found"], programs, directory / "both.json")
    columns = {"the corpora": corpus, "with what was found": both}
    print("\n" + "\n".join(module_table.table(columns)), flush=True)


def run(inputs, programs, directory):
    """Runs every input of the folder, and gives the profiles."""
    profiles = []
    for target, program in programs.items():
        if not (inputs / target).is_dir():
            continue
        profile = directory / f"{inputs.name}-{target}.profraw"
        # It may write inputs that it takes for new to the first folder: to none of ours.
        command = [program, tempfile.mkdtemp(dir=directory), inputs / target, "-runs=0", f"-artifact_prefix={directory}/"]
        environment = os.environ | {"LLVM_PROFILE_FILE": str(profile)}
        ended = subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        if ended.returncode == 0:
            profiles.append(profile)
        else:
            # A program that aborts writes no counts.
            print(f"{target} is left out of the table: an input of {inputs / target} breaks something", file=sys.stderr)
    return profiles


def export(profiles, programs, report):
    if not profiles:
        return {}
    merged = report.with_suffix(".profdata")
    subprocess.run([PROFDATA, "merge", "-sparse", *profiles, "-o", merged], check=True)
    first, *others = programs.values()
    command = [COV, "export", "-format=text", "-skip-functions", "-skip-expansions", f"-instr-profile={merged}", first]
    command += [part for program in others for part in ("-object", program)]
    with report.open("wb") as output:
        subprocess.run(command, stdout=output, check=True)
    return module_table.read(report)
