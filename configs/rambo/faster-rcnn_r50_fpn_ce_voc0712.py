# VOC 07+12, cross-entropy: the twin of faster-rcnn_r50_fpn_rambo_voc0712.py
_base_ = [
    'mmdet::_base_/models/faster-rcnn_r50_fpn.py',
    '../_base_/datasets/voc0712.py',
    '../_base_/schedules/voc_12e.py',
    '../_base_/class_checks.py',
    'mmdet::_base_/default_runtime.py',
]
model = dict(roi_head=dict(bbox_head=dict(num_classes=20)))
