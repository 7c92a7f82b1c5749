"""PhotoPatches: a small patch data set made of scikit-image's photographs.

Keypoints of each photograph (difference of Gaussians) give classes of 15
patches: random homographies, scale and rotation noise and photometric change
in three strengths. They are written in the formats of PhotoTour and of
HPatches, so that the readers and metrics of those are used as they are.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from mmrank.files import whole_folder

from ..readers.hpatches import STRENGTHS, STRIPS
from ..readers.hpatches import TILE as STRIP_TILE
from ..readers.photo_tour import MOSAIC, TILE
from ..transforms import (
    build_pyramid,
    cut_patch,
    detect_keypoints,
    keypoint_frame,
)

# all of them are inside scikit-image's wheel: nothing is downloaded
TRAIN_PHOTOS = ('astronaut', 'camera', 'coffee', 'gravel',
                'hubble_deep_field', 'immunohistochemistry', 'moon', 'page',
                'cell')
TEST_PHOTOS = ('chelsea', 'coins', 'brick', 'grass', 'retina', 'rocket',
               'text')
SCENES = dict(photos_train=TRAIN_PHOTOS, photos_test=TEST_PHOTOS)

# per strength: shift and perspective (shares of the patch's half side),
# rotation (degrees), scale (log2), photometric change (a share of the range)
NOISE = dict(
    e=dict(shift=.06, bend=.08, rotation=6., scale=.12, light=.5),
    h=dict(shift=.14, bend=.18, rotation=14., scale=.28, light=1.),
    t=dict(shift=.22, bend=.28, rotation=24., scale=.45, light=1.6))


def load_photo(name: str) -> np.ndarray:
    """One of scikit-image's photographs, grey, uint8, at most 640 wide."""
    import skimage
    image = getattr(skimage.data, name)()
    if image.ndim == 3:
        image = cv2.cvtColor(np.ascontiguousarray(image[..., :3]),
                             cv2.COLOR_RGB2GRAY)
    image = np.ascontiguousarray(image, np.uint8)
    shrink = 640 / max(image.shape)
    if shrink < 1:
        image = cv2.resize(image, None, fx=shrink, fy=shrink,
                           interpolation=cv2.INTER_AREA)
    return image


def _jitter(rng: np.random.Generator, noise: dict, bend: float) -> np.ndarray:
    """A random homography near the identity, on [-1, 1]^2."""
    corners = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]], np.float32)
    moved = corners + rng.uniform(-1, 1, (4, 2)) * noise['bend'] * bend
    homography = cv2.getPerspectiveTransform(corners,
                                             moved.astype(np.float32))
    scale = 2.**rng.uniform(-noise['scale'], noise['scale'])
    shift = rng.uniform(-1, 1, 2) * noise['shift']
    rotation = rng.uniform(-1, 1) * noise['rotation']
    return keypoint_frame(shift[0], shift[1], scale, rotation) @ homography


def _relight(patch: np.ndarray, rng: np.random.Generator,
             strength: float) -> np.ndarray:
    """Gain, offset, gamma, a shading gradient, blur and sensor noise."""
    image = patch.astype(np.float32) / 255
    image = image**np.exp2(rng.uniform(-.5, .5) * strength)
    gain = np.exp2(rng.uniform(-.4, .4) * strength)
    ramp = np.linspace(-1, 1, patch.shape[0], dtype=np.float32)
    shade = 1 + .2 * strength * (rng.uniform(-1, 1) * ramp[None]
                                 + rng.uniform(-1, 1) * ramp[:, None])
    image = image * gain * shade + rng.uniform(-.1, .1) * strength
    blur = rng.uniform(0, .8) * strength
    if blur > .2:
        image = cv2.GaussianBlur(image, (0, 0), blur)
    image = image + rng.normal(0, .015 * strength, patch.shape)
    return (image.clip(0, 1) * 255).round().astype(np.uint8)


def make_sequence(photo: np.ndarray, points: np.ndarray, viewpoint: bool,
                  rng: np.random.Generator,
                  size: int = STRIP_TILE) -> dict[str, np.ndarray]:
    """The 16 strips of one sequence.

    Args:
        photo (ndarray): grey, uint8.
        points (ndarray): :func:`detect_keypoints`, shape (n, 3).
        viewpoint (bool): the five images differ by viewpoint, else by
            illumination.

    Returns:
        dict: strip name to patches, uint8, shape (n, size, size).
    """
    pyramid = build_pyramid(photo)
    strips = {name: np.zeros((len(points), size, size), np.uint8)
              for name in STRIPS}
    bend, light = (1.5, .5) if viewpoint else (.5, 1.)
    for index, (x, y, half) in enumerate(points):
        frame = keypoint_frame(x, y, half, rng.uniform(0, 360))
        strips['ref'][index] = cut_patch(pyramid, frame, size)
        for name in STRIPS[1:]:
            noise = NOISE[name[0]]
            patch = cut_patch(pyramid, frame @ _jitter(rng, noise, bend), size)
            strips[name][index] = _relight(patch, rng, noise['light'] * light)
    return strips


