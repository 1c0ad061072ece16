"""Each lane at work: it clears in time, posts its matches, answers for what became of them."""
