"""The commands of ``python -m pyterrier_cascade``, one file for each. None imports torch before it runs."""
