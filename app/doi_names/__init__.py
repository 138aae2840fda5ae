"""The codec layer: DOI names, their URI and URL presentations, and the forms people write. All of it is pure."""