def write_photo_patches(out_dir: str,
                        *,
                        keypoints_per_photo: int = 160,
                        num_pairs: int = 10000,
                        seed: int = 0) -> Path:
    """Write the data set, all of it or nothing.

    ``out_dir/phototour/photos_train``, ``photos_test`` (PhotoTour format; the
    15 non-reference patches of each class) and ``out_dir/hpatches`` (HPatches
    format with split 'a': train and test photographs are disjoint). The same
    arguments give the same bytes.

    Args:
        out_dir (str): must not exist, or be a former result.
        keypoints_per_photo (int): half of them in the viewpoint sequence,
            half in the illumination sequence of a photograph.
        num_pairs (int): test pairs of a scene, half of them matching; half
            of the others are of one photograph.
        seed (int): of all random choices.

    Returns:
        Path: ``out_dir``.

    Raises:
        ValueError: if ``out_dir`` holds something else.
    """
    out = Path(out_dir)
    if out.exists() and not (out / 'photo_patches.json').is_file() and (
            not out.is_dir() or any(out.iterdir())):
        raise ValueError(f'{out} exists and is no PhotoPatches data set; '
                         'give another out_dir')
    with whole_folder(out, replace=True) as work:
        _write(work, keypoints_per_photo, num_pairs, seed)
    return out


def _write(work: Path, keypoints: int, num_pairs: int, seed: int) -> None:
    for number, (scene, photos) in enumerate(SCENES.items()):
        sequences = {}
        for order, name in enumerate(photos):
            photo = load_photo(name)
            points = detect_keypoints(photo, keypoints)
            for kind in 'vi':
                rng = np.random.default_rng([seed, number, order, ord(kind)])
                part = points['vi'.index(kind)::2]
                sequences[f'{kind}_{name}'] = make_sequence(
                    photo, part, kind == 'v', rng)
        sequences = {k: v for k, v in sequences.items() if len(v['ref'])}
        rng = np.random.default_rng([seed, number])
        write_photo_tour(work / 'phototour' / scene, sequences, num_pairs,
                         rng)
        write_hpatches_sequences(work / 'hpatches', sequences)
    _write_tasks(work / 'hpatches', num_pairs, seed)
    facts = dict(keypoints_per_photo=keypoints, num_pairs=num_pairs,
                 seed=seed, train=TRAIN_PHOTOS, test=TEST_PHOTOS)
    (work / 'photo_patches.json').write_text(json.dumps(facts, indent=1))


def write_hpatches_sequences(root: Path, sequences: dict) -> None:
    """``root/<sequence>/<strip>.png``."""
    for name, strips in sequences.items():
        folder = root / name
        folder.mkdir(parents=True)
        for strip, tiles in strips.items():
            cv2.imwrite(str(folder / f'{strip}.png'),
                        tiles.reshape(-1, tiles.shape[-1]))


def write_photo_tour(folder: Path, sequences: dict, num_pairs: int,
                     rng: np.random.Generator) -> None:
    """Mosaics, info.txt and test pairs of one scene."""
    folder.mkdir(parents=True)
    tiles, ids, photos, start = [], [], [], 0
    for number, strips in enumerate(sequences.values()):
        patches = np.stack([strips[name] for name in STRIPS[1:]], 1)
        count = len(patches)
        tiles.append(patches.reshape(-1, *patches.shape[2:]))
        ids.append(np.repeat(np.arange(count) + start, len(STRIPS) - 1))
        photos.append(np.full(ids[-1].shape, number))
        start += count
    resized = [cv2.resize(tile, (TILE, TILE), interpolation=cv2.INTER_AREA)
               for tile in np.concatenate(tiles)]
    point_ids, photo_ids = np.concatenate(ids), np.concatenate(photos)
    write_mosaics(folder, resized)
    (folder / 'info.txt').write_text(
        ''.join(f'{point} 0\n' for point in point_ids))
    pairs = _test_pairs(point_ids, photo_ids, num_pairs, rng)
    (folder / 'm50_100000_100000_0.txt').write_text(''.join(
        f'{a} {point_ids[a]} 0 {b} {point_ids[b]} 0 0\n' for a, b in pairs))


