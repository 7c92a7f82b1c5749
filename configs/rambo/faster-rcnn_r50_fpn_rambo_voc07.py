# VOC 07, the paper's settings (section 5.2)
_base_ = ['./faster-rcnn_r50_fpn_ce_voc07.py', '../_base_/losses/rambo.py']
model = dict(
    roi_head=dict(
        bbox_head=dict(
            loss_cls=dict(
                _delete_=True,
                **_base_.rambo,
                memory_batches=7))),
    # ranks mean the same at every level of the scores: none is cut off
    test_cfg=dict(rcnn=dict(score_thr=0.0)))
optim_wrapper = dict(optimizer=dict(lr=0.1))
