"""``python -m mmrank.check``: the older name of ``python -m mmrank check``."""

from mmrank.environment import main

if __name__ == '__main__':
    raise SystemExit(main())