def write_mosaics(folder: Path, patches: list[np.ndarray]) -> None:
    """Tiles of 64x64 in 1024x1024 bitmaps, row by row."""
    side = MOSAIC // TILE
    for number in range(-(-len(patches) // side**2)):
        sheet = np.zeros((side**2, TILE, TILE), np.uint8)
        part = patches[number * side**2:(number + 1) * side**2]
        sheet[:len(part)] = part
        image = sheet.reshape(side, side, TILE, TILE).swapaxes(1, 2)
        cv2.imwrite(str(folder / f'patches{number:04d}.bmp'),
                    np.ascontiguousarray(image.reshape(MOSAIC, MOSAIC)))


def _test_pairs(point_ids: np.ndarray, photo_ids: np.ndarray, count: int,
                rng: np.random.Generator) -> np.ndarray:
    half = count // 2
    size = len(STRIPS) - 1
    points = rng.integers(0, point_ids[-1] + 1, half)
    slots = np.argsort(rng.random((half, size)), 1)[:, :2]
    matching = points[:, None] * size + slots
    first, second = rng.integers(0, len(point_ids), (2, 8 * count))
    differs = point_ids[first] != point_ids[second]
    near = photo_ids[first] == photo_ids[second]
    close = np.flatnonzero(differs & near)[:(count - half) // 2]
    far = np.flatnonzero(differs & ~near)[:count - half - len(close)]
    chosen = np.concatenate([close, far])
    others = np.stack([first[chosen], second[chosen]], 1)
    return rng.permutation(np.concatenate([matching, others]))


def _write_tasks(root: Path, count: int, seed: int) -> None:
    """splits.json and the task definitions of every split."""
    lengths = {}
    for folder in sorted(path for path in root.iterdir() if path.is_dir()):
        strip = cv2.imread(str(folder / 'ref.png'), cv2.IMREAD_GRAYSCALE)
        assert strip is not None  # written a moment ago
        lengths[folder.name] = len(strip) // STRIP_TILE
    parts = [[name for name in lengths if name[2:] in photos]
             for photos in SCENES.values()]
    splits = dict(a=dict(name='a', train=parts[0], test=parts[1]))
    for name, kind in (('view', 'v_'), ('illum', 'i_')):
        splits[name] = dict(name=name, test=[
            s for s in parts[1] if s.startswith(kind)])
    (root / 'splits.json').write_text(json.dumps(splits, indent=1))
    tasks = root / 'tasks'
    tasks.mkdir()
    for order, (name, split) in enumerate(splits.items()):
        rng = np.random.default_rng([seed, 99, order])
        write_tasks(tasks, name, {s: lengths[s] for s in split['test']},
                    count, rng)


def write_tasks(folder: Path, split: str, lengths: dict[str, int],
                count: int, rng: np.random.Generator) -> None:
    """The five task files of one split.

    Args:
        lengths (dict): test sequence to its number of patches (>= 2).
        count (int): positive pairs, and negative pairs of each kind.
    """
    names = np.array(list(lengths))
    sizes = np.array(list(lengths.values()))
    one = rng.integers(0, len(names), count)
    two = rng.integers(0, len(names), count)
    images = np.argsort(rng.random((count, 6)), 1)[:, :2]
    patch = rng.integers(0, sizes[one])
    other = (patch + rng.integers(1, sizes[one])) % sizes[one]
    far = rng.integers(0, sizes[two])
    # a pair of one sequence and one index would be a match
    same = (one == two) & (far == patch)
    far[same] = (far[same] + 1) % sizes[two][same]
    for kind, sequence, index in (('pos', one, patch),
                                  ('neg_intra', one, other),
                                  ('neg_inter', two, far)):
        rows = zip(names[one], images[:, 0], patch, names[sequence],
                   images[:, 1], index)
        _write_csv(folder / f'verif_{kind}_split-{split}.csv',
                   's1,t1,idx1,s2,t2,idx2', rows)
    everything = [(name, i) for name in lengths for i in range(lengths[name])]
    order = rng.permutation(len(everything))
    cut = min(len(order) // 3, 500)
    for kind, part in (('queries', order[:cut]), ('distractors', order[cut:])):
        _write_csv(folder / f'retr_{kind}_split-{split}.csv', 's,idx',
                   (everything[i] for i in part))


def _write_csv(path: Path, header: str, rows: Iterable[Any]) -> None:
    lines = [header, *(','.join(map(str, row)) for row in rows)]
    path.write_text('\n'.join(lines) + '\n')


assert set(NOISE) == set(STRENGTHS)
