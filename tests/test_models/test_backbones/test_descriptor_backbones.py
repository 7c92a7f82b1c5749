import pytest
import torch
from torch import nn

from mmrank.models import L2Net
from mmrank.models.backbones import SIFTPatches


def test_l2net_is_the_published_architecture():
    convolutions = [m for m in L2Net().modules() if isinstance(m, nn.Conv2d)]
    assert [(c.in_channels, c.out_channels, c.kernel_size[0], c.stride[0])
            for c in convolutions] == [
                (1, 32, 3, 1), (32, 32, 3, 1), (32, 64, 3, 2), (64, 64, 3, 1),
                (64, 128, 3, 2), (128, 128, 3, 1), (128, 128, 8, 1)]
    assert all(c.bias is None for c in convolutions)
    norms = [m for m in L2Net().modules() if isinstance(m, nn.BatchNorm2d)]
    assert len(norms) == 7 and not any(n.affine for n in norms)
    assert sum(isinstance(m, nn.ReLU) for m in L2Net().modules()) == 6


@pytest.mark.parametrize('count', [0, 1, 3])
def test_l2net_gives_unit_rows(count):
    rows = L2Net(widths=(2, 2, 2)).eval()(torch.randn(count, 1, 32, 32))
    assert rows.shape == (count, 128)
    torch.testing.assert_close(rows.norm(dim=1), torch.ones(count))


def test_l2net_refuses_patches_of_another_size():
    with pytest.raises(ValueError, match='patch_size=32'):
        L2Net(widths=(2, 2, 2))(torch.randn(1, 1, 64, 64))


def test_l2net_compiles():
    net = L2Net(widths=(2, 2, 2)).eval()
    patches = torch.randn(2, 1, 32, 32)
    torch.testing.assert_close(torch.compile(net, backend='eager')(patches),
                               net(patches))


@pytest.mark.parametrize('root', [False, True])
def test_sift_describes_the_whole_patch(root):
    net = SIFTPatches(root=root)
    patches = torch.rand(3, 1, 64, 64)
    patches = nn.functional.avg_pool2d(patches, 9, 1, 4)
    rows = net(patches)
    assert rows.shape == (3, 128)
    torch.testing.assert_close(rows.norm(dim=1), torch.ones(3))
    torch.testing.assert_close(net(patches * 3 - 7), rows, atol=.05, rtol=0)
    edge = patches.clone()
    edge[:, :, :10] = 0
    assert ((net(edge) - rows).norm(dim=1) > .1).all()
    assert net(patches[:0]).shape == (0, 128)
