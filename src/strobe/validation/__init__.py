"""Experiments that test Strobe's own claims: A/A tests, accuracy of the diagnosis, search against grid."""
