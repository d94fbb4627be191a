"""The four dashboards: service, routing and learning, methods, capacity."""

from ops.operate.dashboard_panels import Board, Graph, Query, quantile

SERVICE = Board(
    "specadapt-service",
    "service",
    (
        Graph(
            "Answers",
            "reqps",
            "Answers that came to their end, by how they ended. `error` and `deadline` are bad.",
            (Query("sum by (outcome) (rate(ray_specadapt_requests_total[5m]))", "{{outcome}}"),),
        ),
        Graph(
            "Requests without an answer",
            "reqps",
            "By HTTP status: 429 is a full line or a limit, 503 no replica, 504 a deadline.",
            (Query("sum by (status) (rate(ray_specadapt_refused_total[5m]))", "{{status}}"),),
        ),
        Graph(
            "Time to first token",
            "s",
            "On the engine's clock, its queue included; all methods.",
            tuple(
                Query(quantile(share, "ray_specadapt_ttft_seconds", ()), f"p{share * 100:g}")
                for share in (0.5, 0.95, 0.99)
            ),
        ),
        Graph(
            "Time per token after the first",
            "s",
            "What a reader feels while an answer streams.",
            tuple(
                Query(quantile(share, "ray_specadapt_tpot_seconds", ()), f"p{share * 100:g}")
                for share in (0.5, 0.95, 0.99)
            ),
        ),
        Graph(
            "Tokens answered",
            "short",
            "Tokens a second, by the method that answered.",
            (Query("sum by (method) (rate(ray_specadapt_output_tokens_total[5m]))", "{{method}}"),),
        ),
        Graph(
            "Degraded routing",
            "reqps",
            "Prompts routed without the encoder, without the feedback actor, or by an old table.",
            (Query("sum by (mode) (rate(ray_specadapt_degraded_total[5m]))", "{{mode}}"),),
        ),
    ),
)

ROUTING = Board(
    "specadapt-routing",
    "routing and learning",
    (
        Graph(
            "Why a method was chosen",
            "reqps",
            "Favourite of the cluster, load, exploration, a constraint, failover, a pin.",
            (Query("sum by (reason) (rate(ray_specadapt_decisions_total[5m]))", "{{reason}}"),),
        ),
        Graph(
            "Prompts by cluster",
            "reqps",
            "The busiest ten; cluster -1 is prompts that were not embedded.",
            (
                Query(
                    "topk(10, sum by (cluster) (rate(ray_specadapt_prompts_total[5m])))",
                    "cluster {{cluster}}",
                ),
            ),
        ),
        Graph(
            "What exploring costs",
            "percentunit",
            "Predicted seconds spent on trying methods out, of all; router.exploration bounds it.",
            (
                Query(
                    "sum(rate(ray_specadapt_exploration_seconds_total[5m])) "
                    "/ sum(rate(ray_specadapt_predicted_seconds_total[5m]))",
                    "of the latency",
                ),
            ),
        ),
        Graph(
            "Drift",
            "percentunit",
            "At least this share of recent prompts is of a kind the clusters were not made of.",
            (Query("max(ray_specadapt_drift)", "share"),),
        ),
        Graph(
            "Routing takes",
            "s",
            "Embedding and choosing.",
            tuple(
                Query(quantile(share, "ray_specadapt_decision_seconds", ()), f"p{share * 100:g}")
                for share in (0.5, 0.95)
            ),
        ),
        Graph(
            "Table and observations",
            "short",
            "The version of the table in force, and observations that wait to be learned from.",
            (
                Query("max(ray_specadapt_table_version)", "version"),
                Query("max(ray_specadapt_observations_waiting)", "waiting"),
            ),
        ),
    ),
)

METHODS = Board(
    "specadapt-methods",
    "methods",
    (
        Graph(
            "Share of the answers",
            "percentunit",
            "Who answers.",
            (
                Query(
                    "sum by (method) (rate(ray_specadapt_requests_total[5m])) "
                    "/ on() group_left sum(rate(ray_specadapt_requests_total[5m]))",
                    "{{method}}",
                ),
            ),
        ),
        Graph(
            "Acceptance length",
            "short",
            "Tokens per target step (MAT); plain decoding has 1.",
            (
                Query(
                    "sum by (method) (rate(ray_specadapt_output_tokens_total[5m])) "
                    "/ sum by (method) (rate(ray_specadapt_target_steps_total[5m]))",
                    "{{method}}",
                ),
            ),
        ),
        Graph(
            "Drafted tokens that are kept",
            "percentunit",
            "Low: drafts are too long, or the drafter does not know this traffic.",
            (
                Query(
                    "sum by (method) (rate(ray_specadapt_accepted_tokens_total[5m])) "
                    "/ sum by (method) (rate(ray_specadapt_drafted_tokens_total[5m]))",
                    "{{method}}",
                ),
            ),
        ),
        Graph(
            "Acceptance length by head version",
            "short",
            "Tokens per target step of answers that a version of a trained head could draft for.",
            (
                Query(
                    "sum by (part, version) (rate(ray_specadapt_replica_head_tokens_total[5m])) "
                    "/ sum by (part, version) (rate(ray_specadapt_replica_head_steps_total[5m]))",
                    "{{part}} {{version}}",
                ),
            ),
        ),
        Graph(
            "Time of a step",
            "s",
            "Median over answers; grows with the batch.",
            (Query(quantile(0.5, "ray_specadapt_step_seconds"), "{{method}}"),),
        ),
        Graph(
            "Tokens a second of an answer",
            "short",
            "Median over answers, the engine's queue included.",
            (Query(quantile(0.5, "ray_specadapt_tokens_per_second"), "{{method}}"),),
        ),
        Graph(
            "Circuits",
            "short",
            "0 closed; 1 and 2: the method is left alone after failures.",
            (Query("max by (method) (ray_specadapt_circuit_state)", "{{method}}"),),
        ),
    ),
)

CAPACITY = Board(
    "specadapt-capacity",
    "capacity",
    (
        Graph(
            "Sequences in work",
            "short",
            "By replica.",
            (Query("ray_specadapt_replica_running", "{{replica}}"),),
        ),
        Graph(
            "Sequences in line",
            "short",
            "By replica; for long, more replicas are needed.",
            (Query("ray_specadapt_replica_waiting", "{{replica}}"),),
        ),
        Graph(
            "Tokens still to decode",
            "short",
            "At most, of all that was admitted.",
            (Query("ray_specadapt_replica_outstanding_tokens", "{{replica}}"),),
        ),
        Graph(
            "Free room in the KV pool",
            "short",
            "Tokens, by replica.",
            (Query("ray_specadapt_replica_free_slots", "{{replica}}"),),
        ),
        Graph(
            "Time in line",
            "s",
            "From the request to its place in the batch.",
            tuple(
                Query(quantile(share, "ray_specadapt_queue_seconds", ()), f"p{share * 100:g}")
                for share in (0.5, 0.95)
            ),
        ),
        Graph(
            "Sequences in a step",
            "short",
            "Mean of an answer, median over answers.",
            (Query(quantile(0.5, "ray_specadapt_batch_sequences"), "{{method}}"),),
        ),
    ),
)

BOARDS = (SERVICE, ROUTING, METHODS, CAPACITY)
