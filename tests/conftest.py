from hypothesis import HealthCheck, settings

# One profile for all: no deadline (machines are noisy, kernels compile on first use).
settings.register_profile(
    "rangecast", deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("rangecast")
