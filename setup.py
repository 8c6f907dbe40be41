"""Builds the native module `fedincentive._native` with ninja: one object per instruction set needs its own flags,
which one setuptools Extension cannot express. Where nvcc is found, `fedincentive._cuda` is built beside it
(FEDINCENTIVE_CUDA=1 insists, =0 skips). Project metadata is in pyproject.toml."""

from __future__ import annotations

import base64
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py
from setuptools.command.editable_wheel import editable_wheel
from setuptools.errors import CompileError

ROOT = Path(__file__).resolve().parent
CSRC = ROOT / "csrc"

# -ffp-contract=off: or GCC fuses multiply and add under AVX-512 only, and results differ between machines.
FLAGS = ["-std=c++17", "-O3", "-g0", "-fPIC", "-fvisibility=hidden", "-ffp-contract=off", "-Wall", "-Wextra"]
# GCC 12 suspects its own AVX-512 header
FLAGS += ["-Wno-uninitialized", "-Wno-maybe-uninitialized"]
ISA_FLAGS = {
    "isa_avx2": ["-mavx2", "-mf16c", "-mfma"],
    "isa_avx512": ["-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mprefer-vector-width=512"],
}
X86_ONLY = set(ISA_FLAGS)

# One PTX, of the oldest architecture nvcc 13 knows, is translated for all; devices not listed translate it themselves.
CUDA_VIRTUAL, CUDA_REAL = "compute_75", ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"]
# --fmad=false: results are the CPU's bit for bit.
CUDA_FLAGS = ["-std=c++17", "-O3", "--fmad=false", "-Xcompiler=-fPIC,-fvisibility=hidden,-Wall"]

NO_NVCC = """
FEDINCENTIVE_CUDA=1 asks for the CUDA kernels, and nvcc is not in $CUDA_HOME/bin, on PATH or in /usr/local/cuda/bin.
Install the CUDA toolkit 12 or later, or leave FEDINCENTIVE_CUDA unset to build for the CPU alone."""

NO_COMPILER = """
fedincentive needs a C++17 compiler to build its kernels, and {compiler!r} was not found.
Install one and try again:
  Debian, Ubuntu   apt-get install g++
  Fedora           dnf install gcc-c++
  macOS            xcode-select --install
or set CXX to the compiler to use."""


def compiler() -> list[str]:
    """The C++ compiler command, from CXX or the usual names; a missing one says what to install."""
    wanted = os.environ.get("CXX")
    for candidate in [wanted] if wanted else ["g++", "c++", "clang++"]:
        command = shlex.split(candidate)
        if shutil.which(command[0]):
            return command
    raise SystemExit(NO_COMPILER.format(compiler=wanted or "g++"))


def ninja() -> str:
    """The ninja program: the build requirement's own copy, else one on PATH."""
    try:
        from ninja import BIN_DIR

        return str(Path(BIN_DIR) / "ninja")
    except ImportError:
        found = shutil.which("ninja")
        if found is None:
            raise SystemExit("fedincentive needs ninja to build: pip install ninja") from None
        return found


