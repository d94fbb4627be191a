"""The replicas' load reports on their way to the ingresses, apart from what learns."""
