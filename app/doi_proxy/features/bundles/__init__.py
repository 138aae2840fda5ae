"""The operator of a ship, an archive or an island network misses it when records must travel on a disk."""
