"""Text files of data sets."""

from pathlib import Path


def read_text(path: str | Path) -> str:
    """The text of a UTF-8 file, with or without a byte order mark.

    Raises:
        ValueError: naming the file, if it is in another encoding.
    """
    try:
        return Path(path).read_text(encoding='utf-8-sig')
    except UnicodeDecodeError as error:
        raise ValueError(
            f'{str(path)!r} must be saved as UTF-8: {error}') from None
