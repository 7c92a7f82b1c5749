# RaMBO for a head that scores every place of a pyramid. memory_negatives
# bounds the score memory: of each remembered batch the rows of the positives
# and of every class's 100 highest negatives are kept.
_base_ = './rambo.py'
rambo_dense = dict(
    **_base_.rambo, use_sigmoid=True, memory_batches=3, memory_negatives=100)
