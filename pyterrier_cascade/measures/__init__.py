"""The measures of this package, in the form of ir-measures."""
