"""Measures of cost and of open-domain question answering, in the form of ir-measures."""
