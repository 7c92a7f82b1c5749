_base_ = './proxy-anchor_r50_cub200.py'
model = dict(backbone=dict(depth=101, init_cfg=dict(checkpoint='torchvision://resnet101')))
