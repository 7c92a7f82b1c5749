"""Export a descriptor model to TorchScript or ONNX, and check the result.

    python tools/export_descriptor.py CONFIG CHECKPOINT descriptor.onnx
    python tools/export_descriptor.py CONFIG CHECKPOINT descriptor.pt

The exported model takes grey patches (N, 1, 32, 32), float32, of any range
(normalisation is inside), and returns descriptors (N, 128).
"""

import argparse
import sys
import warnings
from pathlib import Path

import torch
from torch import Tensor, nn

if __package__ is None:  # a checkout, not installed
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from mmrank.apis.describe import init_descriptor


class Exported(nn.Module):
    """Normalisation and network, from patches to descriptors."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, patches: Tensor) -> Tensor:
        return self.model.describe(patches)


def export(model: nn.Module, path: Path) -> float:
    """Write ``path``; the largest difference from the model itself."""
    if path.suffix not in ('.pt', '.onnx'):
        raise ValueError(f'the output must end in .pt (TorchScript) or .onnx, '
                         f'but is {path}')
    side = model.data_preprocessor.patch_size
    module = Exported(model.cpu().eval())
    sample, other = (torch.rand(n, 1, side, side) * 255 for n in (3, 5))
    with torch.no_grad(), warnings.catch_warnings():
        # the shape checks of the network become constants: intended
        warnings.simplefilter('ignore')
        want = module(other)
        if path.suffix == '.pt':
            torch.jit.trace(module, sample).save(str(path))
            got = torch.jit.load(str(path))(other)
        else:
            _write_onnx(module, sample, path)
            got = _run_onnx(path, other, want)
    return float((got - want).abs().max())


def _write_onnx(module: nn.Module, sample: Tensor, path: Path) -> None:
    names = dict(input_names=['patches'], output_names=['descriptors'])
    axes = dict(patches={0: 'n'}, descriptors={0: 'n'})
    options = {}
    if 'dynamo' in torch.onnx.export.__code__.co_varnames:
        options = dict(dynamo=False)
    torch.onnx.export(module, (sample,), str(path), dynamic_axes=axes,
                      opset_version=17, **names, **options)


def _run_onnx(path: Path, patches: Tensor, want: Tensor) -> Tensor:
    try:
        import onnxruntime
    except ImportError:
        print('onnxruntime is not installed: the file is not checked')
        return want
    session = onnxruntime.InferenceSession(
        str(path), providers=['CPUExecutionProvider'])
    return torch.from_numpy(session.run(None, {'patches': patches.numpy()})[0])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument('config')
    parser.add_argument('checkpoint')
    parser.add_argument('out', type=Path)
    args = parser.parse_args()
    error = export(init_descriptor(args.config, args.checkpoint), args.out)
    print(f'wrote {args.out}; largest difference {error:.2e}')


if __name__ == '__main__':
    main()
