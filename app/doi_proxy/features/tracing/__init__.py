"""IT staff of a site with a collector of traces miss it when one slow request must be followed."""
