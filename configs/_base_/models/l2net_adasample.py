model = dict(
    type='mmrank.DescriptorLearner',
    data_preprocessor=dict(type='mmrank.PatchDataPreprocessor', patch_size=32),
    backbone=dict(type='mmrank.L2Net'),
    loss=dict(type='mmrank.HingeTripletLoss', margin=1.0, distance='angular'),
    sampler=dict(type='mmrank.AdaSample', lambda_val=10, mode='online', hard_below=1.0))
