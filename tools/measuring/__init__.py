"""What the scripts in ``benchmarks/`` and ``reproduce/`` share."""
