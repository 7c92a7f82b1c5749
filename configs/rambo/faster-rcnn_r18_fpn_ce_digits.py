# Cross-entropy on DigitsOnPhotos: the twin of
# faster-rcnn_r18_fpn_rambo_digits.py
_base_ = [
    '../_base_/models/faster-rcnn_r18_fpn_small.py',
    '../_base_/datasets/digits_on_photos.py',
    '../_base_/schedules/digits_8e.py',
    '../_base_/class_checks.py',
    'mmdet::_base_/default_runtime.py',
]
default_hooks = dict(
    logger=dict(interval=25),
    checkpoint=dict(max_keep_ckpts=1))
randomness = dict(seed=0)
