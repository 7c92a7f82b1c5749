# ATSS on COCO: one ranking over all pyramid levels.
# The loss's parameters are the paper's for Pascal VOC, the schedule and the
# learning rate are the detector's own; nothing here is tuned on COCO.
# memory_negatives bounds the score memory: of each remembered batch the rows
# of the positives and of every class's 100 highest negatives are kept.
_base_ = ['mmdet::atss/atss_r50_fpn_1x_coco.py', '../_base_/losses/rambo.py']
model = dict(
    bbox_head=dict(
        type='mmrank.RankATSSHead',
        loss_cls=dict(
            _delete_=True,
            **_base_.rambo,
            use_sigmoid=True,
            memory_batches=3,
            memory_negatives=100)),
    # the scores of a ranking have no fixed scale: none is cut off
    test_cfg=dict(score_thr=0.0))
