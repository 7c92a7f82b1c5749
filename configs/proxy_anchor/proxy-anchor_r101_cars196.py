_base_ = './proxy-anchor_r50_cars196.py'
model = dict(backbone=dict(depth=101, init_cfg=dict(checkpoint='torchvision://resnet101')))