def nvcc() -> str | None:
    """The CUDA compiler, or None where it is not wanted or not there."""
    wanted = os.environ.get("FEDINCENTIVE_CUDA", "")
    if wanted not in ("", "0", "1"):
        raise SystemExit(f"FEDINCENTIVE_CUDA={wanted!r} is unknown: 1 insists on the CUDA kernels, 0 skips them.")
    if wanted == "0":
        return None
    homes = [os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    candidates = [*(str(Path(home) / "bin" / "nvcc") for home in homes), "nvcc", "/usr/local/cuda/bin/nvcc"]
    found = next(filter(None, map(shutil.which, candidates)), None)
    if wanted == "1" and found is None:
        raise SystemExit(NO_NVCC)
    return found


def cuda_ninja_file(nvcc: str, target: Path, objects: Path, include: list[str]) -> str:
    """The same for the CUDA module: nvcc knows its own headers and links its runtime statically."""
    known = subprocess.run([nvcc, "--list-gpu-code"], capture_output=True, text=True, check=True).stdout.split()
    real = [code for code in CUDA_REAL if code in known]
    archs = f"{' '.join(real)} + PTX {CUDA_VIRTUAL}"
    generate = f"-gencode=arch={CUDA_VIRTUAL},code=[{','.join([*real, CUDA_VIRTUAL])}]"
    flags = [*CUDA_FLAGS, f"-ccbin={compiler()[0]}", *(f"-I{folder}" for folder in include)]
    command = " ".join(shlex.quote(part) for part in [nvcc, *flags])
    lines = [
        "ninja_required_version = 1.5",
        f"rule compile\n  command = {command} -MMD -MF $out.d $extra -c $in -o $out",
        "  depfile = $out.d\n  deps = gcc\n  description = $in",
        f"rule link\n  command = {command} -shared -cudart=static -Xlinker=-s $in -o $out\n  description = $out",
    ]
    outputs = []
    for source in cuda_sources():
        output = quoted(objects / f"{source.stem}.o")
        outputs.append(output)
        extra = shlex.quote(generate if source.suffix == ".cu" else f'-DFEDINCENTIVE_CUDA_ARCHS="{archs}"')
        lines.append(f"build {output}: compile {quoted(source)}\n  extra = {extra}")
    lines.append(f"build {quoted(target)}: link {' '.join(outputs)}")
    return "\n".join(lines) + "\n"


def cuda_sources() -> list[Path]:
    return sorted([*(CSRC / "cuda").glob("*.cu"), CSRC / "cuda" / "bindings.cpp"])


def sources() -> list[Path]:
    """Every .cpp of the CPU module; the instruction-set units of x86 only there."""
    import platform

    x86 = platform.machine().lower() in ("x86_64", "amd64")
    found = [path for folder in (CSRC, CSRC / "core", CSRC / "cpu") for path in sorted(folder.glob("*.cpp"))]
    return [path for path in found if x86 or path.stem not in X86_ONLY]


def quoted(path: object) -> str:
    """A path as ninja and the shell read it back."""
    return str(path).replace("$", "$$").replace(" ", "$ ").replace(":", "$:")


def ninja_file(target: Path, objects: Path, include: list[str]) -> str:
    """The build description: one compile edge per source, one link edge."""
    link = ["-undefined", "dynamic_lookup"] if sys.platform == "darwin" else ["-Wl,--as-needed", "-pthread"]
    command = " ".join(shlex.quote(part) for part in compiler())
    flags = " ".join(shlex.quote(part) for part in [*FLAGS, *(f"-I{folder}" for folder in include)])
    lines = [
        "ninja_required_version = 1.5",
        f"rule compile\n  command = {command} -MMD -MF $out.d {flags} $extra -c $in -o $out",
        "  depfile = $out.d\n  deps = gcc\n  description = $in",
        f"rule link\n  command = {command} -shared $in {' '.join(link)} -o $out\n  description = $out",
    ]
    outputs = []
    for source in sources():
        output = objects / f"{source.parent.name}_{source.stem}.o"
        outputs.append(quoted(output))
        lines.append(f"build {quoted(output)}: compile {quoted(source)}")
        lines.append(f"  extra = {' '.join(ISA_FLAGS.get(source.stem, []))}")
    lines.append(f"build {quoted(target)}: link {' '.join(outputs)}")
    return "\n".join(lines) + "\n"


class BuildNative(build_ext):
    """Replaces the compilation of an Extension by a ninja run; the rest of setuptools stays as it is."""

    def build_extension(self, ext: Extension) -> None:
        import pybind11

        target = Path(self.get_ext_fullpath(ext.name)).resolve()
        objects = Path(self.build_temp).resolve() / ext.name.rpartition("._")[2]
        for folder in (target.parent, objects):
            folder.mkdir(parents=True, exist_ok=True)
        include = [pybind11.get_include(), sysconfig.get_path("include")]
        description = objects / "build.ninja"
        cuda = nvcc() if ext.name.endswith("._cuda") else None
        text = cuda_ninja_file(cuda, target, objects, include) if cuda else ninja_file(target, objects, include)
        description.write_text(text)
        try:
            subprocess.run([ninja(), "-f", str(description)], cwd=objects, check=True)
        except subprocess.CalledProcessError as error:
            message = f"fedincentive: building {ext.name} failed with status {error.returncode}"
            raise (CompileError(message) if ext.optional else SystemExit(message)) from None


# Site-packages' .pth files are read at interpreter start: this one loads the hook that waits for FedML.
HOOK_PTH, HOOK_LINE = "fedincentive.pth", "import fedincentive_hook\n"


class BuildModules(build_py):
    """Adds the .pth file to a wheel, beside the modules."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            (Path(self.build_lib) / HOOK_PTH).write_text(HOOK_LINE)

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        return [*super().get_outputs(include_bytecode), str(Path(self.build_lib) / HOOK_PTH)]


class EditableWheel(editable_wheel):
    """Adds the .pth file to the wheel of an editable install, which build_py does not fill."""

    def run(self) -> None:
        super().run()
        wheel = max(Path(self.dist_dir).glob("*.whl"), key=lambda path: path.stat().st_mtime)
        digest = base64.urlsafe_b64encode(hashlib.sha256(HOOK_LINE.encode()).digest()).rstrip(b"=").decode()
        with zipfile.ZipFile(wheel) as archive:
            files = {name: archive.read(name) for name in archive.namelist()}
        record = next(name for name in files if name.endswith(".dist-info/RECORD"))
        files[record] += f"{HOOK_PTH},sha256={digest},{len(HOOK_LINE)}\n".encode()
        with zipfile.ZipFile(wheel, "w") as archive:
            for name, data in {HOOK_PTH: HOOK_LINE.encode(), **files}.items():
                archive.writestr(name, data)


def packages() -> list[str]:
    """fedincentive with all its subpackages, and plugins/ as fedincentive.plugins."""
    plugins = ["fedincentive.plugins", *(f"fedincentive.plugins.{name}" for name in find_packages("plugins"))]
    return [*find_packages(include=["fedincentive", "fedincentive.*"]), *plugins]


def extensions() -> list[Extension]:
    """The CPU module always; the CUDA module where nvcc is found, and then optional unless insisted on."""
    found = [Extension("fedincentive._native", [str(path.relative_to(ROOT)) for path in sources()])]
    if nvcc():
        insisted = os.environ.get("FEDINCENTIVE_CUDA") == "1"
        paths = [str(path.relative_to(ROOT)) for path in cuda_sources()]
        found.append(Extension("fedincentive._cuda", paths, optional=not insisted))
    return found


setup(
    packages=packages(),
    package_dir={"fedincentive.plugins": "plugins"},
    py_modules=["fedincentive_hook"],
    package_data={
        "fedincentive": ["py.typed"],
        "fedincentive.ledger": ["schema/*.sql", "schema/*.json"],
        "fedincentive.experiments": ["presets/*.yaml"],
        "fedincentive.reports": ["watch.html"],
    },
    ext_modules=extensions(),
    cmdclass={"build_ext": BuildNative, "build_py": BuildModules, "editable_wheel": EditableWheel},
)
