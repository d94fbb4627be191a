"""A prompt's way from its tokens to a stream of chunks: route, call, fail over, observe."""
