"""Parts of recipes: the file, the model they see, what they choose, and what they compute."""
