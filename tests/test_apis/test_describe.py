import cv2
import numpy as np
import pytest
import torch
from mmengine.config import Config

from mmrank.apis import describe, init_descriptor, match
from mmrank.apis.describe import keypoint_frames


@pytest.fixture(scope='module')
def model():
    torch.manual_seed(0)
    config = Config(dict(model=dict(
        type='mmrank.DescriptorLearner',
        backbone=dict(type='mmrank.L2Net', widths=(4, 4, 4)),
        loss=dict(type='mmrank.HingeTripletLoss'))))
    return init_descriptor(config)


@pytest.fixture(scope='module')
def image():
    noise = np.random.default_rng(0).integers(0, 256, (90, 120))
    return cv2.GaussianBlur(noise.astype(np.uint8), (0, 0), 2)


POINTS = np.array([[30., 40., 12.], [70., 45., 12.], [5., 5., 12.]])


def test_one_unit_row_of_128_a_keypoint_in_their_order(model, image):
    rows = describe(image, POINTS, model)
    assert rows.shape == (3, 128) and rows.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(describe(image, POINTS[1:2], model), rows[1:2],
                               atol=1e-5)


def test_all_kinds_of_keypoints_mean_the_same(model, image):
    want = describe(image, POINTS, model)
    half = 30.
    frames = np.array([[[half, 0, x], [0, half, y]] for x, y, _ in POINTS])
    for points in (POINTS[:, :2], np.pad(POINTS, ((0, 0), (0, 1))),
                   POINTS.tolist(), torch.from_numpy(POINTS),
                   [cv2.KeyPoint(*map(float, p)) for p in POINTS],
                   torch.from_numpy(frames)[None], frames):
        np.testing.assert_allclose(describe(image, points, model), want,
                                   atol=1e-5)


def test_the_angle_turns_the_patch(model, image):
    upright = np.array([[60., 45., 4., 0.]])
    turned = np.ascontiguousarray(np.rot90(image, -1))
    # a quarter turn clockwise takes (x, y) to (height - 1 - y, x)
    there = np.array([[image.shape[0] - 1 - 45., 60., 4., 90.]])
    np.testing.assert_allclose(describe(turned, there, model),
                               describe(image, upright, model), atol=.05)


def test_grey_range_and_colour_do_not_matter(model, image):
    want = describe(image, POINTS, model)
    for other in (image / 255., image.astype(np.float32) * .5 + 30,
                  np.repeat(image[..., None], 3, 2)):
        np.testing.assert_allclose(describe(other, POINTS, model), want,
                                   atol=1e-4)


@pytest.mark.parametrize('none', [[], np.zeros((0, 2)), torch.zeros(0, 2, 3)])
def test_no_keypoints_give_no_rows(model, image, none):
    assert describe(image, none, model).shape == (0, 128)


def test_clear_errors(model, image):
    with pytest.raises(ValueError, match=r'image must have shape.*\(2,'):
        describe(image[None].repeat(2, 0), POINTS, model)
    with pytest.raises(ValueError, match=r'keypoints must be.*\(1, 5\)'):
        describe(image, [[1, 2, 3, 4, 5]], model)
    assert keypoint_frames([]).shape == (0, 3, 3)
    with pytest.raises(FileNotFoundError):
        init_descriptor('no_such_config.py')


def test_matches_are_mutual_and_sorted():
    first = np.array([[0., 0.], [1., 0.], [5., 5.]])
    second = np.array([[1.1, 0.], [0., .05], [1.3, 0.]])
    assert match(first, second).tolist() == [[0, 1], [1, 0]]
    assert match(first, second, ratio=.1).tolist() == [[0, 1]]
    assert match(first[:0], second).shape == (0, 2)
    assert match(first, second[:1]).tolist() == [[1, 0]]


def test_a_known_homography_is_recovered_by_untrained_features_too(model):
    """A pair with known geometry: a photograph moved by ten pixels."""
    from skimage.data import camera
    photo = camera()
    moved = np.roll(photo, 10, 1)
    points = np.array([[x, y, 8.] for x in range(100, 400, 60)
                       for y in range(100, 400, 60)])
    found = match(describe(photo, points, model),
                  describe(moved, points + [10, 0, 0], model))
    assert (found[:, 0] == found[:, 1]).mean() > .9


@pytest.mark.parametrize('picture, points, words', [
    (np.zeros((0, 9)), POINTS, r'image.*\(0, 9\)'),
    (np.full((9, 9), np.nan), POINTS, 'image must be finite'),
    (None, POINTS * [1, np.nan, 1], 'row 0'),
    (None, POINTS * [1, 1, 0], 'keypoint 0 is 0'),
    (None, POINTS * [1, 1, -1], 'keypoint 0 is -12'),
])
def test_what_has_no_descriptor_is_named(model, image, picture, points,
                                         words):
    with pytest.raises(ValueError, match=words):
        describe(image if picture is None else picture, points, model)


@pytest.mark.parametrize('first, words', [
    (np.ones((2, 4)), r'\(2, 4\) and \(2, 3\)'),
    (np.full((2, 3), np.nan), 'finite')])
def test_descriptors_that_cannot_be_matched_are_refused(first, words):
    with pytest.raises(ValueError, match=words):
        match(first, np.eye(3)[:2])
