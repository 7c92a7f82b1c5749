# The paper's Table 8, VOC 07, R50: lambda 2.5, with margin (published: 74.3)
_base_ = './faster-rcnn_r50_fpn_rambo_voc07.py'
model = dict(
    roi_head=dict(bbox_head=dict(loss_cls=dict(lambda_val=2.5))))
