"""`specadapt grafana`: the service's dashboards, as code."""
