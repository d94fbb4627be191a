"""What passes between the rooms: pydantic models without behaviour beyond validation, and how the
files that people write are read."""

from schemas.config import (
    AppConfig,
    EngineConfig,
    FeedbackConfig,
    MethodDeployment,
    MethodSpec,
    RouterConfig,
)
from schemas.decode import (
    DecodeChunk,
    DecodeRequest,
    FinishReason,
    Grammar,
    SamplingDefaults,
    SamplingParams,
    TokenLogprobs,
)
from schemas.head_training import (
    LEAST_CONVERSATIONS,
    Canary,
    Gain,
    HeadOrigin,
    HeadPart,
    HeadsInForce,
    HeadVersion,
    PastRounds,
    Sample,
    SampleSpan,
    TuningJob,
    Verdict,
)
from schemas.http import GuardConfig, HttpConfig
from schemas.load import HeadCounts, LoadReport
from schemas.observation import Decision, DecodeStats, DrafterStats, Observation, Reason
from schemas.routing import (
    CONDITIONS,
    TEMPERATURE_BANDS,
    DriftReport,
    EncoderInfo,
    Live,
    MeasuredUnder,
    RoutingTable,
    Snapshot,
    TableUpdate,
    condition_of,
    temperature_band,
)
