"""Convolutions and models; the same code runs on a whole graph and on one part of many."""
