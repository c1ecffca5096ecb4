"""The commands of ``python -m pyterrier_cascade``, a file for each; none imports torch before it runs."""
