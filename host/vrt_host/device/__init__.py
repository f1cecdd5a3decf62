"""What real boards need: the files of a board, flashing, copying, provisioning, looking after them."""
