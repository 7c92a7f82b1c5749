"""Packaging: mmrank with its configs and tools inside, as mmdet does it.

Neither torch nor mmengine, mmcv and mmdet are requirements: two stacks
provide those import names, and their wheels depend on one another. See
requirements/ and tools/setup_env.sh.
"""

import os
import shutil
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
INSIDE = ('configs', 'tools', 'requirements', 'model-index.yml')


def version() -> str:
    """The version, read without importing the package."""
    scope: dict = {}
    exec((ROOT / 'mmrank' / 'version.py').read_text(), scope)
    return scope['__version__']


def readme() -> str:
    """The long description."""
    path = ROOT / 'README.md'
    return path.read_text(encoding='utf-8') if path.is_file() else ''


class BuildWithConfigs(build_py):
    """Puts configs and tools into ``mmrank/.mim``, where mim looks too."""

    def run(self) -> None:
        """Builds the modules, then adds the folder."""
        super().run()
        if self.editable_mode:
            self._link(ROOT / 'mmrank' / '.mim')
        else:
            self._copy(Path(self.build_lib) / 'mmrank' / '.mim')

    def _copy(self, target: Path) -> None:
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        junk = shutil.ignore_patterns('__pycache__', '*.pyc')
        for name in INSIDE:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, target / name, ignore=junk)
            elif source.is_file():
                shutil.copy2(source, target / name)

    def _link(self, target: Path) -> None:
        target.mkdir(exist_ok=True)
        for name in INSIDE:
            link = target / name
            if (ROOT / name).exists() and not link.is_symlink():
                try:
                    link.symlink_to(os.path.relpath(ROOT / name, target))
                except OSError:  # no links here: only mim would want them
                    return

    def get_outputs(self, include_bytecode: bool = True) -> list:
        """The files of the build, ours included."""
        ours = Path(self.build_lib) / 'mmrank' / '.mim'
        return super().get_outputs(include_bytecode) + [
            str(path) for path in ours.rglob('*') if path.is_file()]


EXTRAS = {
    'faiss': ['faiss-cpu'],
    'sklearn': ['scikit-learn', 'scikit-image'],
    'umap': ['umap-learn'],
    'tensorboard': ['tensorboard'],
    'timm': ['timm'],
    'pml': ['pytorch-metric-learning'],
    'onnx': ['onnx', 'onnxruntime'],
}
EXTRAS['all'] = sorted({name for names in EXTRAS.values() for name in names})
EXTRAS['tests'] = EXTRAS['all'] + [
    'pytest', 'pytest-cov', 'pytest-timeout', 'hypothesis', 'ruff', 'mypy']

setup(
    name='mmrank',
    version=version(),
    description='Ranking losses, metric learning and samplers for '
    'MMDetection 3.x and MMEngine',
    long_description=readme(),
    long_description_content_type='text/markdown',
    license='Apache-2.0',
    license_files=['LICENSE'],
    python_requires='>=3.10',
    packages=find_packages(include=['mmrank', 'mmrank.*']),
    install_requires=['numpy', 'pillow', 'matplotlib', 'tqdm'],
    extras_require=EXTRAS,
    entry_points={'console_scripts': ['mmrank=mmrank.__main__:main']},
    cmdclass={'build_py': BuildWithConfigs},
    keywords='ranking loss, average precision, metric learning, image '
    'retrieval, object detection',
    classifiers=[
        'Development Status :: 4 - Beta',
        'Intended Audience :: Science/Research',
        'Programming Language :: Python :: 3',
        'Programming Language :: Python :: 3.10',
        'Programming Language :: Python :: 3.11',
        'Programming Language :: Python :: 3.12',
        'Programming Language :: Python :: 3.13',
        'Topic :: Scientific/Engineering :: Artificial Intelligence',
    ],
    zip_safe=False,
)
