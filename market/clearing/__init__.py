"""Who gets what at which price: pure functions of the books, one lane beside the other."""
