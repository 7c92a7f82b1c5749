# RaMBO's recall loss with the score memory of the paper; lambda_val and the
# margin are those of a data set.
_base_ = './embedding_r50.py'
model = dict(
    head=dict(
        pooling='avg',
        loss=dict(
            type='mmrank.RaMBORecallLoss', weighting='log', memory_batches=3)))
