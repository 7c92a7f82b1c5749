# VOC 07, the paper's settings (section 5.2)
_base_ = './faster-rcnn_r50_fpn_ce_voc07.py'
model = dict(
    roi_head=dict(
        bbox_head=dict(
            loss_cls=dict(
                _delete_=True,
                type='mmrank.RaMBOLoss',
                memory_batches=7,
                margin=0.15,
                lambda_val=0.5,
                map_weight=2.0,
                cross_class_weight=1.0,
                loss_weight=1.0))),
    # ranks mean the same at every level of the scores: none is cut off
    test_cfg=dict(rcnn=dict(score_thr=0.0)))
optim_wrapper = dict(optimizer=dict(lr=0.1))
