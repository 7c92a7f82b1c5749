# RaMBO with the paper's parameters for detection (section 5.2, Pascal VOC).
# A config names its memory, and what differs:
#   loss_cls=dict(_delete_=True, **_base_.rambo, memory_batches=7)
rambo = dict(
    type='mmrank.RaMBOLoss',
    margin=0.15,
    lambda_val=0.5,
    map_weight=2.0,
    cross_class_weight=1.0,
    loss_weight=1.0)
