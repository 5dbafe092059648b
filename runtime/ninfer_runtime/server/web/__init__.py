"""The chat and status page: plain files for a browser, and the routes that send them."""
