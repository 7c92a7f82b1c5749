# RaMBO for retrieval as the paper trains it. A config adds its data set, and
# what belongs to it: the batch sampler, lambda_val, the margin and the rate.
_base_ = [
    './models/embedding_r50_rambo-recall.py',
    './datasets/retrieval_squares.py',
    './schedules/rambo_recall_80e.py',
    './retrieval_runtime.py',
]
