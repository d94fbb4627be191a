"""Ray Serve: joins the workers and the router."""
