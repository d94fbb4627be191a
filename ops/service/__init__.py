"""A running service to be measured: started, joined or asked."""
