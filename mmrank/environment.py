"""Says in one message what an environment lacks: ``python -m mmrank check``.

The standard library alone is imported here, so that the message also
arrives where torch is missing.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from importlib import metadata
from typing import NamedTuple

Version = Callable[[str], 'str | None']
Load = Callable[[str], object]

# distributions of one import name: the two stacks
NAMES = {
    'mmengine': ('onedl-mmengine', 'mmengine'),
    'mmcv': ('onedl-mmcv', 'mmcv'),
    'mmdet': ('onedl-mmdetection', 'mmdet'),
}
# the versions that the code is written for: from, below
NEEDED = {
    'torch': ('2.0', '2.13'),
    'mmengine': ('0.10', '1.0'),
    'mmcv': ('2.0.1', '3.0'),
    'mmdet': ('3.1', '4.0'),
}
PINS = {
    'maintained': {
        'torch': 'torch==2.9.1 torchvision==0.24.1',
        'mmengine': 'onedl-mmengine==0.10.12',
        'mmcv': 'onedl-mmcv==2.3.6',
        'mmdet': 'onedl-mmdetection==3.5.1',
    },
    'upstream': {
        'torch': "torch==2.1.2 torchvision==0.16.2 'numpy<2'",
        'mmengine': 'mmengine==0.10.7',
        'mmcv': 'mmcv==2.1.0',
        'mmdet': 'mmdet==3.3.0',
    },
}
PIP = 'python -m pip install'
COMPILED = (f'{PIP} "setuptools>=77,<81" wheel ninja && '
            f'{PIP} --no-build-isolation')


class Problem(NamedTuple):
    """One thing that is wrong with an environment."""

    found: str
    needed: str
    command: str

    def __str__(self) -> str:
        return (f'found:  {self.found}\nneeded: {self.needed}\n'
                f'mend:   {self.command}')


def installed_version(distribution: str) -> str | None:
    """The version of an installed distribution, None where there is none."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _number(version: str) -> tuple[int, ...]:
    """The release segment: ``'2.1.2+cpu'`` -> ``(2, 1, 2)``."""
    release = version.split('+')[0].split('rc')[0].split('.dev')[0]
    return tuple(int(part) for part in release.split('.') if part.isdigit())


def _stack(version: Version) -> str:
    upstream = any(version(names[1]) for names in NAMES.values())
    maintained = any(version(names[0]) for names in NAMES.values())
    return 'upstream' if upstream and not maintained else 'maintained'


def _command(name: str, stack: str, *, again: bool = False) -> str:
    pin = PINS[stack][name]
    if name not in ('mmcv', 'mmdet'):
        return f'{PIP} {pin}'
    if again:
        plain = pin.split('==')[0]
        return (f'{COMPILED} --force-reinstall --no-cache-dir --no-deps '
                f'--no-binary {plain} {pin}')
    return f'{COMPILED} {pin}'


def find_problem(
    version: Version = installed_version,
    load: Load = importlib.import_module,
) -> Problem | None:
    """The first thing that keeps the stack from working, or None.

    Args:
        version: Gives the version of a distribution or None.
        load: Imports a module.

    Returns:
        What was found, what is needed and the command that mends it; None
        when torch, mmcv's operators and mmdet import and their versions
        are ones this package is written for.
    """
    stack = _stack(version)
    checks = (_twice, _versions, _numpy, _mmcv_for_mmdet, _imports)
    return next(filter(None, (check(stack, version, load)
                              for check in checks)), None)


def _twice(
    stack: str, version: Version, load: Load,
) -> Problem | None:
    for name, (maintained, upstream) in NAMES.items():
        both = version(maintained), version(upstream)
        if all(both):
            return Problem(
                f'{maintained} {both[0]} and {upstream} {both[1]}, which '
                f'overwrite each other as {name}', 'one of the two',
                f'python -m pip uninstall -y {maintained} {upstream} && '
                + _command(name, stack, again=True))
    return None


def _versions(
    stack: str, version: Version, load: Load,
) -> Problem | None:
    for name, (lowest, limit) in NEEDED.items():
        found = next(filter(None, map(version, NAMES.get(name, (name,)))),
                     None)
        needed = f'{name} >= {lowest}, < {limit}'
        if found is None:
            return Problem(f'no {name}', needed, _command(name, stack))
        if not _number(lowest) <= _number(found) < _number(limit):
            return Problem(f'{name} {found}', needed, _command(name, stack))
    return None


def _numpy(
    stack: str, version: Version, load: Load,
) -> Problem | None:
    torch, numpy = version('torch'), version('numpy')
    if (torch and numpy and _number(torch) < (2, 3)
            and _number(numpy) >= (2,)):
        return Problem(f'numpy {numpy} beside torch {torch}',
                       'numpy < 2: torch before 2.3 was compiled against 1',
                       f"{PIP} 'numpy<2'")
    return None


def _mmcv_for_mmdet(
    stack: str, version: Version, load: Load,
) -> Problem | None:
    mmcv, mmdet = version('mmcv'), version('mmdet')
    if mmcv and mmdet and _number(mmcv) >= (2, 2):
        return Problem(f'mmcv {mmcv} beside mmdet {mmdet}',
                       f'mmcv < 2.2, which mmdet {mmdet} asks for',
                       _command('mmcv', stack))
    return None


def _imports(
    stack: str, version: Version, load: Load,
) -> Problem | None:
    for module in ('torch', 'cv2', 'mmengine', 'mmcv', 'mmcv.ops', 'mmdet'):
        try:
            load(module)
        except Exception as error:
            return _import_problem(module, error, stack, version)
    return None


def _import_problem(module: str, error: Exception, stack: str,
                    version: Version) -> Problem:
    says = f'{type(error).__name__}: {str(error).strip().splitlines()[-1]}' \
        if str(error).strip() else type(error).__name__
    if module == 'cv2':
        return Problem(
            f'OpenCV does not import ({says})',
            'an OpenCV; the headless build needs no libGL',
            'python -m pip uninstall -y opencv-python opencv-python-headless '
            f"&& {PIP} 'opencv-python-headless<5'")
    if module == 'mmcv.ops':
        return Problem(
            f'an mmcv whose operators do not load ({says})',
            f'mmcv.ops compiled against the installed torch '
            f'{version("torch")}; half an hour on two cores, or a wheel '
            'that fits',
            _command('mmcv', stack, again=True))
    return Problem(f'{module} does not import ({says})',
                   f'a {module} that imports', _command(module, stack))


def main() -> int:
    """Prints the problem, or the versions found; 1 when there is one."""
    problem = find_problem()
    if problem:
        print(f'mmrank: this environment does not work yet.\n{problem}',
              file=sys.stderr)
        return 1
    found = [
        f'{name} {next(filter(None, map(installed_version, names)))}'
        for name, names in {'torch': ('torch',), **NAMES}.items()]
    print('mmrank: this environment works: ' + ', '.join(found))
    return 0
