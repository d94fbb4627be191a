"""`specadapt bench scaling`: autoscaling policies side by side, on replicas that replay."""
