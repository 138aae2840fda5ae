"""QR codes on the pages of records."""
