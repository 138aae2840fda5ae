"""Reads the data files of registration agencies: names and their URLs. All of it is pure.

Crossref and DataCite publish the metadata of every DOI name that they register, under CC0.
"""
