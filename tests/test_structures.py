import numpy as np
import pytest
import torch
from mmengine.structures import LabelData

from mmrank.structures import RetrievalDataSample


@pytest.mark.parametrize('label', [
    3, np.int64(3), np.array([3]), torch.tensor(3), torch.tensor([3])])
def test_a_label_is_one_int64(label):
    found = RetrievalDataSample().set_gt_label(label).gt_label.label
    assert found.dtype == torch.int64 and found.tolist() == [3]


def test_an_image_has_one_label():
    with pytest.raises(ValueError, match=r'one label.*\[1, 2\]'):
        RetrievalDataSample().set_gt_label([1, 2])


def test_fields_have_their_types():
    sample = RetrievalDataSample(metainfo=dict(sample_idx=4, img_path='a'))
    sample.pred_embedding = torch.ones(3)
    sample.gt_label = LabelData(label=torch.tensor([1]))
    assert 'pred_embedding' in sample and 'gt_label' in sample
    assert (sample.sample_idx, sample.img_path) == (4, 'a')
    with pytest.raises(AssertionError):
        sample.pred_embedding = [1.]
    del sample.pred_embedding, sample.gt_label
    assert 'pred_embedding' not in sample and 'gt_label' not in sample
