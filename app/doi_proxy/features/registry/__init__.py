"""The operator of an island network misses it when every registered name must resolve without a network.

Its readers are pure. Crossref and DataCite publish the metadata of every DOI name that they register, under CC0.
"""
