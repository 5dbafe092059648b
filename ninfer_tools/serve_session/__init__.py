"""Behind `ninfer serve` and `ninfer plan`: options, checks, the memory plan, the server's life."""
