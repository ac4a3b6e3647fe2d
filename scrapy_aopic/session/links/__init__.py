"""What a callback yields, on its way to the links of its page."""
