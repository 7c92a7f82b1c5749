# Larger crops, for a config that lists this file beside one of 224 px. Bases
# may share no name: the config itself makes these its pipelines.
crops_256px = dict(
    train=[
        dict(type='mmrank.LoadImage'),
        dict(type='mmrank.ImageTransforms', transforms=[dict(type='RandomResizedCrop', size=256), dict(type='RandomHorizontalFlip')]),
        dict(type='mmrank.PackRetrievalInputs'),
    ],
    test=[
        dict(type='mmrank.LoadImage'),
        dict(type='mmrank.ImageTransforms', transforms=[dict(type='Resize', size=292), dict(type='CenterCrop', size=256)]),
        dict(type='mmrank.PackRetrievalInputs'),
    ])
