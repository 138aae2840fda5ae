"""The other side: how names are asked, of whom, how often, and what is done when the answer fails."""
