"""What `ninfer inspect` shows: the overview, listings, stored files, checks and digests."""
