# LVIS v1 for a config that lists this file beside one for COCO. Bases may
# share no name: the config itself puts these into its loaders.
lvis_v1 = dict(
    # around the training set: rare classes are repeated
    repeats=dict(
        _delete_=True, type='ClassBalancedDataset', oversample_thr=1e-3),
    train=dict(
        type='LVISV1Dataset',
        data_root='data/lvis_v1/',
        ann_file='annotations/lvis_v1_train.json',
        data_prefix=dict(img=''),
        filter_cfg=dict(filter_empty_gt=True, min_size=32)),
    val=dict(
        type='LVISV1Dataset',
        data_root='data/lvis_v1/',
        ann_file='annotations/lvis_v1_val.json',
        data_prefix=dict(img='')),
    evaluator=dict(
        type='LVISMetric',
        ann_file='data/lvis_v1/annotations/lvis_v1_val.json'))
