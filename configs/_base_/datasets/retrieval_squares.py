# Crops of 224 px from images squeezed into squares, for a config that lists
# this file beside a data set. Bases may share no name: the config itself
# makes these its pipelines.
squares = dict(
    train=[
        dict(type='mmrank.LoadImage'),
        dict(
            type='mmrank.ImageTransforms',
            transforms=[
                dict(type='Resize', size=(256, 256)),
                dict(type='RandomCrop', size=224),
                dict(type='RandomHorizontalFlip'),
            ]),
        dict(type='mmrank.PackRetrievalInputs'),
    ],
    test=[
        dict(type='mmrank.LoadImage'),
        dict(type='mmrank.ImageTransforms', transforms=[dict(type='Resize', size=(256, 256)), dict(type='CenterCrop', size=224)]),
        dict(type='mmrank.PackRetrievalInputs'),
    ])
