# a wrong number of classes or a misspelt class stops a run before it starts
custom_hooks = [
    dict(type='mmdet.NumClassCheckHook'),
    dict(type='mmrank.ClassNamesCheckHook'),
]
